"""A Mismatch -> words: where the wrong elements are, what is NaN, how far off."""

import math

from grader.result import Mismatch

TILES = (256, 128, 64, 32, 16)
MOST = 0.9  # of the elements: where fewer are wrong, a row may be right in some heads
MANY_TIMES = 1000  # times the allowance: beyond it the number tells nothing more


def where(found: Mismatch) -> str:
    """`First wrong row 32, a multiple of 32; rows before it agree. At ...`: a Mismatch in words."""
    places = "; ".join(filter(None, (rows(found), heads(found), columns(found), kinds(found))))
    sentences = [part for part in (places, first(found), worst(found)) if part]
    text = " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences)
    if len(found.first) == 1:
        text = (
            text.replace("row has wrong elements", "row is wrong").replace("row", "element").replace("Row", "Element")
        )
    return f"{unwritten(found)}{text}"


def where_of(wrong: dict[str, Mismatch], names: list[str]) -> str:
    """The same of the wrong ones among several outputs: `dv is right, dq and dk are not. In dq: first wrong row ...`"""
    first, *more = wrong
    text, right = where(wrong[first]), [name for name in names if name not in wrong]
    if len(names) == 1:
        return text
    said = f"{joined(wrong)} are all wrong"
    if right:
        said = (
            f"{joined(right)} {'is' if len(right) == 1 else 'are'} right, {joined(wrong)} {'are' if more else 'is'} not"
        )
    return f"{said}. In {first}: {text[0].lower()}{text[1:]}" if more else f"{said}. {text}"


def unwritten(found: Mismatch) -> str:
    """A sentence of its own where elements were never written."""
    if not found.unwritten:
        return ""
    said = f"{found.unwritten} of {found.total} elements of the output were never written"
    if only_the_tail(found.row_ranges, found.num_rows):
        return f"{said}, all in the last rows: does the grid reach the last tile? "
    return f"{said}. "


def rows(found: Mismatch) -> str:
    ranges, num_rows = found.row_ranges, found.num_rows
    if ranges == [(0, num_rows - 1)]:
        if num_rows == 1:
            return "the only row is wrong"
        some = found.num_heads > 1 and found.wrong < MOST * found.total
        return "every row has wrong elements" + " in some head" * some
    tile = tile_of(ranges, num_rows)
    if only_the_tail(ranges, num_rows):
        begins = f", a multiple of {tile}" if tile else ""
        return f"first wrong row {ranges[0][0]}{begins}; rows before it agree"
    in_tiles = f", whole blocks of {tile} rows" if tile else ""
    if len(ranges) == 1:
        one = ranges[0][0] == ranges[0][1]
        which = "row {} of {} is" if one else "rows {} of {} are"
        return f"only {which.format(show(ranges), num_rows)} wrong{in_tiles}"
    if len(ranges) <= 4:
        return f"rows {show(ranges)} of {num_rows} are wrong{in_tiles}"
    count = sum(last - first + 1 for first, last in ranges)
    return f"{count} of {num_rows} rows are wrong{in_tiles}; the first is row {ranges[0][0]}"


def only_the_tail(ranges, num_rows):
    (first, last), *more = ranges
    return not more and last == num_rows - 1 and first > 0


def tile_of(ranges, num_rows):
    """The largest tile whose edges the wrong rows keep to, or None where that may be an accident."""
    for tile in TILES:
        if num_rows > tile and all(a % tile == 0 and ((b + 1) % tile == 0 or b == num_rows - 1) for a, b in ranges):
            return tile
    return None


def heads(found: Mismatch) -> str:
    wrong, count = found.heads, found.num_heads
    if len(wrong) == count:
        return ""
    batches = sorted({batch for batch, _ in wrong})
    if count // found.num_batches * len(batches) == len(wrong):
        return f"only in batch {', '.join(map(str, batches))} of {found.num_batches}, in every head"
    some = ", ".join(f"({b}, {h})" for b, h in wrong[:6])
    more = f" and {len(wrong) - 6} more" if len(wrong) > 6 else ""
    return f"only (batch, head) {some}{more} of {count}"


def columns(found: Mismatch) -> str:
    wrong, count = found.columns, found.num_columns
    return f"columns {show(wrong)} of {count}" if wrong and wrong != [(0, count - 1)] else ""


def kinds(found: Mismatch) -> str:
    counts = {"NaN": found.nan, "infinite": found.inf}
    for what, count in (counts | {"0": found.zero}).items():
        if count == found.total:
            return f"all {count} values are {what}" if count > 1 else f"it is {what}"
    said = " and ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    return f"{said} values" if said else ""


def first(found: Mismatch) -> str:
    got, expected = found.first_got, found.first_expected
    said = f"at ({place(found.first)}) got {got:.6g}, expected {expected:.6g}"
    if not math.isfinite(got) or not math.isfinite(expected):
        return said
    return f"{said}: off by {abs(got - expected):.1e} where {found.first_allowed:.1e} is allowed"


def worst(found: Mismatch) -> str:
    if found.worst_excess <= 10 or found.worst == found.first:
        return ""
    times = f"{found.worst_excess:.0f}" if found.worst_excess < MANY_TIMES else f"more than {MANY_TIMES}"
    return f"at worst {times} times the allowance, at ({place(found.worst)})"


def place(index):
    return ", ".join(map(str, index))


def joined(words) -> str:
    """`a, b and c`"""
    *most, last = map(str, words)
    return f"{', '.join(most)} and {last}" if most else last


def show(ranges):
    """[(0, 3), (9, 9)] -> `0-3, 9`"""
    shown = [f"{a}-{b}" if a != b else f"{a}" for a, b in ranges[:4]]
    return ", ".join(shown) + (" and more" if len(ranges) > 4 else "")
