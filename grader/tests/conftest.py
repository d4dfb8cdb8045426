"""The tests' submissions share one recorder's sandbox process, where a class has one for each submission."""

import os
import signal

import pytest

from grader.core.sandbox import bubblewrap, kept, pool
from grader.kinds.attention import answer_cache
from grader.tests.support import share_recorders

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # pytest in the background: what the tests start must hear Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.umask(0o022)  # a child is another user, who is to read what the tests write
os.environ["GRADER_DEBUG"] = "1"  # what changes no verdict and fails is raised
if bubblewrap.find_obstacle():  # the tests' own classes are graded all the same
    os.environ[bubblewrap.SWITCH] = "none"


@pytest.fixture(autouse=True, scope="session")
def one_warm_process(tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    folder.chmod(0o755)
    bubblewrap.NOTES = folder / "notes"  # none of this machine's
    os.environ["XDG_CACHE_HOME"], kept.use = str(folder / "cache"), lambda: None
    pool.start = share_recorders([folder])
    yield
    pool.close_all()


@pytest.fixture(autouse=True, scope="session")
def answers_are_kept():
    """The oracle answers a case once for all tests of a process: they ask the same cases of many submissions."""
    work_out = answer_cache.work_out

    def keep(case, placed):
        return answer_cache.KEPT.setdefault(answer_cache.key_of(case, placed), work_out(case, placed))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answer_cache, "work_out", keep)
        yield


@pytest.fixture(autouse=True)
def readable(request):
    """A child is another user where the tests are run by root."""
    if "tmp_path" in request.fixturenames:
        request.getfixturevalue("tmp_path").chmod(0o755)
