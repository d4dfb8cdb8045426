"""What the model learns from: the source text of Python's standard library, and the modules that it never sees.

    python -m model.corpus list      corpus.csv, of this Python: each file, its bytes, its hash, held out or not
    python -m model.corpus pack      corpus.zip: the same files, for a machine with another Python

corpus.zip, where it is there, comes before this Python's own library. Another version of Python has other texts and
gives other figures: `load` says how many files differ from those of corpus.csv.
"""

import csv
import hashlib
import io
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

import torch

HERE = Path(__file__).parent
LIST, PACKED = HERE / "corpus.csv", HERE / "corpus.zip"
HELD_OUT = (
    "argparse.py", "asyncio/base_events.py", "configparser.py", "difflib.py", "doctest.py", "http/server.py",
    "statistics.py", "tarfile.py", "typing.py",
)  # fmt: skip
# Tests; what is not the library's own; tables and texts rather than code; what a build writes.
LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "__pycache__", "encodings", "pydoc_data"}
BUILT = ("_sysconfigdata", "config-")


@dataclass(frozen=True)
class Corpus:
    """texts: {file: bytes} in the order of names. python: the version of what it is. differing: files that are not
    those of corpus.csv."""

    texts: dict[str, bytes]
    python: str
    differing: int

    def tensor(self, held_out):
        """The texts of one side, one after the other, as (bytes,), uint8."""
        chosen = [text for name, text in self.texts.items() if (name in HELD_OUT) == held_out]
        return torch.frombuffer(bytearray(b"".join(chosen)), dtype=torch.uint8)

    def __str__(self):
        said = f"the standard library of Python {self.python}, {len(self.texts)} files"
        if self.differing:
            said += f"; {self.differing} files differ from those of model/corpus.csv, so that the figures will, too"
        return said


def load():
    """The Corpus of this machine."""
    texts, python = unpack(PACKED.read_bytes()) if PACKED.is_file() else (read_standard_library(), version())
    listed = read_list()
    differing = sum(hash_of(texts.get(name, b"")) != digest for name, digest in listed.items())
    differing += len(texts.keys() - listed.keys())
    return Corpus(texts, python, differing)


def version():
    return ".".join(map(str, sys.version_info[:3]))


def hash_of(text):
    return hashlib.sha256(text).hexdigest()


def read_standard_library():
    """{file: bytes} of the library that this Python has."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if not LEFT_OUT & {*parts[:-1]} and not any(part.startswith(BUILT) for part in parts):
            found["/".join(parts)] = path.read_bytes()
    return found


def read_list():
    """{file: hash} of the committed list."""
    return {row["file"]: row["sha256"] for row in csv.DictReader(LIST.read_text("utf-8").splitlines())}


def write_list(texts):
    """The text of corpus.csv."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(["file", "bytes", "held_out", "sha256"])
    for name, text in texts.items():
        lines.writerow([name, len(text), "yes" if name in HELD_OUT else "no", hash_of(text)])
    return out.getvalue()


def pack(texts):
    """The bytes of corpus.zip; its comment is this Python's version."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        file.comment = version().encode()
        for name, text in texts.items():
            file.writestr(name, text)
    return out.getvalue()


def unpack(data):
    """({file: bytes}, the version of the Python that they are of)."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}, file.comment.decode()


def main(argv):
    if argv not in (["list"], ["pack"]):
        print(__doc__)
        return 2
    texts = read_standard_library()
    path = LIST if argv == ["list"] else PACKED
    path.write_bytes(write_list(texts).encode() if argv == ["list"] else pack(texts))
    print(f"{path}: {len(texts)} files of Python {version()}, {sum(map(len, texts.values())):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
