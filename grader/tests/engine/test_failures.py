"""A failure of ours that changes no verdict is logged, counted and told; the tests raise it."""

import pytest

from grader import failures
from grader.kinds.attention import judging
from grader.result import Outcome
from grader.tests.support import ROOT, grade_text, solution

WRONG = solution("p1").replace("1.0 / math.sqrt", "2.0 / math.sqrt")


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """The causes of a wrong output fail; the log lies in `out`."""

    def fail(*args):
        raise LookupError("of a broken catalogue")

    monkeypatch.setattr(judging.wrong_rows, "moved", fail)
    monkeypatch.setattr(judging.causes, "find", lambda *args: [])
    out = tmp_path / "out"
    out.mkdir()
    failures.begin(out)
    yield out
    failures.begin(out)


def test_it_is_raised_where_that_is_asked_for(broken, tmp_path):
    with pytest.raises(LookupError):
        grade_text(tmp_path, "p1", WRONG, ["ragged tail"])


def test_else_it_is_logged_and_counted_and_the_verdict_stands(broken, tmp_path, monkeypatch):
    monkeypatch.setenv(failures.DEBUG, "0")
    (result,) = grade_text(tmp_path, "p1", WRONG, ["ragged tail"])
    assert result.outcome is Outcome.WRONG and "elements" in result.sentence
    log = (broken / failures.LOG).read_text(encoding="utf-8")
    assert failures.counted() == 1 and "LookupError: of a broken catalogue" in log and "in fail" in log
    said = failures.in_words(failures.counted(), broken)
    assert said.startswith("1 explanation failed, and no verdict changed: see ") and said.endswith("out/grader.log")


def test_where_nothing_fails_there_is_no_log_and_no_line(tmp_path):
    failures.begin(tmp_path)
    assert not (tmp_path / failures.LOG).exists() and failures.in_words(failures.counted(), tmp_path) == ""


def test_no_exception_is_swallowed():
    """`except Exception` and suppress(Exception) tell what they catch: by a reply, a sentence, or the log."""
    silent = set()
    for path in (ROOT / "grader").rglob("*.py"):
        text, place = path.read_text(encoding="utf-8"), path.relative_to(ROOT / "grader")
        if (
            place.parts[0] != "tests" and "record" not in place.parts
        ):  # a recorder's exceptions are the submission's own
            silent |= {str(place)} if "suppress(Exception)" in text or "except Exception:" in text else set()
    reported = {"core/machine/report.py"}  # in what it says
    tried = {"core/worker/refusals.py"}  # another way is taken
    assert silent == reported | tried | {"core/worker/fork_server.py"}  # the submission's own sys.stdout
