"""P2's lesson: what is held at once, and how often scores are computed."""

from grader.result import Outcome

TWO_PASSES = 2.5  # multiply-adds for each of a score; q k^T is one, p v is another
KEYS_AT_ONCE = 256  # of a row, or of all queries, where the online softmax is the lesson
COUNTED = (
    "Counted is each tensor that still has a name, those of the tile before too until the names are given anew, and "
    "each part of an expression while it is computed"
)


def judge_memory(case, reply):
    """(outcome, sentence, facts) on what was held at once, where the whole score matrix may not be."""
    limit, whole = case.N * KEYS_AT_ONCE, case.N * case.num_keys
    facts = {"largest_tensor": reply["largest"], "peak_elements": reply["peak"], "limit": limit}
    if reply["largest"] > limit:
        sentence = (
            f"A tensor of {reply['largest']} elements was made: more than {KEYS_AT_ONCE} keys of every query. The "
            f"whole score matrix has {whole} ({case.N} x {case.num_keys}). Keep one tile of it at a time."
        )
        return Outcome.WASTEFUL, sentence, facts
    if reply["peak"] >= whole:
        sentence = (
            f"{reply['peak']} elements were alive at once; the whole score matrix has {whole}. {COUNTED}. Take smaller "
            "tiles, or let go of each (`del`) when its part is added up."
        )
        return Outcome.WASTEFUL, sentence, facts
    products, once = reply["volume"]["products"], case.B * case.Hq * whole * case.D
    if not case.causal and products > TWO_PASSES * once:
        sentence = (
            f"Scores were computed more than once: {products} multiply-adds where q k^T and p v have {2 * once}. The "
            "online softmax needs one pass over the keys."
        )
        return Outcome.WASTEFUL, sentence, facts
    return Outcome.PASSED, "", facts


def judge_keys_at_once(reply):
    """(outcome, sentence, facts) where one query's scores of too many keys were there at once, else None."""
    if (keys := reply.get("keys_of_a_row", 0)) <= KEYS_AT_ONCE:
        return None
    sentence = (
        f"The scores of {keys} keys of one query were held at once: no online softmax is needed for that. Hold at "
        f"most {KEYS_AT_ONCE}, and bring them together tile by tile. {COUNTED}."
    )
    return Outcome.WASTEFUL, sentence, {"keys_at_once": keys}
