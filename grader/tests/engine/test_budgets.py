"""No package has more lines than budgets.toml lets it, and every line of code is in some package."""

from grader.tests import budgets
from grader.tests.support import ROOT

TOPS = ("grader", "classroom", "kernels", "solutions", "model", "report", "notebooks", "web")


def test_no_package_is_over_its_budget():
    over = [
        f"{row.name} has {row.lines} lines of {row.budget.most}: delete as many as you add, or say in the note what a "
        "student would lose"
        for found in budgets.rows().values()
        for row in found
        if row.lines > row.budget.most
    ]
    assert not over, over


def test_each_file_of_code_is_counted_once():
    known = budgets.read()
    for table, tests in ((known.packages, False), (known.tests, True)):
        files = {name: budgets.find(each) for name, each in table.items()}
        for path in (path for top in TOPS for path in ROOT.glob(f"{top}/**/*.py")):
            if ("tests" in path.relative_to(ROOT).parts) == tests:
                assert sum(path in found for found in files.values()) == 1, path
