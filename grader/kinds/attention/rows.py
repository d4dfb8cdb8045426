"""Cases read from a table: a named case has one idea; its other parameters carry pairs of classes.

`pairs 1` and the like have no other idea; the classes stand in contract.py. Where a row is taken away, a test
says which pairs no case has any more. An empty cell is a Case's default.
"""

import csv
from pathlib import Path

from grader.kinds.attention.case import EVERYTHING, Case

TEXTS = ("name", "dtype", "layout", "values", "gradient")
SIZES = ("tiles", "block")  # `128x64`
VALUES = {"yes": True, "no": False, "everything": EVERYTHING}


def read_cell(field, text):
    """The value of a Case's field as the table has it."""
    if field in TEXTS:
        return text
    if field == "left_out":
        return tuple(text.split())
    if field in SIZES:
        return tuple(map(int, text.split("x")))
    return VALUES[text] if text in VALUES else int(text)


def read_table(beside, make=Case, readers=None):
    """{problem: its cases} of the rows.csv beside a module; a table of one problem has no column for it: None.

    make: the class of the cases. readers: {field: function of a cell's text}, for fields of its own.
    """
    found = {}
    with Path(beside).with_name("rows.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            problem = row.pop("problem", None)
            filled = {field: text for field, text in row.items() if text}
            values = {
                field: readers[field](text) if readers and field in readers else read_cell(field, text)
                for field, text in filled.items()
            }
            found[problem] = (*found.get(problem, ()), make(**values))
    return found


OF = read_table(__file__)
