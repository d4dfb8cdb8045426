"""What costs no points and is worth knowing: tiles that a right kernel visits, or masks, for nothing."""

from grader.kinds.attention import tile_visits


def on_tiles(case, visited):
    """A sentence on what the kernels did within what is allowed, or an empty one. visited: the Visits."""
    records = [record for record in visited if record.tiles]
    seen, spans = tile_visits.seen_of(case), tile_visits.spans_of(records)
    queries = max((bottom - top for top, bottom in (record.q for record in records)), default=0)
    visited, in_vain, whole, masked = 0, [], 0, 0
    for record in records:
        top, bottom = record.q
        rows = seen(record.batch, record.head).mask[top : bottom + 1]
        for first, last in record.tiles:
            visible = rows[:, first : last + 1]
            visited += 1
            if not visible.any():
                in_vain.append((record.q, (first, last)))
            # The few queries past the last whole tile see keys that a whole tile of queries does not.
            elif visible.all() and bottom - top == queries and last - first + 1 == spans[record.kernel]:
                whole += 1
                masked += (first, last) in record.masked
    if in_vain:
        (top, bottom), (first, last) = in_vain[0]
        return (
            f"right; {len(in_vain)} of the {visited} tiles of keys that the kernels visit hold no key that their "
            f"queries see, such as keys {first}-{last} for query rows {top}-{bottom}. It costs no points, but time on "
            "a GPU: where do your loops begin and end?"
        )
    if whole and masked == whole:
        return (
            f"right; a mask is put on every tile, also on the {whole} whose keys are all visible. It costs no points, "
            "but time on a GPU: which tiles need no mask?"
        )
    return ""
