"""What a submission tries against the machine, the grader and its own process, and what comes of it.

Each attack is tried in both forms: inside bubblewrap, and with the plain limits that are left where it is missing.
"""

import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from grader.core.protocol.messages import Call, Record, RecorderSetup, RunnerSetup
from grader.core.sandbox import bubblewrap, cgroup, pool, scratch, server
from grader.core.sandbox.child import NO_REPLY, Died
from grader.core.sandbox.sandboxed_child import SandboxedChild
from grader.core.sandbox.scratch import Folder, Scratch
from grader.course.problem import SECONDS_PER_CASE
from grader.result import Outcome
from grader.tests.support import (
    OWN_RECORDERS,
    ROOT,
    below,
    grade_text,
    running,
    said,
    share_recorders,
    solution,
    thorough,
    thorough_but,
)

BUBBLEWRAP, PLAIN = "bubblewrap", "plain"
FORMS = thorough_but([PLAIN if bubblewrap.find_obstacle() else BUBBLEWRAP], [BUBBLEWRAP, PLAIN])
in_bubblewrap = pytest.mark.parametrize("form", [BUBBLEWRAP], indirect=True)  # no plain limit protects this
# Plain limits protect this where a child can be another user than the grader, who may then not read its Python.
PLACE = Path(tempfile.gettempdir())  # of the submissions here: pytest's own folder in it is closed to other users
READ = [PLACE, sys.prefix, sys.base_prefix, *server.KINDS["recorder"].folders]
OTHER_USER = bubblewrap.may_be_another_user(READ, False)
between_users = pytest.mark.parametrize("form", FORMS if OTHER_USER else [BUBBLEWRAP], indirect=True)
not_as_root = pytest.mark.parametrize("form", FORMS if OTHER_USER or os.geteuid() else [BUBBLEWRAP], indirect=True)
BODY = "def naive_attention(q, k, v, is_causal=False):\n"
CASE = ["one token"]


@pytest.fixture(scope="module")
def rooms():
    """A folder for each form, all of whose submissions share a sandbox process with little memory."""
    before, usual = pool.start, server.KINDS["recorder"]
    folders = {form: Path(tempfile.mkdtemp(prefix=f"{form}-", dir=PLACE)) for form in (BUBBLEWRAP, PLAIN)}
    for folder in folders.values():
        folder.chmod(0o755)
    pool.start = share_recorders(folders.values())
    server.KINDS["recorder"] = replace(usual, memory_bytes=2 << 30, scratch_bytes=256 << 20)
    yield folders
    pool.start = before
    server.KINDS["recorder"] = usual
    for folder in folders.values():
        shutil.rmtree(folder)


@pytest.fixture(params=FORMS)
def form(request, rooms, monkeypatch):
    if request.param == PLAIN:
        monkeypatch.setenv(bubblewrap.SWITCH, "none")
    elif why := bubblewrap.find_obstacle():
        pytest.skip(why)
    return request.param


@pytest.fixture
def attempt(form, rooms, tmp_path, monkeypatch):
    """Grade P1's solution with these lines at the beginning of its function, or of its module."""
    folder = rooms[form] / tmp_path.name
    folder.mkdir(mode=0o755)
    monkeypatch.setitem(SECONDS_PER_CASE, "cpu", 30.0)

    def grade(lines, at_top="", right=True, names=CASE):
        source = solution("p1") if right else BODY + "    return q * 0, q[..., 0].float()\n"
        start = source.index("(", source.index("def naive_attention"))
        body = source.index(":\n", start) + 2
        if source[body:].lstrip().startswith('"""'):
            body = source.index('"""', source.index('"""', body) + 3) + 4
        inside = "".join(f"    {line}\n" for line in lines.splitlines())
        results = grade_text(folder, "p1", at_top + "\n" + source[:body] + inside + source[body:], names=names)
        return results[0] if names == CASE else results

    grade.folder = folder
    return grade


# What it can see ------------------------------------------------------------------------------------------------------

HOME = Path(os.path.expanduser("~"))
HIDDEN = {
    "the solutions": ROOT / "solutions" / "p1_naive_attention.py",
    "the grader's sources": ROOT / "grader" / "engine" / "grading.py",
    "the runner's sources": ROOT / "grader" / "core" / "run" / "replay.py",
    "the home folder": next((place for place in HOME.glob(".*rc") if place.is_file()), HOME),
    "the passwords": Path("/etc/shadow"),
    "the repository's history": ROOT / ".git",
}


@in_bubblewrap
def test_what_is_hidden_is_not_there(form, attempt):
    assert all(place.exists() for place in HIDDEN.values())
    places = {what: str(place) for what, place in HIDDEN.items()}
    result = attempt(f"import os\nraise ValueError([w for w, p in {places}.items() if os.access(p, os.R_OK)])")
    assert result.outcome is Outcome.CRASHED and "`: []" in result.sentence, result


@in_bubblewrap
def test_results_are_not_there(form, attempt, tmp_path):
    results = tmp_path / "results.json"
    results.write_text("{}", "utf-8")
    result = attempt(f"open({str(results)!r}, 'w').write('100 points')")
    assert "FileNotFoundError" in result.sentence and results.read_text("utf-8") == "{}"


@in_bubblewrap
def test_nothing_else_of_the_folder_above_is_there(form, attempt):
    folders = [str(ROOT / "grader"), str(ROOT / "grader" / "core")]
    result = attempt(f"import os\nraise ValueError([sorted(os.listdir(folder)) for folder in {folders}])")
    assert "[['core'], ['protocol', 'record', 'worker']]" in result.sentence, result.sentence


@between_users
def test_the_submission_is_read_only(form, attempt):
    result = attempt("open(__file__, 'a').write('# more')")
    assert result.outcome is Outcome.CRASHED
    assert not (attempt.folder / "p1_naive_attention.py").read_text("utf-8").endswith("# more")
    assert "Read-only" in result.sentence or "Permission denied" in result.sentence


@in_bubblewrap
def test_the_grader_is_not_seen_and_cannot_be_killed(form, attempt):
    result = attempt(f"import os\nos.kill({os.getpid()}, 9)")
    assert "ProcessLookupError" in result.sentence
    result = attempt("import os\nraise ValueError([n for n in os.listdir('/proc') if n.isdigit()])")
    assert len(result.sentence.split("[")[-1].split(",")) <= 4, result.sentence


@in_bubblewrap
def test_there_is_no_network(form, attempt):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        result = attempt(f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 2)")
    assert result.outcome is Outcome.CRASHED and "refused" in result.sentence.lower(), result.sentence


@not_as_root
def test_it_is_not_root(form, attempt):
    result = attempt("import os\nraise ValueError('root: %s' % (0 in os.getresuid() + os.getresgid()))")
    assert "root: False" in result.sentence, result.sentence


def test_its_environment_is_small(form, attempt, monkeypatch):
    monkeypatch.setenv("A_TOKEN", "secret")
    result = attempt("import os\nraise ValueError(sorted(os.environ))")
    assert "A_TOKEN" not in result.sentence and "TRITON_CACHE_DIR" in result.sentence


# The sandbox process ------------------------------------------------------------------------------------------------


# A call is made in a child of the child that the sandbox process forked.
WARM = "os.getppid()"


def test_the_warm_process_cannot_be_killed(form, attempt):
    """Where it can be, as the same user without a sandbox, that is the submission's fault and costs no other case."""
    lines = (
        f"if q.shape[2] == 1:\n    import os, time\n    try: os.kill({WARM}, 9)\n    except OSError: pass\n"
        "    time.sleep(1)\n    raise ValueError('lives')"
    )
    results = attempt(lines, names=["one token", "whole tiles"])
    outcomes = {result.case: result for result in results}
    assert outcomes["one token"].outcome is Outcome.CRASHED and outcomes["whole tiles"].outcome is Outcome.PASSED
    if form == BUBBLEWRAP:
        assert "lives" in outcomes["one token"].sentence


def test_who_kills_the_warm_process_and_itself_has_crashed(form, attempt):
    lines = f"if q.shape[2] == 1:\n    import os\n    os.kill({WARM}, 9)\n    os._exit(0)"
    results = attempt(lines, names=["one token", "whole tiles"])
    assert {result.case: result.outcome for result in results} == {
        "one token": Outcome.CRASHED, "whole tiles": Outcome.PASSED,
    }  # fmt: skip


@not_as_root
def test_the_warm_process_cannot_be_traced(form, attempt):
    lines = (
        f"import ctypes, os\nlibc, warm = ctypes.CDLL(None, use_errno=True), {WARM}\n"
        "attached = libc.ptrace(16, warm, None, None)\n"
        "try: read = bool(open('/proc/%d/mem' % warm, 'rb'))\nexcept OSError: read = False\n"
        "raise ValueError('traced: %s, read: %s' % (attached == 0, read))"
    )
    assert "traced: False, read: False" in attempt(lines).sentence


# What it leaves behind ------------------------------------------------------------------------------------------------

LINGER = {
    "a child": "subprocess.Popen(['sleep', '{}'])",
    "a session of its own": "subprocess.Popen(['sleep', '{}'], start_new_session=True)",
    "a daemon": "subprocess.run(['sh', '-c', 'setsid setsid sleep {} >/dev/null 2>&1 &'], start_new_session=True)",
    "a double fork": (
        "pid = os.fork()\nif pid == 0:\n    os.setsid()\n    if os.fork() == 0: os.execvp('sleep', ['sleep', '{}'])\n"
        "    os._exit(0)\nos.waitpid(pid, 0)"
    ),
    "one that ignores signals": (
        "subprocess.Popen(['sleep', '{}'], preexec_fn=lambda: [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)])"
    ),
}


@pytest.mark.parametrize("how", thorough_but(["a child", "a daemon"], LINGER))
@pytest.mark.parametrize("ending", [thorough(""), "os._exit(3)", thorough("while True: pass")])
def test_no_process_is_left(how, ending, form, attempt, monkeypatch):
    monkeypatch.setitem(SECONDS_PER_CASE, "cpu", 1.5 if ending.startswith("while") else 60.0)
    seconds = f"7{list(LINGER).index(how)}{len(form)}.{len(ending)}{os.getpid()}"
    result = attempt(f"import os, signal, subprocess\n{LINGER[how].format(seconds)}\n{ending}")
    expected = {"": Outcome.PASSED, "os._exit(3)": Outcome.CRASHED, "while True: pass": Outcome.TIMED_OUT}[ending]
    assert result.outcome is expected, result
    assert not running(f"sleep {seconds}")


# Bombs ----------------------------------------------------------------------------------------------------------------


def test_a_fork_bomb(form, attempt, monkeypatch):
    limited = "pids" in pool.serving("record", attempt.folder).group.held
    if form == PLAIN and not limited and not OTHER_USER and os.geteuid() == 0:
        pytest.skip("root's processes are limited by a control group alone, and none can be made here")
    monkeypatch.setitem(SECONDS_PER_CASE, "cpu", 2.0)
    sandbox = pool.serving("record", attempt.folder)
    before = len(below(sandbox.process.pid))
    result = attempt("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass")
    assert result.outcome in (Outcome.TIMED_OUT, Outcome.CRASHED), result
    for _ in range(300):
        if len(below(sandbox.process.pid)) <= before:
            break
        time.sleep(0.1)
    else:
        pytest.fail("the bomb goes on")
    monkeypatch.setitem(SECONDS_PER_CASE, "cpu", 60.0)
    assert attempt("").outcome is Outcome.PASSED


def share_of_a_core(seconds=1.0):
    """How much of a core this process gets."""
    wall, own = time.perf_counter(), time.process_time()
    while time.perf_counter() < wall + seconds:
        pass
    return (time.process_time() - own) / (time.perf_counter() - wall)


@pytest.mark.thorough
def test_a_process_bomb_takes_the_cores_of_nobody(form, attempt, monkeypatch):
    if "cpu" not in pool.serving("record", attempt.folder).group.held:
        pytest.skip("no control group of the cores can be made here")
    monkeypatch.setitem(SECONDS_PER_CASE, "cpu", 3.0)
    alone, bomb = share_of_a_core(0.3), "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    grading = threading.Thread(target=attempt, args=(bomb,))
    grading.start()
    time.sleep(1.2)
    beside = share_of_a_core()
    grading.join()
    assert beside > 0.25 * alone, "of 64 busy processes each would have a thirtieth of a core"


@pytest.mark.parametrize(
    "take",
    [
        "bytearray(b'x') * (1 << 26)",
        thorough("__import__('torch').ones(1 << 24)"),
        thorough("__import__('mmap').mmap(-1, 1 << 26)"),
    ],
    ids=["bytes", "tensors", "shared pages"],
)
def test_a_memory_bomb(take, form, attempt, monkeypatch):
    monkeypatch.setitem(SECONDS_PER_CASE, "cpu", 30.0)
    fill = "kept[-1][::4096] = b'x' * len(kept[-1][::4096])" if "mmap" in take else "pass"
    result = attempt(f"kept = []\nwhile True:\n    kept.append({take})\n    {fill}")
    assert result.outcome is Outcome.CRASHED, result
    assert any(words in result.sentence for words in ("2 GiB of memory", "MemoryError", "allocate memory")), (
        result.sentence
    )
    assert attempt("").outcome is Outcome.PASSED


def test_a_huge_file(form, attempt):
    result = attempt("with open('big', 'wb') as file: file.truncate(2 << 30)")
    assert result.outcome is Outcome.CRASHED and "File too large" in result.sentence


@in_bubblewrap
def test_many_files(form, attempt):
    lines = "import itertools, time\nfor n in itertools.count():\n    open(str(n), 'wb').write(bytes(1 << 24))"
    result = attempt(lines + "\n    time.sleep(0.02)")
    assert result.outcome is Outcome.CRASHED and "No space left on device" in result.sentence, result
    left = os.listdir(pool.serving("record", attempt.folder).scratch.descriptor)
    assert not [name for name in left if name.startswith("case-")]


@in_bubblewrap
@pytest.mark.parametrize("keep", ["open", "mapped"])
def test_files_without_a_name_are_counted(keep, form, attempt):
    lines = "import mmap, os, time\nkept = []\nwhile True:\n    file = open('x', 'w+b'); os.unlink('x')\n"
    lines += "    file.write(bytes(1 << 25)); file.flush(); time.sleep(0.02)\n"
    before = shutil.disk_usage(PLACE).free
    result = attempt(lines + f"    kept.append({'file' if keep == 'open' else 'mmap.mmap(file.fileno(), 1 << 25)'})")
    said = ("No space left on device", "memory")
    assert result.outcome is Outcome.CRASHED and any(words in result.sentence for words in said), result
    assert before - shutil.disk_usage(PLACE).free < 1 << 28


HIDING = {
    "deep": "top = os.getcwd()\nfor _ in range(100): os.mkdir('d' * 99); os.chdir('d' * 99)\nos.chdir(top)",
    "closed": "os.mkdir('closed'); os.mkdir('closed/inner'); open('closed/inner/file', 'w'); os.chmod('closed', 0)",
}


@pytest.mark.parametrize("how", thorough_but(["closed"], HIDING))
def test_a_folder_that_nobody_can_look_into_is_removed(how, form, attempt):
    result = attempt(f"import os, time\n{HIDING[how]}\ntime.sleep(1.2)")
    assert result.outcome is Outcome.PASSED, result
    left = os.listdir(pool.serving("record", attempt.folder).scratch.descriptor)
    assert not [name for name in left if name.startswith("case-")]


@pytest.mark.thorough
def test_files_without_end_end_with_the_case(form, attempt, monkeypatch):
    monkeypatch.setattr(scratch, "REMOVE_SECONDS", 0.2)
    monkeypatch.setitem(SECONDS_PER_CASE, "cpu", 3.0)
    result = attempt("import itertools, os\nfor n in itertools.count(): os.close(os.open(str(n), os.O_CREAT))")
    assert "no result within" in result.sentence, result


def test_a_flood_of_output(form, attempt):
    result = attempt("import os\nfor n in range(4000): os.write(1, b'x' * 65536)\nraise ValueError('done')")
    assert "done" in result.sentence and len(result.printed) < 9000 and "more bytes not shown" in result.printed


@pytest.mark.thorough
@pytest.mark.parametrize("wait", ["import time; time.sleep(1e6)", "while True: pass"])
def test_waiting_forever(wait, form, attempt, monkeypatch):
    monkeypatch.setitem(SECONDS_PER_CASE, "cpu", 1.0)
    assert attempt(wait).outcome is Outcome.TIMED_OUT


# Replies and files that are not the worker's --------------------------------------------------------------------------

FORGED = '{"status": "returned", "seconds": 0.1, "several": true, "outputs": []}'


JUNK = (f"b'{FORGED}\\n'", f"b'{FORGED}'", "b'[]\\n'", "b'\\xff\\n'", "b'{}\\n'")


@pytest.mark.parametrize("what", thorough_but(JUNK[:1], JUNK))
def test_writing_to_every_descriptor_earns_nothing(what, form, attempt):
    """A recorder is believed in nothing: what it forges is no program."""
    lines = f"import os\nfor n in range(3, 1024):\n    try: os.write(n, {what})\n    except OSError: pass\nos._exit(0)"
    assert attempt(lines).outcome is Outcome.CRASHED
    assert attempt("").outcome is Outcome.PASSED


def test_a_flood_of_the_channel(form, attempt, monkeypatch):
    monkeypatch.setitem(SECONDS_PER_CASE, "cpu", 30.0)
    for junk in ("b'x' * 65536", "(b'x' * 64 + b' ') * 1000"):
        lines = (
            f"import os\nwhile True:\n  for n in range(3, 900):\n    try: os.write(n, {junk})\n    except OSError: 0"
        )
        result = attempt(lines)
        assert result.outcome is Outcome.CRASHED and NO_REPLY in result.sentence, result


def test_stdout_is_no_channel(form, attempt):
    result = attempt(f"print('{FORGED}', flush=True)", right=False)
    assert result.outcome is Outcome.WRONG and "returned" in result.printed


@pytest.mark.parametrize("ending", ["os._exit(0)", "raise SystemExit(0)", thorough("os.kill(os.getpid(), 9)")])
def test_atexit_and_finalizers(ending, form, attempt):
    lines = (
        "import atexit, os, weakref\n"
        f"def forge():\n    for n in range(1024):\n        try: os.write(n, b'{FORGED}\\n')\n"
        "        except OSError: pass\n"
        f"atexit.register(forge); weakref.finalize(q, forge)\n{ending}"
    )
    assert attempt(lines, right=False).outcome is Outcome.CRASHED


def test_closing_all_descriptors(form, attempt):
    assert attempt("import os\nos.closerange(0, 1024)").outcome is Outcome.CRASHED


@pytest.mark.parametrize("target", [thorough("/dev/null"), "a file that is there", thorough("elsewhere")])
def test_the_file_of_the_program_is_no_link(target, form, attempt):
    kept = attempt.folder / "kept"
    kept.write_text("of somebody else", "utf-8")
    kept.chmod(0o666)
    target = str(kept) if target == "a file that is there" else target
    result = attempt(f"import os\nos.path.islink('program.json') or os.symlink({target!r}, 'program.json')")
    assert result.outcome is Outcome.CRASHED and "program.json" in result.sentence, result
    assert kept.read_text("utf-8") == "of somebody else"


@pytest.mark.parametrize("there", ["a link", "a folder", "a pipe", "nothing", "another size", "too much", "the file"])
def test_a_file_that_was_exchanged_is_not_read(there, tmp_path):
    (tmp_path / "secret").write_text("four", "utf-8")
    scratch = Scratch(os.open(tmp_path, os.O_RDONLY), tmp_path, None)
    folder = Folder(scratch)
    path = Path(folder.path) / "outputs.bin"
    leave = {
        "a link": lambda: path.symlink_to(tmp_path / "secret"),
        "a folder": path.mkdir,
        "a pipe": lambda: os.mkfifo(path),
        "nothing": lambda: None,
        "another size": lambda: path.write_text("six", "utf-8"),
        "too much": lambda: path.write_text("fives", "utf-8"),
        "the file": lambda: path.write_text("four", "utf-8"),
    }
    leave[there]()
    if there == "the file":
        assert folder.take("outputs.bin", 4, 4) == b"four"
    else:
        with pytest.raises(Died) as failed:
            folder.take("outputs.bin", 4, None if there == "too much" else 4)
        assert "outputs.bin" in str(failed.value)
    folder.remove()
    scratch.close()
    assert sorted(os.listdir(tmp_path)) == ["secret"]


def test_what_the_grader_writes_follows_no_link(form, rooms, tmp_path):
    mine, folder = tmp_path / "mine", rooms[form] / tmp_path.name
    mine.write_text("mine", "utf-8")
    tmp_path.chmod(0o777)
    mine.chmod(0o666)
    folder.mkdir(mode=0o755)
    (folder / "module.py").write_text(
        f"import os\nos.symlink({str(mine)!r}, 'lists.bin')\ndef f(q, k, v, **more):\n    return q\n", "utf-8"
    )
    module, tensors = str(folder / "module.py"), ["q", "k", "v"]
    setup = RecorderSetup(device="record", module=module, entry_point="f", tensors=tensors, arguments=[])
    with SandboxedChild(setup, 30, folder) as child:
        assert child.failure is None and "lists.bin" in os.listdir(child.folder.descriptor)
        child.folder.put({"lists.bin": b"of the grader"})
        child.call(Record(Call([])), 30)
        assert child.folder.take("lists.bin", 100) == b"of the grader"
    assert mine.read_text("utf-8") == "mine"


# The runner -----------------------------------------------------------------------------------------------------------


@between_users
def test_the_runner_is_out_of_reach(form, attempt):
    """What it computes is believed: its folders hold the inputs of all submissions."""
    runner = pool.serving("cpu")
    with SandboxedChild(RunnerSetup(device="cpu"), 30) as child:
        child.folder.put({"inputs.bin": b"of the grader"})
        folder = child.folder.path
        numbers = [runner.process.pid, *below(runner.process.pid)]
        assert len(numbers) >= 2 and runner.kind == "runner" and not child.failure
        lines = (
            "import os\nreached = []\n"
            f"for number in {numbers}:\n"
            "    try: os.kill(number, 0); reached.append(number)\n"
            "    except OSError: pass\n"
            f"for place in {[folder, f'{folder}/inputs.bin']}:\n"
            "    try: os.listdir(place) if os.path.isdir(place) else open(place)\n"
            "    except OSError: continue\n"
            "    reached.append(place)\n"
            f"try: open({f'{folder}/more'!r}, 'w'); reached.append('written')\n"
            "except OSError: pass\n"
            "raise ValueError('reached: %s' % reached)"
        )
        result = attempt(lines)
        assert "reached: []" in result.sentence, result.sentence
        assert "more" not in os.listdir(child.folder.descriptor)


def test_two_submissions_share_no_recorder(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "start", OWN_RECORDERS)
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir(mode=0o755)
    try:
        one, other = (pool.serving("record", folder) for folder in folders)
        assert one is not other and pool.serving("record", folders[0]) is one
    finally:
        for folder in folders:
            pool.leave(folder)


# The sandbox itself ---------------------------------------------------------------------------------------------------


def test_new_runners_take_nothing_from_the_children_of_the_old_ones():
    """A fault in one problem must not end what another one, beside it, is at."""
    setup = RunnerSetup(device="cpu")
    with SandboxedChild(setup, 30) as before:
        pool.renew()
        assert before.sandbox.alive() and before.program_names()
        with SandboxedChild(RunnerSetup(device="cpu"), 30) as after:
            assert after.sandbox is not before.sandbox
    assert not before.sandbox.alive() and after.sandbox.alive()
    pool.renew()
    starting = pool._running[pool.start("cpu", None)]
    pool.renew()
    assert pool.serving("cpu") is starting


@pytest.fixture
def notes(tmp_path, monkeypatch):
    """A machine on which nothing was said yet."""
    monkeypatch.delenv(bubblewrap.SWITCH, raising=False)
    monkeypatch.setattr(bubblewrap, "NOTES", tmp_path / "cache" / "notes")
    return bubblewrap.NOTES


def test_a_bubblewrap_that_is_not_there_is_said_once_a_machine_and_for_each_reason(notes, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "apt install bubblewrap" in bubblewrap.find_obstacle()
    assert [bubblewrap.new_warning() for _ in range(2)] == [bubblewrap.WARNING, None]
    monkeypatch.setattr(platform, "node", lambda: "another machine with the same home")
    assert [bubblewrap.new_warning() for _ in range(2)] == [bubblewrap.WARNING, None]
    monkeypatch.setenv(bubblewrap.SWITCH, "none")
    assert [bubblewrap.new_warning() for _ in range(2)] == [bubblewrap.WARNING, None]


def test_where_it_cannot_be_noted_it_is_said_each_time(notes, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    notes.parent.write_text("a file where the folder would be", "utf-8")
    assert [bubblewrap.new_warning() for _ in range(2)] == [bubblewrap.WARNING] * 2
    assert "make doctor" in bubblewrap.WARNING and "\n" not in bubblewrap.WARNING


def test_where_submissions_are_in_a_sandbox_nothing_is_said(notes, monkeypatch):
    monkeypatch.setattr(bubblewrap, "find_obstacle", lambda device: None)
    assert bubblewrap.new_warning() is None and not notes.exists()


def test_a_bubblewrap_that_is_forbidden_is_an_obstacle(tmp_path, notes, monkeypatch):
    tool = tmp_path / "bwrap"
    tool.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n", "utf-8")
    tool.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(tool))
    assert "bubblewrap does not work here: bwrap: No permissions" in bubblewrap.find_obstacle()
    assert bubblewrap.new_warning() == bubblewrap.WARNING


@pytest.mark.thorough
def test_without_it_the_command_grades_and_warns_once(tmp_path):
    command = [sys.executable, "-m", "grader", "grade", "--submission", "solutions", "--problems", "1"]
    command += ["--out", str(tmp_path)]
    environment = os.environ | {bubblewrap.SWITCH: "none", "XDG_CACHE_HOME": str(tmp_path)}
    for warning in (f"{bubblewrap.WARNING}\n", ""):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
        assert done.returncode == 0 and "10 of 10 points" in done.stdout
        assert done.stderr == warning


def test_a_folder_that_holds_the_repository_does_not_show_it():
    words = bubblewrap.show_folders([ROOT.parent, server.FORK_SERVER.parent])
    masked = words.index("--tmpfs")
    assert words.index(str(ROOT.parent)) < masked < words.index(str(server.FORK_SERVER.parent))
    assert words[masked + 1] == str(ROOT)
    assert "--tmpfs" not in bubblewrap.show_folders([ROOT / "solutions", server.FORK_SERVER.parent])


@pytest.mark.thorough
def test_the_folder_of_a_course_is_not_shown_where_a_command_was_started_in_it(tmp_path, monkeypatch):
    """`python -m grader` has the current folder on its path, and a course's has solutions."""
    monkeypatch.setattr(bubblewrap, "HIDDEN", {*bubblewrap.HIDDEN})
    monkeypatch.syspath_prepend(str(tmp_path))
    assert str(tmp_path) in bubblewrap.outside_paths()
    bubblewrap.hide(tmp_path)
    assert str(tmp_path) not in bubblewrap.outside_paths()


def test_a_grader_that_is_killed_leaves_nothing(tmp_path):
    (tmp_path / "p1_naive_attention.py").write_text(
        BODY + "    import subprocess; subprocess.run(['sleep', '603.25'], start_new_session=True)\n", "utf-8"
    )
    command = [sys.executable, "-m", "grader", "grade", "--submission", str(tmp_path), "--problems", "1"]
    command += ["--out", str(tmp_path)]
    if why := bubblewrap.find_obstacle():
        pytest.skip(why)
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(200):
        if len(list(Path("/proc").glob(f"{process.pid}/task"))) and any_sleeps():
            break
        time.sleep(0.1)
    process.kill()
    process.wait()
    assert not running("sleep 603.25")


def test_children_end_with_their_sandbox_process(form, monkeypatch):
    monkeypatch.setattr(cgroup.Group, "kill", lambda group: None)  # where no control group can be made
    runner = pool.serving("cpu")
    with SandboxedChild(RunnerSetup(device="cpu"), 30):
        inside = [runner.process.pid, *below(runner.process.pid)]
        runner.close()
        for _ in range(100):
            if not any(map(is_alive, inside)):
                break
            time.sleep(0.1)
        assert len(inside) >= 2 and not [pid for pid in inside if is_alive(pid)]


def is_alive(pid):
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text(encoding="utf-8").rpartition(") ")[2][0] not in "ZX"


def any_sleeps():
    return any("603.25" in said(place) for place in Path("/proc").glob("[0-9]*/cmdline"))


@pytest.mark.parametrize("files", [[], ["memory.max", "memory.swap.max", "pids.max", "cgroup.kill"]])
def test_a_control_group_holds_what_the_kernel_takes(files, tmp_path, monkeypatch):
    monkeypatch.setattr(cgroup, "find_places", lambda: [tmp_path / "none", tmp_path])
    make = Path.mkdir
    monkeypatch.setattr(Path, "mkdir", lambda folder: [make(folder), *((folder / name).touch() for name in files)])
    group = cgroup.Group(1 << 30, 64)
    written = [(group.folder / name).read_text("utf-8") for name in files]
    assert group.held == ({"memory", "pids"} if files else set()) and bool(group.enter()) == bool(files)
    assert written == [str(1 << 30), "0", "64", ""][: len(files)]
    assert group.memory_kills() == 0 and os.listdir(tmp_path) == [group.folder.name][: len(files)]
    if files:
        (group.folder / "memory.events").write_text("oom 1\noom_kill 2\n", "utf-8")
        group.kill()
        assert group.memory_kills() == 2 and (group.folder / "cgroup.kill").read_text("utf-8") == "1"
