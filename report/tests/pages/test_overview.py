"""The overview: its rows are those of other pages, lost ones among them."""

from report.pages import overview


def test_lost_rows_are_counted_and_shown():
    (text,) = overview.files().values()
    lines = [line.split(" | ") for line in text.splitlines() if line.startswith("| ") and "---" not in line][1:]
    ratios = [[float(cell.split()[0]) for cell in line[4:] if "(" in cell] for line in lines]
    assert all(ratios) and f"in {sum(min(each) < 1 for each in ratios)} of these {len(lines)} rows" in text
    assert {line[0].strip("| ") for line in lines} == {"forward", "backward", "block-sparse", "packed"}
