"""How many lines each package has, beside the most that it may have: `make budgets`. A budget may fall, and never rise.

budgets.toml has them. A line counts unless it is a test's or generated; Python counts, and a kind's text and CSV too.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "budgets.toml"


class Budget(msgspec.Struct, forbid_unknown_fields=True):
    """files, but: patterns below the root, and those of them that count elsewhere. most: the lines that they may have.
    target: what they are to have one day."""

    files: list[str]
    most: int
    target: int | None = None
    but: list[str] = []


class Budgets(msgspec.Struct, forbid_unknown_fields=True):
    """packages: {name: code, tests apart}. tests: {name: tests and their texts}."""

    packages: dict[str, Budget]
    tests: dict[str, Budget]


@dataclass
class Row:
    """What one line of the table says."""

    name: str
    lines: int
    budget: Budget


def read() -> Budgets:
    return msgspec.toml.decode(FILE.read_bytes(), type=Budgets)


def find(budget: Budget) -> set[Path]:
    """Its files, those of tests too."""
    wanted, elsewhere = ({path for each in some for path in ROOT.glob(each)} for some in (budget.files, budget.but))
    return {path for path in wanted - elsewhere if path.is_file()}


def count(budget: Budget, tests: bool) -> int:
    """The lines of its files; of code without those in a folder named tests."""
    counted = [path for path in find(budget) if ("tests" in path.relative_to(ROOT).parts) == tests]
    return sum(len(path.read_bytes().splitlines()) for path in counted)


def rows() -> dict[str, list[Row]]:
    """{"packages" or "tests": their rows}."""
    budgets = read()
    return {
        table: [Row(name, count(each, table == "tests"), each) for name, each in getattr(budgets, table).items()]
        for table in ("packages", "tests")
    }


def main() -> int:
    for table, found in rows().items():
        print(f"{table:12}{'lines':>8}{'most':>8}{'target':>8}")
        for row in found:
            over = "  over" if row.lines > row.budget.most else ""
            print(f"{row.name:12}{row.lines:8}{row.budget.most:8}{row.budget.target or '':>8}{over}")
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
