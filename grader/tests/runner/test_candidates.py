"""The job of the runner that runs candidates: what they do wrong is theirs alone."""

import pytest

from grader.kinds.registry import EVERY, handler_of
from grader.processes.submission import Submission
from grader.tests.support import solution


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """ask(candidates, programs, ...) -> the runner's reply about P3, on two tiles of queries."""
    folder, problem = tmp_path_factory.mktemp("candidates"), EVERY["p3"]
    folder.chmod(0o755)
    (folder / problem.module).write_text(solution("p3"))
    case = next(case for case in problem.cases if case.name == "rows of very different size")
    kind = handler_of(problem, case)
    placed = kind.inputs(case, 0)
    request, files = kind.request(problem, case, placed, "cpu")
    submission = Submission(folder / problem.module, problem, "cpu", 60.0)
    looked = submission.run(request | {"watch": True}, files, op="look")

    def asked(candidates, programs=None, seconds=30.0):
        about = {"inputs": request["inputs"], "candidates": candidates, "programs": programs, "seconds": seconds}
        return submission.run_again({"op": "candidates"} | about)

    asked.looked = looked
    asked.texts = [kernel["source"] for kernel in looked["kernels"]]
    yield asked
    submission.close()


def test_a_program_is_told_with_what_ran_and_the_kinds_of_its_names(ask):
    attend, kernel = ask.looked["kernels"]
    assert (attend["name"], kernel["name"]) == ("attend", "flash_attention_kernel")
    assert (
        ask.looked["kinds"]["attend"] | {"scores": "f2", "new_max": "f1", "k_pos": "i1"}
        == ask.looked["kinds"]["attend"]
    )
    assert attend["line"] + 5 in ask.looked["ran"]
    (launch,) = ask.looked["launches"]
    assert launch["grid"][0] == 2


def test_only_the_rows_of_the_programs_come_back(ask):
    reply = ask([{}, {"programs": [[1, 0, 0]]}, {"programs": []}], [[0, 0, 0]])
    first, second, none = (reply["distinct"][result[0]]["rows"] for result in reply["results"])
    assert none == [] and not set(first) & set(second)
    assert len(first) + len(second) == 70


def test_a_changed_kernel_has_another_output_and_the_same_text_the_same(ask):
    changed = ask.texts[0].replace("tl.exp2(row_max", "tl.exp(row_max")
    renamed = ask.texts[0].replace("alpha", "factor")
    reply = ask([{}, {"kernels": {0: changed}}, {"kernels": {0: renamed}}, {}], [[0, 0, 0]])
    same, other, renamed, again = (result[0] for result in reply["results"])
    assert same == renamed == again != other


def test_what_a_candidate_does_wrong_is_its_own_failure(ask):
    def changed(was, now):
        assert was in ask.texts[0]
        return {"kernels": {0: ask.texts[0].replace(was, now)}}

    reply = ask([
        changed("K + k_pos", "K + 100000 + k_pos"),
        changed("range(start, end, BLOCK_K)", "range(start, end + 100000000, BLOCK_K)"),
        changed("d = tl.arange(0, q.shape[1])", "d = open('/etc/passwd')"),
        changed("d = tl.arange(0, q.shape[1])", "import os"),
        changed("d = tl.arange(0, q.shape[1])", "d = ("),
        {"launches": {0: {"args": {"O": ask.looked["launches"][0]["args"]["K"]}}}},
        {},
    ])  # fmt: skip
    *failed, whole = reply["results"]
    assert all(isinstance(each, str) for each in failed), failed
    assert whole[1] == reply["loaded"] > 0


def test_the_time_is_the_end_of_it(ask):
    assert ask([{}] * 50, seconds=0.0)["results"] == []
