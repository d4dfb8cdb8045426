"""The sandbox process: it has imported torch, has a fork server inside for each device, and is watched here.

Recorders of one submission share one, runners of all submissions another. Inside the sandbox (confine.py), started when
first needed, gone with the grader: its ends of the sockets close then. It runs no submitted code itself, and its
children cannot touch it.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from grader.processes import confine, scratch, system_calls, watch
from grader.processes.cgroup import Group
from grader.processes.scratch import PLACE, Scratch

INSIDE = Path(__file__).parent / "inside"
WORKER = INSIDE / "worker.py"
ROOMS = Path(__file__).parent.parent
START_SECONDS = 60.0  # for a sandbox and a Python to be there
ANSWER_SECONDS = 10.0  # to fork, or to say how a child ended
REMOVE_SECONDS = 60.0  # a folder without a sandbox: what is watched holds no more
USAGE_SECONDS = 0.5  # to say what was used, before the end
# What a child may inherit: enough to find programs, libraries and GPUs.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CC", "VIRTUAL_ENV")
INHERITED_PREFIXES = ("CUDA_", "NVIDIA_", "TRITON_CACHE", "HIP_", "ROCR_")

# The devices that share a sandbox process, by its kind. "record": a submission's module is loaded; it sees no GPU.
# "cpu": the interpreter; "compile": kernels are compiled and never run; "cuda": they run on a GPU.
# "direct": a submission's wrapper is called as it is, for its time on the host.
DEVICES = {
    "recorder": ("record",), "runner": ("cpu", "compile"), "gpu runner": ("cuda",), "gpu recorder": ("direct",),
}  # fmt: skip
ROLE = {kind: ROOMS / kind.rpartition(" ")[2] for kind in DEVICES}
GPU = {"gpu runner", "gpu recorder"}
# What a submission may take. Memory: of all its processes where a control group can be made, else of each; on a GPU the
# address space says nothing of memory, since CUDA maps far more than there is.
MEMORY = {"recorder": 8 << 30, "runner": 8 << 30, "gpu runner": 48 << 30, "gpu recorder": 48 << 30}
SCRATCH = {"recorder": 1 << 30, "runner": 2 << 30, "gpu runner": 8 << 30, "gpu recorder": 1 << 30}  # bytes of a tmpfs
PROCESSES = {"recorder": 64, "runner": 256, "gpu runner": 256, "gpu recorder": 256}
FILE_BYTES = 1 << 30  # of one file
FILES = 1024
SPENT = []  # core-seconds of the sandbox processes that are gone, with their children


class ForkServerFailed(Exception):
    """The sandbox process did not start or does not answer."""


class SandboxProcess:
    """The sandbox process of the devices that share it. Raises ForkServerFailed where it does not start.

    kind: of DEVICES. sockets: {device: our end}. answering: the devices whose fork server has been started. forked: how
    many children there were; once there was one, the end of the process is the submission's doing, since it runs
    nothing else. living: the numbers of children that live.
    """

    def __init__(self, kind, submission=None):
        self.kind, self.answering, self.forked, self.living, self.closed = kind, [], 0, set(), False
        self.owner, self.used_before = os.getpid(), {}
        self.device = "cuda" if kind in GPU else "cpu"
        self.confined = confine.refused(self.device) is None
        self.room, self.scratch, self.process, self.sockets = None, None, None, {}
        read_only = [submission] if submission else []
        if not self.confined:
            read_only += [sys.prefix, sys.base_prefix, INSIDE, ROLE[kind]]
        self.uid = confine.uid_for(read_only, self.confined)
        self.group = Group(MEMORY[kind], PROCESSES[kind])
        try:
            if not self.confined:
                self.room = Path(os.path.realpath(tempfile.mkdtemp(prefix="grade-")))
                self.room.chmod(0o711)
                self.scratch = Scratch(os.open(self.room, os.O_RDONLY | os.O_DIRECTORY), self.room, self.uid)
            self.start(submission)
            if self.confined:
                self.scratch = Scratch(self.receive_scratch(), PLACE, self.uid)
            self.home = self.scratch.folder("home")
        except OSError:
            self.close()
            raise

    def start(self, submission):
        pairs = {device: socket.socketpair() for device in DEVICES[self.kind]}
        self.sockets = {device: ours for device, (ours, _) in pairs.items()}
        theirs = {device: end for device, (_, end) in pairs.items()}
        given = [f"{device}={end.fileno()}" for device, end in theirs.items()]
        role, place = ROLE[self.kind], PLACE if self.confined else str(self.room)
        private = {name: f"{place}/home" for name in ("HOME", "TMPDIR")} | {"USER": "grade", "LOGNAME": "grade"}
        private |= {"TRITON_CACHE_DIR": f"{place}/home/triton"}
        self.said = tempfile.TemporaryFile()  # noqa: SIM115
        program = [sys.executable, "-I", "-B", "-u", str(WORKER), str(role), PLACE if self.confined else "-", *given]
        with confine.filtered() as (arguments, descriptors):
            if self.confined:
                seen = [WORKER.parent, role, *([submission] if submission else [])]
                inside = confine.command(shutil.which("bwrap"), self.device, seen, arguments, SCRATCH[self.kind])
                program = inside + program
            self.process = subprocess.Popen(
                self.group.enter() + program, pass_fds=[*(end.fileno() for end in theirs.values()), *descriptors],
                env=environment(self.device) | private, start_new_session=True, stdin=subprocess.DEVNULL,
                stdout=self.said, stderr=subprocess.STDOUT, cwd="/", preexec_fn=system_calls.prepare(self.confined),
            )  # fmt: skip
        for end in theirs.values():
            end.close()

    def last_words(self):
        """The last line that the sandbox process printed."""
        self.said.seek(0)
        words = self.said.read().decode(errors="replace").strip().splitlines()
        return words[-1] if words else "it said nothing"

    def receive_scratch(self):
        """The scratch folder's descriptor, from inside; raises ForkServerFailed where none comes."""
        control = self.sockets[DEVICES[self.kind][0]]
        control.settimeout(START_SECONDS)
        try:
            _, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        except OSError:
            descriptors = []
        if not descriptors:
            with contextlib.suppress(subprocess.TimeoutExpired):  # it has ended, with its reason, or it hangs
                self.process.wait(USAGE_SECONDS)
            words = self.last_words()
            self.close()
            raise ForkServerFailed(f"the sandbox process did not start; {words}")
        os.set_inheritable(descriptors[0], False)
        return descriptors[0]

    def limits(self):
        held = "memory" in self.group.held or self.kind in GPU
        others = 0 if self.confined or self.uid is not None or os.geteuid() == 0 else tasks_of(os.getuid())
        return {
            "memory_bytes": None if held else MEMORY[self.kind], "file_bytes": FILE_BYTES, "files": FILES,
            "processes": PROCESSES[self.kind] + others, "uid": self.uid,
        }  # fmt: skip

    def ask(self, device, message, seconds=ANSWER_SECONDS, descriptors=()):
        """The answer of a device's fork server; for one thread at a time. Raises ForkServerFailed."""
        line = json.dumps(message).encode() + b"\n"
        try:
            if descriptors:
                socket.send_fds(self.sockets[device], [line], descriptors)
            else:
                self.sockets[device].sendall(line)
        except OSError as error:
            raise ForkServerFailed(f"the sandbox process takes no requests: {error.strerror}") from None
        return self.receive(device, seconds)

    def receive(self, device, seconds):
        control, message = self.sockets[device], b""
        control.settimeout(seconds)
        while not message.endswith(b"\n"):  # one answer to one question, on a line
            try:
                part = control.recv(1 << 16)
            except TimeoutError:
                raise ForkServerFailed(f"the sandbox process did not answer within {seconds:g} s") from None
            except OSError:
                part = b""
            if not part:
                raise ForkServerFailed("the sandbox process ended")
            message += part
        return json.loads(message)

    def alive(self):
        if self.process is None:
            return False
        if self.owner != os.getpid():  # a fork has its lane's: only its parent can wait for it
            return not self.closed and os.path.exists(f"/proc/{self.process.pid}")
        return self.process.poll() is None and not self.closed

    def close(self):
        """Kill all that is inside, or, without a sandbox, all that can be found of it; remove what it wrote.

        In a fork of the process that started it, only what was used is noted: others use it too.
        """
        if self.closed:  # by now its number may be another's
            return
        self.note_usage()
        self.closed = True
        if self.owner != os.getpid():
            return
        for end in self.sockets.values():
            end.close()
        if self.process:
            self.end()
        self.group.close()
        if self.scratch:
            self.scratch.close()
        if self.room:
            scratch.remove(self.room.name, self.room.parent, REMOVE_SECONDS)

    def end(self):
        """Kill the sandbox process and all that is inside."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for pid in () if self.confined else self.living:  # inside, none outlives the sandbox process
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
        for pid in self.left():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # last: one that traces it would be told before us
            self.process.wait(ANSWER_SECONDS)

    def note_usage(self):
        """Add what was used to SPENT: inside a sandbox nobody else can count it. What it does not say is lost."""
        used, imports = self.usage()
        if used:
            shared = self.owner != os.getpid()
            SPENT.append(sum(used[d] - self.used_before.get(d, 0.0) for d in used) + (0.0 if shared else imports))

    def usage(self):
        """({device: core-seconds so far}, those of the imports)."""
        used, imports = {}, 0.0
        for device in self.answering if self.alive() else ():
            with contextlib.suppress(OSError, ForkServerFailed, KeyError, TypeError, ValueError):
                said = self.ask(device, {"op": "usage"}, USAGE_SECONDS)
                used[device], imports = float(said["core_seconds"]), float(said["imports"])
        return used, imports

    def share(self):
        """Before a fork that will use it too: what was used so far is not the fork's."""
        self.used_before, _ = self.usage()

    def inhabitants(self):
        """Numbers of all processes in it, where there is no sandbox."""
        return {*watch.below(self.process.pid), *self.left()}

    def left(self):
        """Numbers of processes that outlived the warm one: by the control group, or by the user that only they have."""
        yield from self.group.processes()
        if self.uid is not None:
            for folder in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    if folder.stat().st_uid == self.uid:
                        yield int(folder.name)


def environment(device):
    """The children's environment: little is inherited."""
    kept = {
        name: value for name, value in os.environ.items() if name in INHERITED or name.startswith(INHERITED_PREFIXES)
    }
    # One thread each: cases run side by side, and a forked child has no threads of its parent's pools.
    kept |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if device != "cuda":
        kept |= {"CUDA_VISIBLE_DEVICES": ""}
    return kept


def tasks_of(uid):
    """How many threads this user runs now: the limit on processes counts them all."""
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == uid:
                count += len(os.listdir(folder / "task"))
    return count
