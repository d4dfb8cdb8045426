"""The measured orders of programs, for the last section of ORDERS.md: out of results/h200/orders.csv. No torch."""

from report import order_rows, table
from report.measured import PUBLISHED, Ratio, length, read_machine
from report.order_rows import ORDERS, PLAIN, OrderRow
from report.tables import number, plain, times
from report.tables import table as markdown

HEAD = (
    "shape, order", "time in us", "times as fast as plain", "found in L2, % of sectors read", "read from L2, GiB",
    "read from memory, GiB",
)  # fmt: skip
TEXT = """
## On a GPU with one L2: an H200

Measured, unlike all above: the lab's kernel, causal, float16, in several orders of its programs, which took turns on
fresh inputs with a cold L2; times are medians with p20 and p80, ratios paired with 95 % intervals ({gpu}, PyTorch
{torch}, Triton {triton}, driver {driver}, commit {commit}). What was found in L2 is Nsight Compute's count of one
launch. All multiprocessors share one L2 here, so dies play no part: an order can only change which heads and rows run
side by side, and what runs last. **The side with eight dies is the model's**; no MI300X was measured.

{orders}

{table}

{story}
"""


def section(folder=PUBLISHED):
    """The section with what stands before it, or nothing where nothing was measured."""
    path = folder / order_rows.FILE
    rows = table.read(path, OrderRow) if path.is_file() else []
    if not rows:
        return ""
    machine = read_machine(folder / order_rows.MACHINE)
    named = {row.kernel for row in rows}
    return TEXT.format(
        **{name: plain(machine.get(name)) for name in ("gpu", "torch", "triton", "driver", "commit")},
        orders="\n".join(f"- *{name}*: {words}" for name, words in ORDERS.items() if name in named),
        table=markdown(HEAD, [line(row) for row in rows]),
        story=story(rows),
    )


def line(row):
    name = f"{row.shape} {length(row.n)}, {row.kernel}"
    if row.status != "ok":
        return [name, f"{row.status}: {plain(row.reason)}", "", "", "", ""]
    time = f"{number(row.median_us)} ({number(row.p20_us)} to {number(row.p80_us)})"
    hits = "" if row.read_hits is None else f"{row.read_hits:.1f}"
    gib = (None if mib is None else mib / 1024 for mib in (row.l2_reads, row.dram_reads))
    return [name, time, times(over_plain(row)), hits, *map(number, gib)]


def over_plain(row):
    return None if row.over_plain is None else Ratio(row.over_plain, row.over_plain_low, row.over_plain_high)


def story(rows):
    """What the table says: of each order the range of its speeds, and how hits and speed go together."""
    found = []
    for name in ORDERS:
        ratios = [row.over_plain for row in rows if row.kernel == name and row.over_plain is not None]
        if ratios and name != PLAIN:
            low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
            found.append(f"*{name}* runs at {low if low == high else f'{low} to {high}'} times the plain order's speed")
    most = [row for row in rows if row.read_hits is not None and row.over_plain is not None]
    text = "; ".join(found) + "." if found else ""
    if most:
        best = max(most, key=lambda row: row.read_hits)
        text += (
            f" The most is found in L2 by *{best.kernel}* at {best.shape} {length(best.n)}, {best.read_hits:.0f} % of "
            f"what is read: there it runs at {best.over_plain:.2f} times the plain order's speed."
        )
    return text[:1].upper() + text[1:]
