"""The sandbox process: it has imported torch, and its fork server inside forks a child in milliseconds.

Recorders of one submission share one, runners of all submissions another. Inside the sandbox (bubblewrap.py), started
when first needed, gone with the grader: its end of the socket closes then. It runs no submitted code itself, and its
children cannot touch it.
"""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from grader.core.protocol import control
from grader.core.protocol.messages import RecorderSetup, RunnerSetup
from grader.core.sandbox import bubblewrap
from grader.core.sandbox.cgroup import Group
from grader.core.sandbox.child import CannotStart, Child, ChildFailed, describe_exit
from grader.core.sandbox.scratch import PLACE, Folder, Scratch, clear
from grader.core.worker import system_calls

CORE = Path(__file__).parents[1]
FORK_SERVER = CORE / "worker" / "fork_server.py"
IMPORT_SECONDS = 120.0  # to import torch and triton: slow only on a cold, busy disk
ANSWER_SECONDS = 10.0  # to say how a child is, or ended
REMOVE_SECONDS = 60.0  # a folder without a sandbox: what is watched holds no more
END_SECONDS = 0.5  # of a process that is to end by itself
GIB = 1 << 30
FILE_BYTES = 1 * GIB  # of one file
FILES = 1024
# What a child may inherit: enough to find programs, libraries and GPUs.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CC", "VIRTUAL_ENV", "GRADER_DEBUG")
INHERITED_PREFIXES = ("CUDA_", "NVIDIA_", "TRITON_CACHE", "HIP_", "ROCR_")
T = TypeVar("T")


@dataclass(frozen=True)
class SandboxKind:
    """A kind of sandbox process. devices: those that share it. role: the module of the core that answers requests.
    packages: of the core, which it imports. The rest is what a submission may take.

    memory_bytes: of all its processes where a control group can be made, else of each; on a GPU the address space says
    nothing of memory, since CUDA maps far more than there is. scratch_bytes: of the tmpfs to write in.
    """

    devices: tuple[str, ...]
    role: str
    packages: tuple[str, ...]
    gpu: bool
    memory_bytes: int
    scratch_bytes: int
    processes: int

    @property
    def folders(self) -> list[Path]:
        """The folders of the grader that it sees."""
        return [FORK_SERVER.parent, *(CORE / package for package in (*self.packages, "protocol"))]


# "record": a submission's module is loaded; it sees no GPU. "cpu": kernels run in the machine; "compile": they are
# compiled and never run; "cuda": they run on a GPU. "direct": a submission's wrapper is called
# as it is, for its time on the host.
RUNNERS = ("run", "machine")  # packages of the core
KINDS = {
    "recorder": SandboxKind(("record",), "record.recorder", ("record",), False, 8 * GIB, 1 * GIB, 64),
    "runner": SandboxKind(("cpu", "compile"), "run.runner", RUNNERS, False, 8 * GIB, 2 * GIB, 256),
    "gpu runner": SandboxKind(("cuda",), "run.runner", RUNNERS, True, 48 * GIB, 8 * GIB, 256),
    "gpu recorder": SandboxKind(("direct",), "record.recorder", ("record",), True, 48 * GIB, 1 * GIB, 256),
}


class SandboxServer(Child):
    """A sandbox process, which starts at once and imports by itself. Its methods raise CannotStart where it does not
    answer.

    kind: of KINDS. forked: how many children there were; once there was one, the end of the process is the
    submission's doing, since it runs nothing else. living: the numbers of its children. retired: it ends with the last
    of them. disk_folder: where children write without a sandbox.
    """

    def __init__(self, kind: str, submission: Path | None = None) -> None:
        self.kind, self.owner, self.lock = kind, os.getpid(), threading.Lock()
        self.ready = self.retired = self.closed = False
        self.forked, self.living = 0, set[int]()
        what = KINDS[kind]
        self.device = "cuda" if what.gpu else "cpu"
        self.confined = bubblewrap.find_obstacle(self.device) is None
        self.disk_folder = None if self.confined else Path(os.path.realpath(tempfile.mkdtemp(prefix="grade-")))
        seen: list[str | Path] = [submission] if submission else []
        if not self.confined:
            seen += [sys.prefix, sys.base_prefix, *what.folders]
        another = bubblewrap.may_be_another_user(seen, self.confined)
        self.uid = random.SystemRandom().choice(bubblewrap.UIDS) if another else None
        self.group = Group(what.memory_bytes, what.processes)
        self.process: subprocess.Popen[bytes] | None = None
        self.scratch = Scratch(-1, self.place, None)  # closed
        self.socket, theirs = socket.socketpair()
        printed, their_output = os.pipe()
        super().__init__(self.socket.fileno(), self.socket.fileno(), printed)
        try:
            with theirs, open(their_output, "wb") as output:
                self.process = self.start(submission, theirs.fileno(), output)
            self.scratch = self.receive_scratch()
            self.home = Folder(self.scratch, "home")
        except (OSError, CannotStart):
            self.close()
            raise

    # Start -----------------------------------------------------------------------------------------------------------

    @property
    def place(self) -> str:
        """Its folder to write in, as its children see it."""
        return str(self.disk_folder or PLACE)

    def start(self, submission: Path | None, end: int, output: IO[bytes]) -> "subprocess.Popen[bytes]":
        what = KINDS[self.kind]
        inside: list[str] = []
        if self.disk_folder:
            self.disk_folder.chmod(0o711)
        else:
            seen = [*what.folders, *([submission] if submission else [])]
            inside = bubblewrap.command(self.device, seen, what.scratch_bytes)
        calls = "-" if system_calls.missing() else "restrict"
        program = [sys.executable, "-I", "-B", "-u", str(FORK_SERVER), what.role, self.place, str(end), calls]
        home = f"{self.place}/home"
        private = {"HOME": home, "TMPDIR": home, "USER": "grade", "LOGNAME": "grade"}
        return subprocess.Popen(
            [*self.group.enter(), *inside, *program, what.devices[0]], pass_fds=[end], start_new_session=True, cwd="/",
            env=environment(self.device) | private | {"TRITON_CACHE_DIR": f"{home}/triton"}, stdin=subprocess.DEVNULL,
            stdout=output, stderr=output,
        )  # fmt: skip

    def receive_scratch(self) -> Scratch:
        """The scratch folder, whose descriptor comes from inside; raises CannotStart where none comes."""
        self.socket.settimeout(IMPORT_SECONDS)
        descriptors: list[int] = []
        with contextlib.suppress(OSError):
            _, descriptors, _, _ = socket.recv_fds(self.socket, 1, 1)
        if not descriptors:
            raise CannotStart(f"the sandbox process did not start: it {self.how_it_ended()}")
        os.set_inheritable(descriptors[0], False)
        return Scratch(descriptors[0], self.place, self.uid)

    def wait(self) -> None:
        """Wait until the fork server has imported what its first device needs."""
        with self.lock:
            self.ready = self.ready or bool(self.receive(control.Forked, IMPORT_SECONDS))

    # Children --------------------------------------------------------------------------------------------------------

    def fork(self, setup: RecorderSetup | RunnerSetup, descriptors: list[int]) -> int:
        """A child with these descriptors as requests, output and channel; returns its number inside."""
        self.forked += 1
        pid = self.ask(control.Fork(setup, self.limits()), control.Forked, descriptors).pid
        self.living.add(pid)
        return pid

    def look(self, pid: int, number: int | None = None) -> control.Looked:
        """How a child is, after this signal."""
        return self.ask(control.Look(pid, number), control.Looked)

    def end_child(self, pid: int) -> None:
        """Kill a child and all that came of it; where that cannot be done, the sandbox process goes too."""
        try:
            gone = not self.ask(control.Look(pid, end=True), control.Looked).programs
        except CannotStart:
            gone = False
        self.living.discard(pid)
        if not gone or (self.retired and not self.living):
            self.close()

    def retire(self) -> None:
        """End with the last child, which may be another submission's."""
        self.retired = True
        if not self.living:
            self.close()

    def limits(self) -> control.Limits:
        """What a child may take."""
        held = "memory" in self.group.held or KINDS[self.kind].gpu
        others = 0 if self.confined or self.uid is not None or os.geteuid() == 0 else count_tasks(os.getuid())
        kind = KINDS[self.kind]
        return control.Limits(None if held else kind.memory_bytes, FILE_BYTES, kind.processes + others, FILES, self.uid)

    def ask(self, message: control.Fork | control.Look, expected: type[T], descriptors: Sequence[int] = ()) -> T:
        """The fork server's answer, of the type `expected`."""
        seconds = IMPORT_SECONDS if isinstance(message, control.Fork) else ANSWER_SECONDS  # a device's first child
        if not self.lock.acquire(timeout=IMPORT_SECONDS):  # whoever has it waits no longer
            raise CannotStart(f"the sandbox process did not answer within {IMPORT_SECONDS:g} s")
        try:
            socket.send_fds(self.socket, [msgspec.json.encode(message) + b"\n"], descriptors)
            return self.receive(expected, seconds)
        except OSError as error:
            raise CannotStart(f"the sandbox process takes no requests: {error.strerror}") from None
        finally:
            self.lock.release()

    def receive(self, expected: type[T], seconds: float) -> T:
        try:
            answer = msgspec.json.decode(self.receive_line(seconds), type=expected)
        except (ChildFailed, msgspec.MsgspecError) as failure:
            raise CannotStart(f"the sandbox process gave no answer: {failure}") from None
        if why := getattr(answer, "error", ""):
            raise CannotStart(why)
        return answer

    # End -------------------------------------------------------------------------------------------------------------

    def how_it_ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self.process:
                self.process.wait(END_SECONDS)
        return describe_exit(self.process.poll() if self.process else None, self.output.last_line())

    def alive(self) -> bool:
        if self.process is None or self.closed:
            return False
        if self.owner != os.getpid():  # a fork has its lane's: only its parent can wait for it
            return os.path.exists(f"/proc/{self.process.pid}")
        return self.process.poll() is None

    def close(self) -> None:
        """Kill all that is inside; without a sandbox, its children end with it. Remove what it wrote.

        In a fork of the process that started it, nothing: others use it too.
        """
        if self.closed:  # by now its number may be another's
            return
        self.closed = True
        if self.owner != os.getpid():
            return
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # a thread may wait at it still: it is closed when nobody has it
        self.output.close()
        if self.process:
            self.end(self.process)
        self.group.close()
        if self.disk_folder:
            clear(self.scratch.descriptor, REMOVE_SECONDS)
            with contextlib.suppress(OSError):
                self.disk_folder.rmdir()
        self.scratch.close()

    def end(self, process: "subprocess.Popen[bytes]") -> None:
        """Kill the sandbox process and all that is inside."""
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        self.group.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a process that traces it hears of its end before us
            process.wait(ANSWER_SECONDS)


def environment(device: str) -> dict[str, str]:
    """The children's environment: little is inherited."""
    kept = {
        name: value for name, value in os.environ.items() if name in INHERITED or name.startswith(INHERITED_PREFIXES)
    }
    # One thread each: cases run side by side, and a forked child has no threads of its parent's pools.
    kept |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return kept if device == "cuda" else kept | {"CUDA_VISIBLE_DEVICES": ""}


def count_tasks(uid: int) -> int:
    """How many threads this user runs now: the limit on processes counts them all."""
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == uid:
                count += len(os.listdir(folder / "task"))
    return count
