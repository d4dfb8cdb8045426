"""Markdown tables: numbers, ratios, machines, and what stands where there is no number."""

NOISY = 0.05  # where p20 and p80 lie further apart than this, they stand under the median
FACTS = {
    "gpu": "GPU", "driver": "driver", "memory_gib": "memory, GiB", "torch": "PyTorch", "triton": "Triton",
    "cuda": "CUDA", "cudnn": "cuDNN", "flash_attn_4": "flash-attn-4", "python": "Python", "commit": "commit",
    "earlier_commits": "commits of older rows (the sweep was interrupted)", "clocks": "clocks", "date": "date",
}  # fmt: skip
PROTOCOL = {
    "check": "right first: {}",
    "inputs": "inputs: {}",
    "ratios": "ratios: {}; the kernels take turns in an order that changes from round to round",
    "target": "a kernel has had enough turns when its ratio to {anchor} is known within {:.0%} on either side",
    "budget_s": "at most {:g} s of samples of one kernel",
    "min_rounds": "at least {} rounds, or fewer where a kernel has used up its time for samples",
    "max_rounds": "at most {} rounds",
    "slow_ms": "a kernel that takes more than {:g} ms is slow: it is warmed up once",
    "slow_rounds": "a slow kernel takes {} rounds",
    "device": "device: {}",
    "limit_s": "a kernel that gives no result within {:g} s is a failed row",
}


def table(head, rows, left=1):
    """A Markdown table: the first columns to the left, the others to the right; columns without any entry left out."""
    kept = [i for i in range(len(head)) if i < left or any(row[i] for row in rows)]
    lines = [head, ["---" if i < left else "---:" for i in range(len(head))], *rows]
    return "\n".join("| " + " | ".join(row[i] for i in kept) + " |" for row in lines)


def number(value):
    """Three significant digits, never an exponent; blank where nothing was measured."""
    if value is None:
        return ""
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}" if value >= 0.9995 else f"{value:#.3g}"


def times(ratio, strong=False):
    """`1.08 (1.07 to 1.09)`: how many times, and its interval."""
    if ratio is None:
        return ""
    middle = f"**{ratio.middle:.2f}**" if strong else f"{ratio.middle:.2f}"
    return f"{middle} ({ratio.low:.2f} to {ratio.high:.2f})"


def plain(value):
    """A value of a machine's facts as words on one line."""
    if isinstance(value, dict):
        return "; ".join(f"{key}: {plain(inner)}" for key, inner in value.items() if inner is not None)
    if isinstance(value, list):
        return ", ".join(map(plain, value))
    return " ".join(str(value).split()).replace("|", "\\|")


def machine_words(facts):
    """`GPU NVIDIA H200; driver 580`: all of a machine's facts but its clocks."""
    known = [name for name in FACTS if facts.get(name) and name != "clocks"]
    return "; ".join(f"{FACTS[name]} {plain(facts[name])}" for name in known)


def commits(facts):
    """`commit 0123456789ab`, or all of those at which rows were measured; empty where none is known."""
    named = [commit[:12] for commit in (*facts.get("earlier_commits", ()), facts.get("commit")) if commit]
    return f"commit{'s' if named[1:] else ''} {', '.join(named)}" if named else ""


def median(middle, low, high, best=False):
    """A time as a cell: bold where it is the best, and under it p20 and p80 where they lie far apart."""
    text = f"**{number(middle)}**" if best else number(middle)
    return text + (f"<br><sub>{number(low)} to {number(high)}</sub>" if high - low > NOISY * middle else "")


def note(word, reason, notes):
    """A word with a number for its reason, which `with_notes` puts under the table; notes: {reason: number}."""
    return f"{word} <sup>{notes.setdefault(reason, len(notes) + 1)}</sup>"


def with_notes(head, lines, notes):
    """A table and the reasons under it."""
    said = "<br>\n".join(f"<sup>{index}</sup> {plain(reason)}" for reason, index in notes.items())
    return table(head, lines) + (f"\n\n{said}" if said else "")


def protocol_lines(facts, anchor="`fast`"):
    """How it was measured, as it was written down beside the rows: a list of Markdown in the order of PROTOCOL.

    What there is no sentence for stands as it is. anchor: the kernel that all are compared with.
    """
    told = facts.get("protocol") or {}
    if not isinstance(told, dict):
        return plain(told)
    told = {key: told[key] for key in (*PROTOCOL, *told) if key in told}
    return "\n".join(
        "- " + (PROTOCOL[key].format(value, anchor=anchor) if key in PROTOCOL else f"{key}: {plain(value)}")
        for key, value in told.items()
    )
