"""The cases of P1 to P7, read from rows.csv: a named case has one idea; its other parameters carry pairs of classes.

`pairs 1` and the like have no other idea; the classes stand in contract.py. Where a row is taken away, a test
says which pairs no case has any more. An empty cell is a Case's default.
"""

import csv
from pathlib import Path

from grader.kinds.attention.case import EVERYTHING, Case

TABLE = Path(__file__).with_name("rows.csv")
WORDS = ("name", "dtype", "layout", "values")


def read_cell(field, text):
    """The value of a Case's field as the table has it: `everything` is the widest window, `128x64` a size of tiles."""
    if field in WORDS:
        return text
    if field == "left_out":
        return tuple(text.split())
    if field == "tiles":
        return tuple(map(int, text.split("x")))
    return {"yes": True, "everything": EVERYTHING}.get(text) or int(text)


def read_table():
    """{problem: its cases}"""
    found = {}
    with TABLE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            problem = row.pop("problem")
            case = Case(**{field: read_cell(field, text) for field, text in row.items() if text})
            found[problem] = (*found.get(problem, ()), case)
    return found


OF = read_table()
