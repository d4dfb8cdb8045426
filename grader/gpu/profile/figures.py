"""A Reading as lines of a screen: each figure with its ceiling and a sentence on what it means for attention."""

from typing import NamedTuple

from grader.gpu import peaks
from grader.gpu.profile.counters import at_least, below, share
from grader.gpu.profile.limits import BUSY
from grader.gpu.profile.stalls import STALLS

MOST_REGISTERS = 255  # of a thread; what needs more is spilled


class Figure(NamedTuple):
    """value: empty where it was not measured."""

    name: str
    value: str
    ceiling: str
    meaning: str


def figures(r):
    """The Figures of a Reading, in the order of the screen."""
    lines = [*describe_work(r), *describe_memory(r), *describe_room(r), *describe_waiting(r)]
    return [line if line.value else line._replace(meaning="not measured here") for line in lines]


def describe_work(r):
    """How much the arithmetic units do."""
    yield Figure("tensor cores", percent(r.tensor), "100 %", in_words_of_tensor(r.tensor))
    yield Figure("their products", times(r.work), "1.00 x", in_words_of_work(r.work))
    yield Figure("exp2 unit", percent(r.special), "100 %", in_words_of_special(r.special))
    yield Figure("SM throughput", percent(r.busiest), "100 %", in_words_of_busiest(r.busiest))
    yield Figure("SMs with work", percent(r.at_work), "100 %", in_words_of_at_work(r))


def describe_memory(r):
    """What is moved, and through what."""
    yield Figure("DRAM throughput", percent(r.dram), "100 %", in_words_of_dram(r))
    yield Figure("L2 hit rate", percent(r.l2_hits), "100 %", in_words_of_l2(r))
    yield Figure("shared-mem. pipe", percent(r.shared), "100 %", in_words_of_shared(r))
    yield Figure("bank conflicts", percent(r.conflicting), "0 %", in_words_of_conflicts(r.conflicting))


def describe_room(r):
    """What a program takes, and how many of them fit a multiprocessor."""
    yield Figure("occupancy", percent(r.warps), percent(r.warps_possible), in_words_of_occupancy(r))
    yield Figure("registers", whole(r.registers), str(MOST_REGISTERS), "a thread's: its part of scores and acc")
    takes = "a program's: Q, and K and V for each of num_stages"
    yield Figure("shared memory", kibibytes(r.shared_bytes), kibibytes(r.gpu["shared_bytes"]), takes)
    yield Figure("spills", size(r.spilled), "0 B", in_words_of_spills(r.spilled))


def describe_waiting(r):
    """The two waits that take most of a warp's time, with NVIDIA's names for them."""
    for (name, part), order in zip(r.stalls, ("first", "second"), strict=False):
        words = f"{STALLS[name].words} (stall: {name.replace('_', ' ')})"
        yield Figure(f"{order} wait", percent(part), "", f"of a warp's time, {words}")
    if not r.stalls:
        yield Figure("waits", "", "", "")


# Sentences -----------------------------------------------------------------------------------------------------------


def in_words_of_tensor(busy):
    if below(busy, 2):
        return "idle: no product goes through them"
    rest = "near what this GPU can do" if at_least(busy, 75) else "softmax, loads and waiting take the rest"
    return f"busy {percent(busy)} of the time: {rest}"


def in_words_of_work(work):
    hidden = "much" if at_least(work, 1.15) else "little"
    return f"of what the visible pairs need: {hidden} is computed for pairs that the mask hides"


def in_words_of_special(busy):
    limit = "exp2 alone is a limit" if at_least(busy, BUSY) else "exp2 does not hold the softmax up"
    return f"busy {percent(busy)} of the time: {limit}"


def in_words_of_busiest(busy):
    if at_least(busy, BUSY):
        return "the busiest unit of the multiprocessors (SMs): near its limit"
    return "the busiest unit of the multiprocessors (SMs): even this one has time to spare"


def in_words_of_at_work(r):
    rounds = "" if r.rounds is None else f"; programs come in {r.rounds:.1f} rounds"
    if at_least(r.at_work, 90):
        return f"an even load{rounds}"
    return f"in the rest of the time an SM waits for the last programs elsewhere{rounds}"


def in_words_of_dram(r):
    known = peaks.peak(r.gpu["name"])
    peak = f"of {known.terabytes:g} TB/s" if known else "of the peak"
    if r.moved is None:
        return peak
    least = r.case.least_bytes
    again = ": K and V come from memory again and again" if r.moved > 2 * least else ""
    return f"{peak}; {size(r.moved)} moved, q, k, v and o together are {size(least)}{again}"


def in_words_of_l2(r):
    if at_least(r.l2_hits, 75):
        return "most of what programs ask for is there: they share K and V"
    if below(r.dram, 20):
        return "what is missing there costs little: memory is hardly busy"
    return "much of what programs ask for is gone: those that share K and V run too far apart"


def in_words_of_shared(r):
    loads = share(r.wavefronts_loaded, r.wavefronts)
    split = "" if loads is None else f"; {percent(loads)} of that loads to registers, the rest tensor cores and stores"
    return f"busy {percent(r.shared)} of the time{split}"


def in_words_of_conflicts(conflicting):
    what = "of its accesses are made again, because lanes meet in one bank"
    return f"{what}: does a tl.trans or a new layout go through it?" if at_least(conflicting, 10) else what


def in_words_of_occupancy(r):
    fits = {"registers": r.fit_registers, "shared memory": r.fit_shared, "warps": r.fit_warps}
    fits |= {"programs": r.fit_programs}
    known = {name: count for name, count in fits.items() if count is not None}
    if not known:
        return "of the warps that an SM can hold"
    fewest = min(known.values())
    names = " and ".join(name for name, count in known.items() if count == fewest)
    many = f"{fewest:.0f} program{'s fit' if fewest != 1 else ' fits'} an SM at a time, by {names}"
    return f"{many}; low is usual here: big tiles beat many warps"


def in_words_of_spills(spilled):
    if spilled == 0:
        return "all that a thread keeps stays in its registers"
    return "written and read back for want of registers: smaller tiles, or more num_warps"


# Numbers -------------------------------------------------------------------------------------------------------------


def percent(value):
    return "" if value is None else f"{value:.1f} %" if 0.05 <= value < 14.95 else f"{value:.0f} %"


def times(value):
    return "" if value is None else f"{value:.2f} x"


def whole(value):
    return "" if value is None else f"{value:.0f}"


def kibibytes(value):
    return "" if value is None else f"{value / 1024:.0f} KiB"


def size(value):
    """`0 B`, `33.6 MB`: powers of ten, as bandwidths are given."""
    if value is None:
        return ""
    for unit in ("B", "kB", "MB"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} GB"
