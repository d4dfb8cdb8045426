"""The overview: its rows are those of other pages, lost ones among them."""

import re

from report.pages import overview


def test_lost_rows_are_counted_and_shown():
    (text,) = overview.files().values()
    lines = [line.split(" | ") for line in text.splitlines() if line.startswith("| ") and "---" not in line][1:]
    ends = [[re.findall(r"[\d.]+(?=\)| to )", cell) for cell in line[4:] if "(" in cell] for line in lines]
    ends = [[(float(low), float(high)) for low, high in each] for each in ends]
    lost = sum(any(high < 1 for _, high in each) for each in ends)
    even = sum(any(low <= 1 <= high for low, high in each) and all(high >= 1 for _, high in each) for each in ends)
    assert all(ends) and f"in {lost} of these {len(lines)} rows; in {even} more" in text
    assert {line[0].strip("| ") for line in lines} == {"forward", "backward", "decode", "block-sparse", "packed"}
