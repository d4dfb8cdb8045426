"""What Gradescope's run_autograder calls: grades the one submission of an autograder's folder, as a class of one.

    python -m classroom.one_submission /autograder [PROBLEMS]

It reads submission/ and writes results/results.json there; a fault of ours is a document without a score.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from classroom import __main__ as command
from grader.core.sandbox import bubblewrap, files

SORRY = "This is a fault of the grader's machine, not of the submission: there is no score, and no point is lost."
SEED = Path(__file__).resolve().parents[1] / "seed.txt"  # the bundle's own
LARGEST = 5 << 20  # bytes of a file that is taken along: a module is a thousandth of that


def main(argv: list[str], make_engine: Any = None) -> int:
    """Always 0: what went wrong stands in results.json. make_engine: as in classroom."""
    root, problems = Path(argv[0]), "".join(argv[1:2])
    results = root / "results" / "results.json"
    results.parent.mkdir(parents=True, exist_ok=True)
    if bubblewrap.find_obstacle():  # its container holds this one submission and nothing else
        os.environ[bubblewrap.SWITCH] = "none"
    try:
        document = grade(root / "submission", problems, make_engine)
    except Exception as error:
        document = json.dumps({"output": f"{SORRY} ({type(error).__name__}: {error})", "tests": []})
    files.write(results, document)
    return 0


def grade(submission: Path, problems: str, make_engine: Any) -> str:
    """The text of results.json; raises RuntimeError where the class of one came to nothing."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        given, out = Path(folder) / "given", Path(folder) / "class"
        shutil.copytree(submission, given / "submission", symlinks=True, ignore=too_large)
        asked = ["--problems", problems] if problems else []
        asked += ["--seed", SEED.read_text("utf-8").strip()] if SEED.exists() else []
        status = command.main([str(given), "--out", str(out), "--lanes", "1", *asked], make_engine)
        written = list((out / "gradescope").glob("*.json"))
        if len(written) != 1:
            raise RuntimeError(f"grading ended with exit status {status} and {len(written)} results")
        return written[0].read_text(encoding="utf-8")


def too_large(folder: str, names: list[str]) -> list[str]:
    """The names in a folder that are left out: what no module can be."""
    paths = {name: Path(folder) / name for name in names}
    return [name for name, path in paths.items() if not path.is_dir() and path.lstat().st_size > LARGEST]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
