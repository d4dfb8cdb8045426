"""Inside the sandbox: a fork server. It imports what its role needs, and forks a child for each module or program.

Started as `python -I fork_server.py ROLE SCRATCH DEVICE=SOCKET ...` by server.py; ROLE is a module of the core,
`record.recorder` or `run.runner`, which says what to import (`get_ready`), what a child begins with (`begin`), which
requests it reads (`REQUESTS`) and how it answers each (`JOBS`). A child reads requests as JSON lines on one
descriptor and replies with JSON lines on another; tensors and programs travel as files of its scratch folder.
"""

import contextlib
import faulthandler
import fcntl
import gc
import importlib
import os
import random
import signal
import socket
import sys
import traceback
import types
from typing import IO, Any, NoReturn


def show_core() -> None:
    """Have `grader.core` be the folders of the core that are visible here: no other part can be imported."""
    core = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for name, path in (("grader", []), ("grader.core", [core])):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = path


show_core()
import msgspec  # noqa: E402

from grader.core.protocol import control, messages  # noqa: E402
from grader.core.protocol.messages import Envelope, Limits, Reply  # noqa: E402
from grader.core.worker import process_tree, rlimits  # noqa: E402

ChildSetup = messages.RecorderSetup | messages.RunnerSetup
KEPT: dict[str, Any] = {}  # the role
CONTROL, ENVELOPE = msgspec.json.Decoder(control.ServerRequest), msgspec.json.Decoder(Envelope)


def serve_devices(role: str, scratch: str, controls: dict[str, socket.socket]) -> None:
    """Import what every device needs, and serve it, or fork a server for each; all end when one of them does.

    scratch: a folder whose descriptor the grader needs, or "-". controls: {device: socket}.
    """
    if scratch != "-":
        folder = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY)
        socket.send_fds(next(iter(controls.values())), [b"s"], [folder])
        os.close(folder)
    gc.disable()  # nothing that is imported goes away
    try:
        import torch  # noqa: F401

        KEPT["role"] = importlib.import_module(f"grader.core.{role}")
    except Exception as error:
        for end in controls.values():
            answer(end, control.Started(f"{type(error).__name__}: {error}"))
        return
    if len(controls) == 1:
        return ForkServer(*controls.values()).serve()
    for end in controls.values():
        if os.fork() == 0:
            for other in controls.values():
                if other is not end:
                    other.close()
            ForkServer(end).serve()
            os._exit(0)
    for end in controls.values():
        end.close()
    rlimits.protect_server()
    os.wait()


class ForkServer:
    """Serves one device in a process of its own: what the device needs, once that is asked for; then a fork for each
    child. ended: {process number: exit status, negative for a signal}. living: numbers of the children that live.
    """

    def __init__(self, end: socket.socket) -> None:
        self.end, self.ended, self.living = end, dict[int, int](), set[int]()

    def serve(self) -> None:
        """Answer what the grader asks, until it closes its end."""
        rlimits.protect_server()
        with contextlib.suppress(ConnectionError):
            while True:
                message, descriptors, _, _ = socket.recv_fds(self.end, 1 << 16, 3)
                while message and not message.endswith(b"\n"):
                    message += self.end.recv(1 << 16)
                if not message:
                    return
                request = CONTROL.decode(message)
                self.reap()
                answer(self.end, self.answer_to(request, descriptors))

    def answer_to(self, request: control.ServerRequest, descriptors: list[int]) -> control.ServerReply:
        match request:
            case control.Start(device):
                return self.start(device)
            case control.Fork(setup, allowed):
                return self.fork(setup, allowed, descriptors)
            case control.AskStatus(pid):
                return control.Status(self.ended.get(pid))
            case control.Signal(pid, number):
                if pid in self.living:
                    os.killpg(pid, number)  # a child may have forked for its call
                return control.Done()
            case control.AskPrograms(pid):
                return control.Programs(list(process_tree.find_programs(pid, self.living - {pid}).values()))
            case control.End(pid):
                gone = process_tree.end(pid, self.living - {pid})
                self.reap()
                return control.Ended(gone)

    def start(self, device: str) -> control.Started:
        """Import what the device needs."""
        try:
            KEPT["role"].get_ready(device)
        except Exception as error:
            return control.Started(f"{type(error).__name__}: {error}")
        gc.enable()
        gc.freeze()  # a child's collector need not walk, and copy, what is here already
        return control.Started()

    def fork(self, setup: ChildSetup, allowed: Limits, descriptors: list[int]) -> control.Forked:
        pid = os.fork()
        if pid == 0:
            self.end.close()
            become_child(setup, allowed, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        self.living.add(pid)
        return control.Forked(pid)

    def reap(self) -> None:
        """Note how those ended that have ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.ended[pid] = os.waitstatus_to_exitcode(status)
            self.living.discard(pid)


def answer(end: socket.socket, message: control.ServerReply) -> None:
    end.sendall(msgspec.json.encode(message) + b"\n")


def become_child(setup: ChildSetup, allowed: Limits, descriptors: list[int]) -> NoReturn:
    """In the forked process: its own group, its own folder and descriptors; answers requests, and never returns."""
    status = 1
    try:
        os.setsid()
        requests, output, channel = map(move_descriptor, descriptors)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        rlimits.apply(allowed)
        os.chdir(setup.folder)
        # Python 3.14 adds the calls in C, whose addresses are nothing to a student.
        faulthandler.enable(**({"c_stack": False} if sys.version_info >= (3, 14) else {}))
        faulthandler.register(signal.SIGUSR1)  # the grader asks where a case hangs before it ends it
        sys.modules["__main__"] = types.ModuleType("__main__")  # the worker's own names are none of the module's
        serve(setup, os.fdopen(requests, "rb"), channel)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def move_descriptor(descriptor: int) -> int:
    """The same under a number that cannot be guessed, and not for programs that the module starts."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, random.SystemRandom().randrange(100, 800))
    os.close(descriptor)
    return moved


def send(channel: int, token: str, reply: Reply) -> None:
    """Write one reply."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    line = msgspec.json.encode(Envelope(token, messages.plain_bytes(reply))) + b"\n"
    while line:
        line = line[os.write(channel, line) :]


def serve(setup: ChildSetup, requests: IO[bytes], channel: int) -> None:
    """Begin as the role does, then answer requests until there are no more."""
    role = KEPT["role"]
    try:
        state = role.begin(setup)
    except BaseException as error:
        return send(channel, "", role.describe(error, setup))
    send(channel, "", messages.Loaded())
    for line in requests:
        envelope = ENVELOPE.decode(line)
        try:
            request = role.REQUESTS.decode(envelope.body)
            reply = role.JOBS[type(request)](state, request)
        except BaseException as error:
            reply = role.describe(error, setup)
        send(channel, envelope.token, reply)
        gc.collect()  # what a case leaves in cycles is few objects, and tens of megabytes


if __name__ == "__main__":
    given = (word.split("=") for word in sys.argv[3:])
    serve_devices(sys.argv[1], sys.argv[2], {device: socket.socket(fileno=int(number)) for device, number in given})
