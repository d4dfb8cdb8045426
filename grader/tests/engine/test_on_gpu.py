"""What a GPU runs beside the machine, with the machine in the GPU's place: which cases, and what is told of them."""

from grader.engine import problem_grader
from grader.engine.case_grader import CaseGrader
from grader.engine.grading import grade
from grader.engine.request import Request
from grader.result import Outcome
from grader.tests.support import EVERY, solution

NAMES = frozenset(["whole tiles", "ragged tail", "bfloat16"])


def test_the_gpu_runs_one_case_of_those_alike_and_tells_what_is_wrong_there_alone(tmp_path, monkeypatch):
    here, there, ran = tmp_path / "here", tmp_path / "there", []
    twice = solution("p3").replace("    o = torch", "    q = q * 2 if q.dtype is torch.bfloat16 else q\n    o = torch")
    for folder, text in ((here, twice), (there, solution("p3").replace("row_sum * alpha", "row_sum"))):
        folder.mkdir()
        (folder / EVERY["p3"].module).write_text(text, "utf-8")

    class OnGpu(CaseGrader):
        def graded(self, case, given=None):
            ran.append(case)
            return super().graded(case, given)

    def make(request, problem, path, device):
        on_gpu = device == "cuda"
        return (OnGpu if on_gpu else CaseGrader)(request, problem, there / path.name if on_gpu else path, "cpu")

    monkeypatch.setattr(problem_grader, "CaseGrader", make)
    results = grade(Request(here, (EVERY["p3"],), NAMES, "cuda", 0), lanes=1)
    assert [case.name for case in ran] == ["whole tiles"]  # "ragged tail" is like it; "bfloat16" is wrong
    outcomes = {result.case: result.outcome for result in results}
    assert outcomes == {name: Outcome.PASSED if name == "ragged tail" else Outcome.WRONG for name in NAMES}
