"""Orders of programs as a page, ORDERS.md: in the model of a GPU with eight dies, and as measured on one with one L2.

The model is `report/counting/cache_model.py`, a few seconds, the same everywhere. What was measured comes
last, and is not there without rows. No torch.
"""

from dataclasses import replace

from report.counting.cache_model import MI300X
from report.counting.orders import head_first, identity, published
from report.pages import orders_model as model
from report.pages.measured import length, load_study
from report.pages.tables import number, plain, table, times
from report.pages.template import render
from report.places import PUBLISHED as RESULTS
from report.studies.orders import ORDERS, PLAIN, PUBLISHED, STUDY

PAGE, PICTURE = "ORDERS.md", "figures/orders.svg"


def files(folder=RESULTS):
    """{path: text} of the page and its picture; raises BadTable."""
    from report.pages.drawing import svg
    from report.pages.orders_picture import picture

    return {PAGE: page(folder), PICTURE: svg(picture())}


def page(folder=RESULTS):
    standard, piled, ours = map(model.figures, model.PANELS)
    its_plain, its, _ = (model.figures(order, *model.PUBLISHED_SHAPE.sizes) for order in model.PANELS)
    return render(
        PAGE, dies=MI300X.dies, slots=MI300X.slots, capacity=MI300X.capacity, miss=MI300X.miss,
        jitter=f"{MI300X.jitter:g}", BLOCK=model.BLOCK, TILES=model.TILES, HEADS=model.HEADS,
        N=model.TILES * model.BLOCK, seeds=len(model.SEEDS), spread=model.spread() + 0.05, main=main_table(),
        sensitivity=sensitivity_table(), sizes=sizes_table(),
        plain_hits=standard[0], piled_hits=piled[0], ours_hits=ours[0], share=piled[4], piled_speed=piled[2],
        ours_speed=ours[2], its_shape=model.PUBLISHED_SHAPE, its_table=main_table(model.PUBLISHED_SHAPE.sizes),
        its_plain=its_plain[0], its_hits=its[0], its_more=100 * (its[0] / its_plain[0] - 1), its_speed=its[2],
        **measured(*load_study(STUDY, folder)),
    )  # fmt: skip


# In the model ---------------------------------------------------------------------------------------------------------


def main_table(sizes=()):
    lines = []
    for order, name in model.NAMES.items():
        hits, makespan, speed, idle, fullest = model.figures(order, *sizes)
        lines.append([name, f"{hits:.1f}", f"{makespan:.0f}", f"{speed:.2f}", f"{idle:.0f}", f"{fullest:.2f}"])
    return table(["order", "hits, %", "until the last program ends, steps", "speed", "idle, %", "fullest die"], lines)


def sensitivity_table():
    machines = {
        "as above": MI300X,
        "a miss costs as much as a hit": replace(MI300X, miss=1.0),
        "a miss costs 3 hits": replace(MI300X, miss=3.0),
        "a cache of 32 tiles": replace(MI300X, capacity=32),
        "a cache of 16 tiles": replace(MI300X, capacity=16),
        "never late": replace(MI300X, jitter=0.0),
        "late by up to 16 steps": replace(MI300X, jitter=16.0),
    }
    sizes = model.TILES, model.HEADS, 1
    return comparison("the model", {words: (*sizes, machine) for words, machine in machines.items()})


def sizes_table():
    sizes = [(64, 8, 1), (64, 12, 1), (64, 64, 1), (64, 64, 8), (128, 16, 1), (128, 32, 1)]
    named = {
        f"H={heads}{f'/{heads // sharing}' if sharing > 1 else ''} N={tiles * model.BLOCK}": (tiles, heads, sharing)
        for tiles, heads, sharing in sizes
    }
    return comparison("B=1", named)


def comparison(first, cases):
    """A table of hits and speeds of three orders, a line for each case; blank where an order leaves tiles out."""
    lines = []
    for words, sizes in cases.items():
        standard, ours = model.figures(identity, *sizes), model.figures(head_first, *sizes)
        piled = model.figures(published, *sizes) if model.complete(published, *sizes[:2]) else None
        hits, speed = (f"{piled[0]:.1f}", f"{piled[2]:.2f}") if piled else ("", "")
        lines.append([words, f"{standard[0]:.1f}", hits, f"{ours[0]:.1f}", speed, f"{ours[2]:.2f}"])
    return table([first, "hits, %: plain", "published", "head first", "speed: published", "head first"], lines)


# On a GPU -------------------------------------------------------------------------------------------------------------

HEAD = (
    "shape, order", "time in us", "times as fast as plain", "found in L2, % of sectors read", "read from L2, GiB",
    "read from memory, GiB",
)  # fmt: skip


def measured(rows, machine):
    """What the template asks of measured rows."""
    named = {row.kernel for row in rows}
    return {
        "measured": rows, "machine": {name: plain(value) for name, value in machine.items()},
        "orders": "\n".join(f"- *{shown(name)}*: {words}" for name, words in ORDERS.items() if name in named),
        "table": table(HEAD, [line(row) for row in rows]), "story": story(rows), "at_published": at_published(rows),
        "one_order_twice": one_order_twice(rows),
    }  # fmt: skip


def shown(name):
    """An order's name in the rows, with the lab's as it is written elsewhere: X2."""
    return name.replace("x2", "X2")


def one_order_twice(rows):
    """In %, how far apart *reversed* and *grouped heads* are at most where no heads share K and V; or None.

    {"ratios": of their speeds over the plain order's, "times": of their medians}
    """
    found = {}
    for row in rows:
        if "/" not in row.shape and row.kernel in ("reversed", "grouped heads") and row.over_plain is not None:
            found.setdefault((row.shape, row.n), []).append((row.over_plain, row.median_us))
    pairs = [zip(*pair, strict=True) for pair in found.values() if len(pair) == 2]
    apart = [[100 * (max(two) / min(two) - 1) for two in pair] for pair in pairs]
    return dict(zip(("ratios", "times"), map(max, zip(*apart, strict=True)), strict=True)) if apart else None


def at_published(rows):
    """The published order's speed at its own shape, with its interval; None where it was not measured."""
    shape = PUBLISHED.label, 4096, "published"
    found = next((row for row in rows if (row.shape, row.n, row.kernel) == shape), None)
    return times(found.ratio("over_plain")) if found and found.over_plain is not None else None


def line(row):
    name = f"{row.shape} {length(row.n)}, {shown(row.kernel)}"
    if row.status != "ok":
        return [name, f"{row.status}: {plain(row.reason)}", "", "", "", ""]
    time = f"{number(row.median_us)} ({number(row.p20_us)} to {number(row.p80_us)})"
    hits = "" if row.read_hits is None else f"{row.read_hits:.1f}"
    gib = (None if mib is None else mib / 1024 for mib in (row.l2_reads, row.dram_reads))
    return [name, time, times(row.ratio("over_plain")), hits, *map(number, gib)]


def story(rows):
    """What the table says: of each order the range of its speeds, and how hits and speed go together."""
    found = []
    for name in ORDERS:
        ratios = [row.over_plain for row in rows if row.kernel == name and row.over_plain is not None]
        if ratios and name != PLAIN:
            low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
            speed = low if low == high else f"{low} to {high}"
            found.append(f"*{shown(name)}* runs at {speed} times the plain order's speed")
    most = [row for row in rows if row.read_hits is not None and row.over_plain is not None]
    text = "; ".join(found) + "." if found else ""
    if most:
        best = max(most, key=lambda row: row.read_hits)
        text += (
            f" The most is found in L2 by *{shown(best.kernel)}* at {best.shape} {length(best.n)}, "
            f"{best.read_hits:.0f} % of what is read: there it runs at {best.over_plain:.2f} times the plain order's "
            "speed."
        )
    return text[:1].upper() + text[1:]
