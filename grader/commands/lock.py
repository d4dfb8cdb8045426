"""locks/ from pyproject.toml: every package that an environment gets, by version and hash.

`make lock` writes them, for maintainers: it needs uv and a package index. A lock holds for every Python from 3.10 on;
where versions differ, a line says for which. What was locked before stays as it was, as far as pyproject.toml allows
it; delete locks/ first to have the newest of all.

`torch.txt` has versions alone, since builds for CPU and CUDA are different files of one version; `cuda.txt` beside it
holds what a CUDA build brings. `base.txt` is everything else, and each extra's file adds to it what it lacks.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "locks"
EXTRAS = ("notebooks", "site", "site-test", "class", "class-test", "slurm")
WITHOUT_HASHES = re.compile(r"(torch|triton)==|(nvidia|cuda)-")
HEAD = "# Made by `make lock` from pyproject.toml.\n"


def compile_lock(options, known):
    """What uv resolves pyproject.toml to: a block for each package, its line and below it its hashes.

    `known` is a file of versions to keep to; `options` go to `uv pip compile`.
    """
    command = ["uv", "pip", "compile", "--universal", "--python-version=3.10", "--generate-hashes", "--quiet",
               "--no-header", "--no-annotate", "--output-file", str(known), *options, "pyproject.toml"]  # fmt: skip
    subprocess.run(command, cwd=ROOT, check=True)
    return re.findall(r"^\S.*\n(?:[ ].*\n)*", known.read_text(), re.MULTILINE)


def without_hashes(block):
    return block.partition(" \\\n")[0] + "\n"


def make_locks(folder):
    """{name of a file in locks/: its text}; `folder` is for what lies between."""
    known = folder / "known.txt"
    locked = "".join(path.read_text() for path in sorted(LOCKS.glob("*.txt")))
    known.write_text(re.sub("^-.*\n", "", locked, flags=re.MULTILINE))  # without what one lock says of another
    every = folder / "every.txt"
    every.write_text("".join(map(without_hashes, compile_lock(["--all-extras"], known))))
    blocks = compile_lock(["--constraint", str(every)], known)
    free = [without_hashes(block) for block in blocks if WITHOUT_HASHES.match(block)]
    direct = [line for line in free if line.startswith(("torch", "triton"))]
    base = [block for block in blocks if not WITHOUT_HASHES.match(block)]
    locks = {
        "torch.txt": [HEAD, "-c cuda.txt\n", *direct],
        "cuda.txt": [HEAD, *(line for line in free if line not in direct)],
        "base.txt": [HEAD, *base],
    }
    for extra in EXTRAS:
        blocks = compile_lock(["--constraint", str(every), "--extra", extra], known)
        more = [block for block in blocks if block not in base and not WITHOUT_HASHES.match(block)]
        locks[f"{extra}.txt"] = [HEAD, "-r base.txt\n", *more]
    return {name: "".join(lines) for name, lines in locks.items()}


def main():
    if shutil.which("uv") is None:
        sys.exit("make lock needs uv: pip install uv")
    with tempfile.TemporaryDirectory(prefix="locks-") as folder:
        try:
            made = make_locks(Path(folder))
        except subprocess.CalledProcessError:
            sys.exit("uv found no versions that fit each other (its words are above); locks/ is as it was")
    LOCKS.mkdir(exist_ok=True)
    for name, text in made.items():
        (LOCKS / name).write_text(text)
        print(f"locks/{name}: {len(re.findall('==', text))} packages")


if __name__ == "__main__":
    main()
