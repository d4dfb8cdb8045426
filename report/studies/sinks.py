"""The study of sinks: which model reads through which mask, and over which positions its losses are averaged; no torch.

A window hides the first tokens from all later ones. Sink tokens stay visible (P7). With rotary positions a sink is ever
further away; "near" sinks keep the place that they have in a cache of sinks and window alone, as StreamingLLM keeps it.
"""

import itertools
from dataclasses import dataclass

FULL, LEARNED = "full", "learned_sinks"  # the two trainings of model/


@dataclass(frozen=True)
class Arm:
    """One line of the study. window: with its sinks as many tokens as a row of the training had, or none."""

    name: str
    model: str = FULL
    window: bool = True
    sinks: int = 0
    near: bool = False


# loss: mean of a range of positions, nats a byte. less: by how much it is under that of BESIDE. Each with its standard
# error over sequences; that of `less` is over the differences of each sequence.
COLUMNS, BESIDE = ("arm", "start", "end", "loss", "error", "less", "less_error"), "window"
ARMS = (
    Arm("full attention", window=False),
    Arm(BESIDE),
    *(Arm(f"window, {n} sink{'s' * (n > 1)}", sinks=n, near=True) for n in (1, 4, 16)),
    *(Arm(f"window, {n} far sink{'s' * (n > 1)}", sinks=n) for n in (1, 4, 16)),
    Arm("full attention, learned logit", LEARNED, window=False),
    Arm("window, learned logit", LEARNED),
)


def bins(tokens, first=64):
    """[(start, end)] of positions: 0 to 64, then to twice as many each time, up to `tokens`."""
    ends = [0, first]
    while ends[-1] < tokens:
        ends.append(min(tokens, 2 * ends[-1]))
    return list(itertools.pairwise(ends))
