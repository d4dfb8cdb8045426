"""Mistakes that cases exist for: what square tiles hide, and what scores hide that are all near zero."""

import pytest

from grader.registry import EVERY
from grader.result import Outcome
from grader.tests.support import grade_text, solution, thorough_but

SIZES = {id: [case.name for case in EVERY[id].cases if case.tiles] for id in ("p3", "p4", "p5", "p6", "p7")}
SIZES["x1"] = ["tiles of 32 x 64", "tiles of 16 x 32", "tiles of 128 x 64"]
OWN = "TILES_INTERPRETER = (64, 32, 4, 1)"
SQUARE = "TILES_INTERPRETER = (32, 32, 4, 1)"

KEYS_END = "k_end = tl.minimum(q_start + BLOCK_Q, N)"
OLDEST = "oldest_for_all = tl.maximum(0, q_start + BLOCK_Q - window_size)"
BITS = "(BLOCK_Q * (BLOCK_K // 32))"
CAUSAL = "k_pos[None, :] <= q_pos[:, None]"
AGE = "q_pos[:, None] - k_pos[None, :]"
# Words of a solution, what stands there instead; each is right in shape where tiles are square.
BLOCK_K_FOR_BLOCK_Q = {
    "p3": "triton.cdiv(N, BLOCK_Q)", "p4": KEYS_END, "p5": KEYS_END, "p6": OLDEST, "p7": OLDEST, "x1": BITS,
}  # fmt: skip
MASK_TRANSPOSED = {
    "p3": ("tl.where(k_pos[None, :]", "tl.where(k_pos[:, None]"),
    "p4": (CAUSAL, "k_pos[:, None] <= q_pos[None, :]"), "p5": (CAUSAL, "k_pos[:, None] <= q_pos[None, :]"),
    "p6": (AGE, "q_pos[None, :] - k_pos[:, None]"), "p7": (AGE, "q_pos[None, :] - k_pos[:, None]"),
    "x1": ("row[:, None] >= column[None, :]", "row[None, :] >= column[:, None]"),
}  # fmt: skip
MISTAKES = {
    f"{id} BLOCK_K for BLOCK_Q": (was, was.replace("BLOCK_Q", "BLOCK_K")) for id, was in BLOCK_K_FOR_BLOCK_Q.items()
}
MISTAKES |= {f"{id} transposed mask": pair for id, pair in MASK_TRANSPOSED.items()}
MISTAKES |= {f"{id} wrong axis": ("tl.max(scores, 1)", "tl.max(scores, 0)") for id in SIZES}
PIVOTS = {id: "pivot" if id in ("p6", "p7", "x1") else "new_max" for id in SIZES}
MISTAKES |= {f"{id} no [:, None]": (f"qk_scale - {name}[:, None]", f"qk_scale - {name}") for id, name in PIVOTS.items()}
QUICK = ["p4 BLOCK_K for BLOCK_Q", "x1 transposed mask"]


def with_square_tiles(problem_id):
    source = solution(problem_id)
    assert problem_id == "x1" or OWN in source
    return source.replace(OWN, SQUARE)


@pytest.mark.parametrize("name", thorough_but(QUICK, MISTAKES))
def test_what_square_tiles_hide_is_rejected(name, tmp_path):
    problem_id, (was, now) = name[:2], MISTAKES[name]
    source = with_square_tiles(problem_id)
    assert was in source
    assert_rejected(grade_text(tmp_path, problem_id, source.replace(was, now), SIZES[problem_id], hints=False))


def assert_rejected(results):
    outcomes = {result.outcome for result in results}
    assert outcomes & {Outcome.WRONG, Outcome.UNSAFE, Outcome.CRASHED} and Outcome.GRADER_FAULT not in outcomes


def test_a_case_has_the_tiles_that_it_names_and_the_next_one_the_module_s_own(tmp_path):
    wanted = {"heads interleaved": (70, 16), "scores falling along the keys": (32, 32), "bfloat16": (32, 64)}
    results = grade_text(tmp_path, "p3", with_square_tiles("p3"), names=wanted)
    bands = {result.case: result.facts.picture["visits"]["bands"][0] for result in results}
    assert {name: (band["q"][1] + 1, band["tiles"][0][1] + 1) for name, band in bands.items()} == wanted
    assert "tiles 128 x 16, seed 0" in results[0].description


@pytest.mark.parametrize("tiles", ["None", "(64.0, 32, 4, 1)", "()", "(64,)", "[64, 32, 4, 1]", "{16: (64, 32, 4, 1)}"])
def test_what_is_no_tuple_of_integers_stays(tiles, tmp_path):
    source = solution("p3").replace(OWN, f"TILES_INTERPRETER = {tiles}")
    source = source.replace(
        "return TILES_INTERPRETER", f"assert TILES_INTERPRETER == {tiles}\n        return 64, 32, 4, 1"
    )
    (result,) = grade_text(tmp_path, "p3", source, names=["scores rising along the keys"])
    assert result.outcome is Outcome.PASSED, result.sentence


def test_a_module_that_hides_its_names_is_no_fault_of_the_grader(tmp_path):
    source = solution("p3") + '\nimport sys\nsys.modules[__name__] = type("Odd", (), {"__getattr__": None})()\n'
    (result,) = grade_text(tmp_path, "p3", source, names=["scores rising along the keys"])
    assert result.outcome is Outcome.PASSED, result.sentence


HIDE = {
    "p1": 'scores = scores.masked_fill(future, float("-inf"))',
    "p2": 'scores = scores.masked_fill(k_pos > q_pos, float("-inf"))',
    "p3": 'scores = tl.where(k_pos[None, :] < N, scores, float("-inf"))',
} | dict.fromkeys(("p4", "p5", "p6", "p7"), 'scores = tl.where(visible, scores, float("-inf"))')
PIVOT = {"p3": "new_max", "p4": "new_max", "p5": "new_max", "p6": "pivot", "p7": "pivot"}
STEEP = [
    "causal", "causal, ragged", "scores rising along the keys", "rows of very different size",
    "all scores below -10000",
]  # fmt: skip


def masked_after_exp(problem_id):
    """{words of the solution: what stands there instead}: hidden probabilities are 0, after the maximum was taken."""
    hide = HIDE[problem_id]
    if problem_id == "p1":
        p = "p = torch.exp(scores - row_max)"
        return {hide: "pass", p: f"{p}\n    p = p.tril() if is_causal else p"}
    if problem_id == "p2":
        p = "p = torch.exp(scores - new_max)"
        return {hide: "pass", p: f"{p}\n            p = p.masked_fill(k_pos > q_pos, 0.0) if is_causal else p"}
    p = f"p = tl.exp2(scores * qk_scale - {PIVOT[problem_id]}[:, None])"
    visible = "k_pos[None, :] < N" if problem_id == "p3" else "visible"
    return {hide: "pass", p: f"{p}\n        if MASKED:\n            p = tl.where({visible}, p, 0.0)"}


def masked_with(score):
    """The same with hidden scores of this number, as they are when they have been scaled."""

    def change(problem_id):
        value = str(score) if problem_id in ("p1", "p2") else f"{score} * 1.4427 / qk_scale"
        return {HIDE[problem_id]: HIDE[problem_id].replace('float("-inf")', value)}

    return change


CHANGES = {"after exp": masked_after_exp, "with -100": masked_with(-100.0), "with -10000": masked_with(-10000.0)}


@pytest.mark.parametrize("change", thorough_but(["after exp", "with -10000"], CHANGES))
@pytest.mark.parametrize("id", thorough_but(["p2"], HIDE))
def test_a_mask_that_only_small_scores_forgive_is_rejected(id, change, tmp_path):
    source = solution(id)
    for was, now in CHANGES[change](id).items():
        assert was in source
        source = source.replace(was, now)
    names = [case.name for case in EVERY[id].cases if case.name in STEEP]
    assert_rejected(grade_text(tmp_path, id, source, names, hints=False))


@pytest.mark.parametrize(("keys", "outcome"), [(256, Outcome.PASSED), (4096, Outcome.WASTEFUL)])
def test_what_is_held_of_a_query_may_not_grow_with_the_row(keys, outcome, tmp_path):
    source = solution("p2").replace("BLOCK_Q, BLOCK_K = 64, 64", f"BLOCK_Q, BLOCK_K = 64, {keys}")
    (result,) = grade_text(tmp_path, "p2", source, names=["long row"])
    assert result.outcome is outcome, result.sentence
    grows = "Of one query the program holds 21.1 times as many elements on a row of 8195 tokens as on one of 259"
    assert (grows in result.sentence) is (outcome is Outcome.WASTEFUL)
    assert ("each tensor that a name still holds, also from the last iteration" in result.sentence) is bool(
        result.sentence
    )
