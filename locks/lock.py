"""locks/ from pyproject.toml: `make lock`, for maintainers; it needs uv and a package index.

What was locked stays, as far as pyproject.toml allows it; delete locks/*.txt first to have the newest of all. torch.txt
has versions alone, since builds for CPU and CUDA are different files of one version; cuda.txt holds what a CUDA build
brings; base.txt is everything else, and an extra's file adds to it.
"""

import re
import subprocess
import tempfile
from pathlib import Path

LOCKS = Path(__file__).resolve().parent
EXTRAS = ("notebooks", "site", "site-test", "class", "slurm", "cover", "lint")
WITHOUT_HASHES = re.compile(r"(torch|triton)==|(nvidia|cuda)-")
UV = "uv pip compile --universal --python-version=3.10 --generate-hashes -q --no-header --no-annotate pyproject.toml"


def main():
    blocks, locked = {}, "".join(path.read_text(encoding="utf-8") for path in sorted(LOCKS.glob("*.txt")))
    with tempfile.TemporaryDirectory(prefix="locks-") as folder:
        every = Path(folder, "every.txt")
        every.write_text(
            re.sub("^-.*\n", "", locked, flags=re.MULTILINE), encoding="utf-8"
        )  # without what one lock says of another
        subprocess.run([*UV.split(), "--all-extras", "--output-file", every], cwd=LOCKS.parent, check=True)
        for extra in (None, *EXTRAS):
            options = ["--constraint", every, *(["--extra", extra] if extra else [])]
            said = subprocess.check_output([*UV.split(), *options], cwd=LOCKS.parent, text=True)
            blocks[extra] = re.findall(r"^\S.*\n(?:[ ].*\n)*", said, re.MULTILINE)  # a package with its hashes
    free = [block.partition(" \\\n")[0] + "\n" for block in blocks[None] if WITHOUT_HASHES.match(block)]
    base = [block for block in blocks.pop(None) if not WITHOUT_HASHES.match(block)]
    direct = [line for line in free if line.startswith(("torch", "triton"))]
    locks = {"torch": ["-c cuda.txt\n", *direct], "cuda": [line for line in free if line not in direct], "base": base}
    for extra, found in blocks.items():
        more = [block for block in found if block not in base and not WITHOUT_HASHES.match(block)]
        locks[extra] = ["-r base.txt\n", *more]
    for name, lines in locks.items():
        (LOCKS / f"{name}.txt").write_text(
            "# Made by `make lock` from pyproject.toml.\n" + "".join(lines), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
