"""Inside the sandbox: everything that must be refused there is tried, for `make doctor` and the tests.

`python -I attempts.py NAME=NUMBER ...`, the system calls by their numbers here. Prints a JSON object: {attempt: None
where it was refused, else what came of it}.
"""

import ctypes
import errno
import json
import os
import sys

NEW_USERS, FORK = 0x10000000, 17
WRITES = ("/", "/dev", "/usr", "/etc")
C = ctypes.CDLL(None, use_errno=True)
C.syscall.restype = ctypes.c_long
NUMBERS = dict(word.split("=") for word in sys.argv[1:])
# A call whose arguments are wrong on purpose: refused is another error than wrong.
ARGUMENTS = {
    "unshare": (NEW_USERS,), "clone": (NEW_USERS | FORK, 0, 0, 0, 0), "clone3": (0, 0), "keyctl": (0, -3, 0),
    "mount": (0, 0, 0, 0, 0), "ptrace": (0, 0, 0, 0), "setns": (-1, 0),
}  # fmt: skip
REFUSED = {errno.EPERM, errno.ENOSYS, errno.EACCES}


def called(name: str) -> int | None:
    """None where the call is refused, else a number: it was let through."""
    found = C.syscall(int(NUMBERS[name]), *map(ctypes.c_long, ARGUMENTS.get(name, (0, 0, 0, 0, 0))))
    error = ctypes.get_errno()
    if name == "clone" and found == 0:
        os._exit(0)
    return None if found == -1 and error in REFUSED else error or found


def written(folder: str) -> int | str | None:
    """None where nothing can be written into the folder."""
    path = os.path.join(folder, "made by the sandbox")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    except OSError as error:
        return None if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT) else error.errno
    os.unlink(path)
    return "it was written"


if __name__ == "__main__":
    tried: dict[str, int | str | None] = {f"the call {name}": called(name) for name in NUMBERS}
    tried |= {f"writing to {folder}": written(folder) for folder in WRITES}
    print(json.dumps(tried))
