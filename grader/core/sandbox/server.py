"""The sandbox process: it has imported torch, and a fork server inside for each device forks a child in milliseconds.

Recorders of one submission share one, runners of all submissions another. Inside the sandbox (bubblewrap.py), started
when first needed, gone with the grader: its ends of the sockets close then. It runs no submitted code itself, and its
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
from typing import TypeVar

import msgspec

from grader.core.protocol import control
from grader.core.protocol.messages import Limits, RecorderSetup, RunnerSetup
from grader.core.sandbox import bubblewrap, scratch, system_calls
from grader.core.sandbox.cgroup import Group
from grader.core.sandbox.child import CannotStart
from grader.core.sandbox.scratch import PLACE, Scratch

CORE = Path(__file__).parents[1]
FORK_SERVER = CORE / "worker" / "fork_server.py"
SHARED = ("protocol",)  # packages of the core that every sandbox process imports
START_SECONDS = 60.0  # for a sandbox and a Python to be there
IMPORT_SECONDS = 120.0  # to import torch and triton: slow only on a cold, busy disk
ANSWER_SECONDS = 10.0  # to fork, or to say how a child ended
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
        return [FORK_SERVER.parent, *(CORE / room for room in (*self.packages, *SHARED))]


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


class SandboxServer:
    """The sandbox process of the devices that share it. Its methods raise CannotStart where it does not answer.

    kind: of KINDS. sockets: {device: our end}. ready: the devices whose fork server has imported what it needs. forked:
    how many children there were; once there was one, the end of the process is the submission's doing, since it runs
    nothing else. disk_folder: where children write without a sandbox.
    """

    def __init__(self, kind: str, submission: Path | None = None) -> None:
        self.kind, self.ready, self.forked, self.closed = kind, set[str](), 0, False
        self.owner = os.getpid()
        what = KINDS[kind]
        self.locks = {device: threading.Lock() for device in what.devices}
        self.device = "cuda" if what.gpu else "cpu"
        self.confined = bubblewrap.find_obstacle(self.device) is None
        self.disk_folder: Path | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.sockets: dict[str, socket.socket] = {}
        self.scratch = Scratch(None, PLACE, None)  # closed
        seen: list[str | Path] = [submission] if submission else []
        if not self.confined:
            seen += [sys.prefix, sys.base_prefix, *what.folders]
        another = bubblewrap.may_be_another_user(seen, self.confined)
        self.uid = random.SystemRandom().choice(bubblewrap.UIDS) if another else None
        self.group = Group(what.memory_bytes, what.processes)
        try:
            if not self.confined:
                self.disk_folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="grade-")))
                self.disk_folder.chmod(0o711)
                descriptor = os.open(self.disk_folder, os.O_RDONLY | os.O_DIRECTORY)
                self.scratch = Scratch(descriptor, self.disk_folder, self.uid)
            process = self.start(submission)
            if self.confined:
                self.scratch = Scratch(self.receive_scratch(process), PLACE, self.uid)
            self.home = self.scratch.new_folder("home")
        except OSError:
            self.close()
            raise

    # Start -----------------------------------------------------------------------------------------------------------

    def start(self, submission: Path | None) -> subprocess.Popen[bytes]:
        what = KINDS[self.kind]
        pairs = {device: socket.socketpair() for device in what.devices}
        self.sockets = {device: ours for device, (ours, _) in pairs.items()}
        theirs = {device: end for device, (_, end) in pairs.items()}
        given = [f"{device}={end.fileno()}" for device, end in theirs.items()]
        place = PLACE if self.confined else str(self.disk_folder)
        private = {name: f"{place}/home" for name in ("HOME", "TMPDIR")} | {"USER": "grade", "LOGNAME": "grade"}
        private |= {"TRITON_CACHE_DIR": f"{place}/home/triton"}
        self.said = tempfile.TemporaryFile()  # noqa: SIM115
        begin = [sys.executable, "-I", "-B", "-u", str(FORK_SERVER), what.role]
        program = [*begin, PLACE if self.confined else "-", *given]
        with bubblewrap.open_filter() as (arguments, descriptors):
            if self.confined:
                seen = [*what.folders, *([submission] if submission else [])]
                inside = bubblewrap.command(self.device, seen, arguments, what.scratch_bytes)
                program = inside + program
            self.process = process = subprocess.Popen(
                self.group.enter() + program, pass_fds=[*(end.fileno() for end in theirs.values()), *descriptors],
                env=environment(self.device) | private, start_new_session=True, stdin=subprocess.DEVNULL,
                stdout=self.said, stderr=subprocess.STDOUT, cwd="/", preexec_fn=system_calls.prepare(self.confined),
            )  # fmt: skip
        for end in theirs.values():
            end.close()
        return process

    def receive_scratch(self, process: subprocess.Popen[bytes]) -> int:
        """The scratch folder's descriptor, from inside; raises CannotStart where none comes."""
        end = next(iter(self.sockets.values()))
        end.settimeout(START_SECONDS)
        try:
            _, descriptors, _, _ = socket.recv_fds(end, 1, 1)
        except OSError:
            descriptors = []
        if not descriptors:
            with contextlib.suppress(subprocess.TimeoutExpired):  # it has ended, with its reason, or it hangs
                process.wait(END_SECONDS)
            words = self.last_words()
            self.close()
            raise CannotStart(f"the sandbox process did not start; {words}")
        os.set_inheritable(descriptors[0], False)
        return descriptors[0]

    def last_words(self) -> str:
        """The last line that the sandbox process printed."""
        self.said.seek(0)
        words = self.said.read().decode(errors="replace").strip().splitlines()
        return words[-1] if words else "it said nothing"

    def start_device(self, device: str) -> None:
        """Wait until the fork server of a device has imported what it needs."""
        with self.locks[device]:
            if device in self.ready:
                return
            try:
                started = self.exchange(device, control.Start(device), control.Started, IMPORT_SECONDS, ())
            except CannotStart as failure:
                raise CannotStart(f"{failure}; {self.last_words()}") from None
            if started.error:
                raise CannotStart(started.error)
            self.ready.add(device)

    # Children --------------------------------------------------------------------------------------------------------

    def fork(self, device: str, setup: RecorderSetup | RunnerSetup, descriptors: list[int]) -> int:
        """A child with these descriptors as requests, output and channel; returns its number inside."""
        self.forked += 1
        return self.ask(device, control.Fork(setup, self.limits()), control.Forked, descriptors=descriptors).pid

    def exit_status(self, device: str, pid: int) -> int | None:
        """The exit status of a child, negative for a signal, or None while it lives."""
        return self.ask(device, control.AskStatus(pid), control.Status).status

    def signal(self, device: str, pid: int, number: int) -> None:
        self.ask(device, control.Signal(pid, int(number)), control.Done)

    def program_names(self, device: str, pid: int) -> list[str]:
        """Names of the programs that run for this child."""
        return self.ask(device, control.AskPrograms(pid), control.Programs).names

    def end_child(self, device: str, pid: int) -> None:
        """Kill a child and all that came of it; where that cannot be done, the sandbox process goes too."""
        try:
            gone = self.ask(device, control.End(pid), control.Ended).gone
        except CannotStart:
            gone = False
        if not gone:
            self.close()

    def limits(self) -> Limits:
        """What a child may take."""
        held = "memory" in self.group.held or KINDS[self.kind].gpu
        others = 0 if self.confined or self.uid is not None or os.geteuid() == 0 else count_tasks(os.getuid())
        kind = KINDS[self.kind]
        return Limits(None if held else kind.memory_bytes, FILE_BYTES, kind.processes + others, FILES, self.uid)

    def ask(
        self, device: str, message: control.ServerRequest, expected: type[T], seconds: float = ANSWER_SECONDS,
        descriptors: Sequence[int] = (),
    ) -> T:  # fmt: skip
        """The answer of a device's fork server, of the type `expected`."""
        if not self.locks[device].acquire(timeout=seconds):
            raise CannotStart(f"the sandbox process did not answer within {seconds:g} s")
        try:
            return self.exchange(device, message, expected, seconds, descriptors)
        finally:
            self.locks[device].release()

    def exchange(
        self, device: str, message: control.ServerRequest, expected: type[T], seconds: float, descriptors: Sequence[int]
    ) -> T:
        end, line = self.sockets[device], msgspec.json.encode(message) + b"\n"
        try:
            socket.send_fds(end, [line], descriptors)
        except OSError as error:
            raise CannotStart(f"the sandbox process takes no requests: {error.strerror}") from None
        answer = b""
        end.settimeout(seconds)
        while not answer.endswith(b"\n"):  # one answer to one question, on a line
            try:
                part = end.recv(1 << 16)
            except TimeoutError:
                raise CannotStart(f"the sandbox process did not answer within {seconds:g} s") from None
            except OSError:
                part = b""
            if not part:
                raise CannotStart("the sandbox process ended")
            answer += part
        try:
            return msgspec.json.decode(answer, type=expected)
        except msgspec.MsgspecError as error:
            raise CannotStart(f"the sandbox process gave another answer: {error}") from None

    # End -------------------------------------------------------------------------------------------------------------

    def alive(self) -> bool:
        if self.process is None:
            return False
        if self.owner != os.getpid():  # a fork has its lane's: only its parent can wait for it
            return not self.closed and os.path.exists(f"/proc/{self.process.pid}")
        return self.process.poll() is None and not self.closed

    def close(self) -> None:
        """Kill all that is inside; without a sandbox, its children end with it. Remove what it wrote.

        In a fork of the process that started it, nothing: others use it too.
        """
        if self.closed:  # by now its number may be another's
            return
        self.closed = True
        if self.owner != os.getpid():
            return
        for end in self.sockets.values():
            end.close()
        if self.process:
            self.end(self.process)
        self.group.close()
        self.scratch.close()
        if self.disk_folder:
            scratch.remove(self.disk_folder.name, self.disk_folder.parent, REMOVE_SECONDS)

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill the sandbox process and all that is inside."""
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        for pid in self.group.processes():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(
            subprocess.TimeoutExpired
        ):  # last: a process that traces it hears of its end before us
            process.wait(ANSWER_SECONDS)


def environment(device: str) -> dict[str, str]:
    """The children's environment: little is inherited."""
    kept = {
        name: value for name, value in os.environ.items() if name in INHERITED or name.startswith(INHERITED_PREFIXES)
    }
    # One thread each: cases run side by side, and a forked child has no threads of its parent's pools.
    kept |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if device != "cuda":
        kept |= {"CUDA_VISIBLE_DEVICES": ""}
    return kept


def count_tasks(uid: int) -> int:
    """How many threads this user runs now: the limit on processes counts them all."""
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == uid:
                count += len(os.listdir(folder / "task"))
    return count
