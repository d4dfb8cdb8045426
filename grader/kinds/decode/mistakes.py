"""What a known mistake of decode is, where it can make a difference, and what a student is asked.

key_mistakes.py and merge_mistakes.py have them: the output with one step otherwise, in words and as the step.
"""

from collections.abc import Callable
from dataclasses import dataclass

MASK = "notebooks/09_decode.ipynb: Which keys a new token sees"
MERGE = "notebooks/09_decode.ipynb: Pieces and their merge"
EMPTY = "notebooks/09_decode.ipynb: A piece that a row does not see"
PAGES = "notebooks/09_decode.ipynb: Pages"
LOGIT = "notebooks/09_decode.ipynb: A learned sink logit"
TILES = (16, 32, 64, 128)  # keys


@dataclass(frozen=True)
class Mistake:
    """words: what the output equals. changes: {step of steps.STEPS or input: function of x}. applies(case): whether it
    can make a difference there. pieces: whether it depends on how long a piece is."""

    words: str
    question: str
    section: str
    changes: dict
    applies: Callable = lambda case: True
    pieces: bool = False


def paged(case):
    return case.page is not None


def windowed(case):
    return case.window is not None and case.window < case.N + case.Nq


def several_new(case):
    return case.Nq > 1


def before_the_first(case):
    """Whether a new token has a negative position."""
    return min(case.lengths) < case.Nq


def several_kv_heads(case):
    return case.Hkv > 1


def several_sequences(case):
    return case.B > 1


def grouped(case):
    return case.group > 1


def has_sinks(case):
    return bool(case.sink)


def new_in_window(case):
    return several_new(case) and windowed(case)


def new_or_window(case):
    return several_new(case) or windowed(case)


WHICH_WINDOW = "how old may a key be: `<` or `<=`? And from which new token is its age counted?"
NEWEST = "at which position is the first new token, at which is the last, and does lengths count them?"
LAST = "keys 0 to length - 1 exist: which is the last key of the last piece?"
CAUSAL = "may a new token see those that are newer?"
OWN = "how old is a token's own key, and may the token see it: `>` or `>=`?"
PAGE = "which entry of block_table has the page of key j, and which row of the page is it?"
CAPACITY = "how many tokens can a sequence have whose row of block_table has so many pages?"
IN_PAGES = "which page has key j, which row of the page is it, and by which stride does each move?"
WEIGHTS = "a piece with a larger sum of exponentials counts more: how much, and what does its lse say of that?"
BASE = "exp2 takes a logarithm in base 2: in which base is the lse that the pieces store?"
WHICH_LSE = "lse is the logarithm of the sum of all exponentials: which two numbers of the online softmax make it?"
ALL_PIECES = "how many pieces does this sequence have, the last, shorter one with them, and which is the first?"
NONE_SEEN = "what does a piece store for a row that sees no key of it, and what does that add in the merge?"
HIDDEN = "the exponential of a hidden score is to be 0, whatever the maximum is: of which number is it exactly 0?"
SINK = "exp(sink) joins the denominator of every row of its own head: once, in base e, and without a value. Where?"
NO_SINK = "what joins the denominator where sink_logits is None: exp(0) is 1, and exp of which number is 0?"
BEGAN = "which number is still what it began with: acc, a sum, or a maximum of -inf, which makes each weight 0?"
WHERE_WINDOW = "where does the window begin: for the mask, for the first key loaded, and for the merged pieces?"
PIVOT = "which number must be taken from every lse, and from the sink logit, so that no exponential overflows?"
GROUP = "query heads h * group to h * group + group - 1 share kv head h: which row of a tile is which head and token?"
WHOSE = "from which number of the grid does this address come?"
WHICH_SCALE = "by what are scores multiplied before the softmax, and how often?"
