"""make watch: what failed first is graded alone, before all others, until it passes."""

import argparse

from grader.commands import grade, watch
from grader.engine.request import Request
from grader.registry import PROBLEMS
from grader.result import Aspect, Outcome, Result


def test_what_failed_comes_first_and_alone_until_it_passes(tmp_path, monkeypatch, capsys):
    path, asked = tmp_path / PROBLEMS["p3"].module, []
    outcomes = iter([Outcome.WRONG, Outcome.WRONG, Outcome.PASSED, Outcome.PASSED])

    def run(request, *_):
        asked.append(request.names)
        outcome = next(outcomes, None)
        if outcome is None:
            raise KeyboardInterrupt
        return [Result("p3", "ragged tail", Aspect.CORRECT, outcome)]

    whole = Request(tmp_path, (PROBLEMS["p3"],), None, "cpu", 0)
    monkeypatch.setattr(watch, "build_request", lambda *_: whole)
    monkeypatch.setattr(watch.time, "sleep", lambda _: path.write_text("." * len(asked), "utf-8"))
    monkeypatch.setattr(grade, "run", run)
    assert watch.main(argparse.Namespace(case=None, out=tmp_path, verbose=False)) == 0
    assert asked == [None, {"ragged tail"}, {"ragged tail"}, None, None]
    said = capsys.readouterr().out
    assert said.count(f"watching {path.name}, first the case 'ragged tail': save") == 2
