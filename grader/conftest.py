"""pytest's options for the assignment, and which of the two suites a command means.

`pytest grader --submission DIR` grades DIR; without it `pytest grader` runs the grader's own tests.
"""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent / "tests"
ASSIGNMENT = Path(__file__).parent / "test_assignment.py"


def pytest_addoption(parser):
    group = parser.getgroup("grader")
    group.addoption("--submission", type=Path, help="the folder to grade")
    group.addoption("--device", choices=("cpu", "cuda"), help="where to run it (default: a GPU if there is one)")
    group.addoption("--seed", type=int, default=0, help="other inputs of the same kind")


def pytest_configure(config):
    folder = config.getoption("--submission")
    if folder is not None and not folder.is_dir():
        raise pytest.UsageError(f"the submission folder {folder} does not exist")


def pytest_ignore_collect(collection_path, config):
    grading = config.getoption("--submission") is not None
    if collection_path == TESTS:
        return True if grading else None
    if collection_path == ASSIGNMENT:
        return None if grading else True
    return None


def pytest_collection_modifyitems(config, items):
    """Labs are graded where they are named, as by the command."""
    from grader.registry import LABS

    said = " ".join((config.option.keyword, *config.args))
    unnamed = [id for id in LABS if id not in said]
    left = [item for item in items if any(f"[{id}-" in item.name for id in unnamed) and item.path == ASSIGNMENT]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]
