"""The facts of a mismatch -> words: where the wrong elements are, what is NaN, how far off."""

TILES = (256, 128, 64, 32, 16)


def where(facts):
    """`First wrong row 32; rows before it agree; ...`: what the facts of compare.mismatch show."""
    first_row = facts["row_ranges"][0][0]
    said = []
    if facts["unwritten"]:
        said.append(f"{facts['unwritten']} of {facts['total']} elements of the output were never written")
        said[-1] += ", the last rows: does the grid reach the last, ragged tile" if only_the_tail(facts) else ""
    if facts["row_ranges"] == [(0, facts["num_rows"] - 1)]:
        rows = "every row has wrong elements" if facts["num_rows"] > 1 else "the only row is wrong"
    elif len(facts["row_ranges"]) == 1 and facts["row_ranges"][0][1] < facts["num_rows"] - 1:
        rows = f"only rows {show(facts['row_ranges'])} of {facts['num_rows']} are wrong"
    elif len(facts["row_ranges"]) > 4:
        count = sum(last - first + 1 for first, last in facts["row_ranges"])
        rows = f"{count} of {facts['num_rows']} rows are wrong, the first is row {first_row}"
    elif len(facts["row_ranges"]) > 1:
        rows = f"wrong rows {show(facts['row_ranges'])} of {facts['num_rows']}"
    else:
        rows = f"first wrong row {first_row}; rows before it agree"
    said.append(rows + in_tiles(facts))
    batches = {batch for batch, _ in facts["heads"]}
    if len(facts["heads"]) < facts["num_heads"]:
        some = ", ".join(f"({b}, {h})" for b, h in facts["heads"][:6])
        more = f" and {len(facts['heads']) - 6} more" if len(facts["heads"]) > 6 else ""
        whole = facts["num_heads"] // facts["num_batches"] * len(batches) == len(facts["heads"])
        if whole:
            said.append(
                f"only in batch {', '.join(map(str, sorted(batches)))} of {facts['num_batches']}, in every head"
            )
        else:
            said.append(f"only (batch, head) {some}{more} of {facts['num_heads']}")
    if facts["columns"] and facts["columns"] != [(0, facts["num_columns"] - 1)] and facts["num_columns"] > 1:
        said.append(f"columns {show(facts['columns'])} of {facts['num_columns']}")
    if facts["nan"] or facts["inf"]:
        kinds = {"NaN": facts["nan"], "infinite": facts["inf"]}
        said.append(" and ".join(f"{count} {kind}" for kind, count in kinds.items() if count) + " values")
    at = ", ".join(map(str, facts["first"]))
    said.append(
        f"at ({at}) got {facts['first_got']:.6g}, expected {facts['first_expected']:.6g}: "
        f"off by {abs(facts['first_got'] - facts['first_expected']):.1e} where {facts['first_allowed']:.1e} is allowed"
    )
    if facts["worst_excess"] > 10 and facts["worst"] != facts["first"]:
        worst = ", ".join(map(str, facts["worst"]))
        said.append(f"at worst {facts['worst_excess']:.0f} times the allowance, at ({worst})")
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}."


def show(ranges):
    """[(0, 3), (9, 9)] -> `0-3, 9`"""
    shown = [f"{a}-{b}" if a != b else f"{a}" for a, b in ranges[:4]]
    return ", ".join(shown) + (", ..." if len(ranges) > 4 else "")


def only_the_tail(facts):
    (first, last), *more = facts["row_ranges"]
    return not more and last == facts["num_rows"] - 1 and first > 0


def in_tiles(facts):
    """`, in whole tiles of 32`: the largest tile whose edges the wrong rows keep to, where that is no accident."""
    ranges, num_rows = facts["row_ranges"], facts["num_rows"]
    if ranges == [(0, num_rows - 1)]:
        return ""
    for tile in TILES:
        if all(a % tile == 0 and ((b + 1) % tile == 0 or b == num_rows - 1) for a, b in ranges) and num_rows > tile:
            return f", in whole tiles of {tile}"
    return ""
