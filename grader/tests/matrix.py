"""The versions of Triton that a user may bring, each tried once with the pinned torch: `make test-matrix`.

Each version has a folder in .matrix/ that holds it alone and sees the packages of the environment that runs this. There
the tests grade the solutions, honest, wrong and cheating submissions, and run each operation in the
machine. Prints a table; exit status 1 where something failed. TRITON="3.6.0 3.9.0" tries these versions alone.
"""

import os
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from xml.etree import ElementTree

import torch

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".matrix"
VERSIONS = ("3.6.0", "3.7.0", "3.7.1", "3.8.0", "3.9.0")
PARTS = {  # of grader/tests
    "solutions": "solutions/test_solutions.py",
    "submissions": "submissions",
    "meaning": "core/run/test_meaning.py",
    "machine": "core/machine",
}
COLUMNS = "{:8} " + "{:>22} " * len(PARTS) + "{:>8}"


def make_environment(version):
    """The Python that has this Triton and, for the rest, the packages of this one."""
    folder = FOLDER / version
    python = folder / "bin" / "python"
    if not (folder / "whole").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--no-deps"]
        subprocess.run([*pip, f"triton=={version}"], check=True)
        (packages,) = folder.glob("lib/python*/site-packages")
        (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
        (folder / "whole").touch()
    return python


def run_tests(python, tests, results):
    """How these tests went: words like `40 passed, 1 skipped`, and the names of those that failed."""
    command = [python, "-m", "pytest", f"grader/tests/{tests}", "-q", "-n", "auto", "-m", "not thorough and not gpu",
               "-p", "no:cacheprovider", f"--junitxml={results}"]  # fmt: skip
    with open(results.with_suffix(".log"), "w", encoding="utf-8") as log:
        subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
    suite = ElementTree.parse(results).getroot().find("testsuite")
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in suite.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = int(suite.get("skipped"))
    counts = {"passed": int(suite.get("tests")) - skipped - len(failed), "failed": len(failed), "skipped": skipped}
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count), failed


def main():
    versions = os.environ.get("TRITON", "").split() or VERSIONS
    failures = []
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}; {FOLDER.name}/VERSION/*.log has what was said")
    print(COLUMNS.format("triton", *PARTS, "seconds"), flush=True)
    for version in versions:
        started, python, row = time.monotonic(), make_environment(version), []
        for part, tests in PARTS.items():
            words, failed = run_tests(python, tests, FOLDER / version / f"{part}.xml")
            row.append(words)
            failures += [f"triton {version}: {name}" for name in failed]
        print(COLUMNS.format(version, *row, f"{time.monotonic() - started:.0f}"), flush=True)
    print(*failures, sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
