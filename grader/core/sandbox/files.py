"""One way to write a file: a stop halfway leaves the old one or the new one, never half of one."""

import os
from pathlib import Path


def write(path: str | Path, data: str | bytes, durable: bool = False) -> None:
    """Write text (as UTF-8) or bytes. durable: on the disk before it returns, so that a loss of power takes nothing.

    Raises OSError.
    """
    path = Path(path)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")  # its own: another process may write the same file
    try:
        with part.open("wb") as file:
            file.write(data.encode("utf-8") if isinstance(data, str) else data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
