"""P2's lesson: what is held at once, and how often scores are computed."""

from grader.kinds.attention import work
from grader.result import Outcome, Verdict

TWO_PASSES = 2.5  # multiply-adds for each of a score; q k^T is one, p v is another
KEYS_AT_ONCE = 256  # of a query, or of all: more than that is no tile
COUNTED = (
    "The count has each tensor that a name still holds, also from the last iteration, and each part of an expression "
    "while it is computed"
)


def judge(problem, case, answer):
    """The Verdict on what PyTorch holds and multiplies, where a problem asks for tiles."""
    if not problem.memory_cases:
        return Verdict(Outcome.PASSED)
    if grows := work.grows(work.held_by_length([(case, answer), *answer.more])):
        sentence = f"{grows.replace('A program holds', 'Of one query the program holds')} {COUNTED}."
        return Verdict(Outcome.WASTEFUL, sentence)
    if (answer.reply.row_largest or 0) > KEYS_AT_ONCE:
        sentence = (
            f"A tensor holds {answer.reply.row_largest} numbers of one query, and at most {KEYS_AT_ONCE} scores may be "
            "in memory at once: take smaller tiles of keys."
        )
        return Verdict(Outcome.WASTEFUL, sentence)
    if case in problem.memory_cases:
        return judge_memory(case, answer.reply.wrapper)
    return Verdict(Outcome.PASSED)


def judge_memory(case, costs):
    """The Verdict on what was held at once, where the whole score matrix may not be."""
    limit, whole = case.N * KEYS_AT_ONCE, case.N * case.num_keys
    largest = costs.largest
    if largest > limit:
        sentence = (
            f"A tensor of {largest} elements was made: more than {KEYS_AT_ONCE} keys of every query. The "
            f"whole score matrix has {whole} ({case.N} x {case.num_keys}). Keep one tile of it at a time."
        )
        return Verdict(Outcome.WASTEFUL, sentence)
    products, once = costs.multiply_adds, case.B * case.Hq * whole * case.D
    if products > TWO_PASSES * once:
        sentence = (
            f"Scores were computed more than once: {products} multiply-adds where q k^T and p v have {2 * once}. The "
            "online softmax needs one pass over the keys."
        )
        return Verdict(Outcome.WASTEFUL, sentence)
    return Verdict(Outcome.PASSED)
