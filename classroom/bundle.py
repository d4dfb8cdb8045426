"""make gradescope: autograder.zip, the grader as Gradescope takes it in; the same files give the same bytes.

Source: Gradescope, "Autograder specifications": setup.sh and run_autograder at the top of a zip.
"""

import io
import os
import secrets
import sys
import zipfile
from pathlib import Path

from grader.commands.arguments import BadArguments, choose_problems
from grader.core.sandbox import files
from grader.course import course
from grader.registry import LABS, PROBLEMS

ROOT = Path(__file__).resolve().parents[1]
AUTOGRADER = Path(__file__).parent / "autograder"
OF_COURSE = ("course.toml", "solutions", "kinds")
ENDINGS = {".toml", ".py", ".csv", ".html", ".css", ".js", ".svg", ".json"}
ALONE = ("pyproject.toml", "LICENSE", "locks/base.txt", "locks/torch.txt", "locks/cuda.txt")
LEFT_OUT = ("grader/tests", "classroom/tests", "classroom/autograder")
SEED_FILE, SEEDS = "seed.txt", 1 << 31  # of the inputs and the drawn shapes; no submission sees the folder it lies in
DATE = (2000, 1, 1, 0, 0, 0)  # of every file: a zip is compared by its bytes


def contents() -> dict[str, Path]:
    """{name in the zip: the file}: what grading needs, and no tests."""
    found = {path.name: path for path in AUTOGRADER.iterdir() if path.is_file()}
    found |= {name: ROOT / name for name in ALONE}
    found |= files_of(ROOT, "grader") | files_of(ROOT, "classroom")
    for name in OF_COURSE:
        found |= files_of(course.current().folder, name)
    return dict(sorted(found.items()))


def files_of(root: Path, name: str) -> dict[str, Path]:
    """{name: path} of a file, or of the files of a folder that have one of ENDINGS."""
    paths = {path.relative_to(root).as_posix(): path for path in (root / name, *(root / name).rglob("*"))}
    return {
        name: path
        for name, path in paths.items()
        if path.suffix in ENDINGS and path.is_file() and not name.startswith(LEFT_OUT)
    }


def write(path: Path, seed: int, problems: str = "") -> str:
    """Write the bundle with a seed of its own; returns the line to print. problems: like 3-5, or all with points.

    Raises BadArguments and OSError.
    """
    if problems:
        choose_problems(problems, PROBLEMS, LABS)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, file in contents().items():
            entry = zipfile.ZipInfo(name, DATE)
            entry.external_attr = (0o755 if file.parent == AUTOGRADER else 0o644) << 16
            data = file.read_bytes()
            if name == "run_autograder":
                data = data.replace(b"${PROBLEMS:-}", b"${PROBLEMS:-%s}" % problems.encode())
            bundle.writestr(entry, data, zipfile.ZIP_DEFLATED)
        bundle.writestr(zipfile.ZipInfo(SEED_FILE, DATE), f"{seed}\n")
    files.write(path, written.getvalue())
    return f"{path}: upload it as the autograder of a programming assignment (Gradescope, Configure Autograder)"


if __name__ == "__main__":
    try:
        path = Path(sys.argv[1] if len(sys.argv) > 1 else "autograder.zip")
        print(write(path, 1 + secrets.randbelow(SEEDS), os.environ.get("P", "")))
    except BadArguments as error:
        sys.exit(f"gradescope: {error}")
    except OSError as error:
        sys.exit(f"gradescope: {error.filename} cannot be written: {error.strerror}")
