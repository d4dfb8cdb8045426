"""A trusted child: what it replies, how its end is told, and that nothing of it is left."""

import sys
import time

import pytest

from grader.core.sandbox.child import NO_REPLY, CannotStart, Died, TimedOut, TrustedChild
from grader.tests.support import running

ECHO = "import json, sys\nfor line in sys.stdin:\n    print(json.dumps({'said': json.loads(line)}), flush=True)\n"


def child(code, **options):
    return TrustedChild([sys.executable, "-c", code], **options)


def test_a_request_has_its_reply():
    with child(ECHO) as echo:
        assert [echo.call({"n": n, "text": "x" * 100_000}, 20)["said"]["n"] for n in range(3)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("import time; time.sleep(60)", TimedOut, "no result within 1 s"),
        ("import sys; sys.exit('no GPU here')", Died, "ended with exit status 1 (no GPU here)"),
        ("import os; os.kill(os.getpid(), 9)", Died, "was killed by SIGKILL"),
        ("print('no JSON', flush=True); input()", Died, NO_REPLY),
        ("print('[1]', flush=True); input()", Died, NO_REPLY),
    ],
)
def test_a_child_without_a_reply_says_why(code, kind, words):
    with child(code) as failing, pytest.raises(kind) as failed:
        failing.call({}, 1)
    assert str(failed.value) == words


def test_a_program_that_is_not_there_is_one_sentence():
    with pytest.raises(CannotStart, match="/no/such/program cannot be started: No such file"):
        TrustedChild(["/no/such/program"])


def test_the_end_takes_descendants_with_it():
    with child("import subprocess; subprocess.Popen(['sleep', '604.25']); input()"):
        time.sleep(1)
    assert not running("sleep 604.25")


def test_a_child_may_end_what_it_has_begun(tmp_path):
    done = tmp_path / "done"
    code = f"import sys, pathlib\nsys.stdin.read()\npathlib.Path({str(done)!r}).write_text('done')"
    orderly = child(code)
    orderly.close(grace=20)
    assert done.read_text("utf-8") == "done"


def test_of_a_flood_the_beginning_and_the_end_are_kept():
    with child("print('first'); print('x' * 10_000_000); print('last')", replies=False) as flood:
        assert flood.wait(20) == 0
        assert flood.output.last_line() == "last"
        printed = flood.output.take()
    assert printed.startswith("first") and "more bytes not shown" in printed and len(printed) < 5000
