"""Inside the sandbox: a fork server. It imports what its role needs, and forks a child for each module or program.

Started as `python -I fork_server.py ROLE SCRATCH SOCKET CALLS DEVICE` by server.py; ROLE is a module of the core,
`record.recorder` or `run.runner`, which says what to import (`get_ready`), what a child begins with (`begin`), which
requests it reads (`REQUESTS`) and how it answers each (`JOBS`). A child reads requests as JSON lines on one
descriptor and replies with JSON lines on another; tensors and programs travel as files of its scratch folder.
"""

import contextlib
import faulthandler
import gc
import importlib
import os
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
from grader.core.worker import process_tree, rlimits, system_calls  # noqa: E402

ChildSetup = messages.RecorderSetup | messages.RunnerSetup
CONTROL = msgspec.json.Decoder(control.Fork | control.Look)


def main(role_name: str, scratch: str, number: str, calls: str, device: str) -> None:
    """Send the scratch folder's descriptor, import what the first device needs, and serve; ends where that fails.

    calls: "restrict" where system calls are refused.
    """
    if calls == "restrict":
        system_calls.restrict()
    end = socket.socket(fileno=int(number))
    folder = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY)
    socket.send_fds(end, [b"s"], [folder])
    os.close(folder)
    rlimits.protect_server()
    gc.disable()  # nothing that is imported goes away
    try:
        import torch  # noqa: F401

        server = ForkServer(end, importlib.import_module(f"grader.core.{role_name}"))
        server.get_ready(device)
    except Exception as error:
        return answer(end, control.Forked(error=f"{type(error).__name__}: {error}"))
    gc.enable()
    answer(end, control.Forked())
    server.serve()


class ForkServer:
    """A fork for each child. ready: the devices that have what they need. ended: {process number: exit status, negative
    for a signal}. living: numbers of the children that live.
    """

    def __init__(self, end: socket.socket, role: Any) -> None:
        self.end, self.role, self.ready = end, role, set[str]()
        self.ended, self.living = dict[int, int](), set[int]()

    def get_ready(self, device: str) -> None:
        """Import what the device needs, which the first of its children waits for."""
        if device not in self.ready:
            self.role.get_ready(device)
            self.ready.add(device)
            gc.freeze()  # a child's collector need not walk, and copy, what is here already

    def serve(self) -> None:
        """Answer what the grader asks, until it closes its end."""
        with contextlib.suppress(ConnectionError):
            while True:
                message, descriptors, _, _ = socket.recv_fds(self.end, 1 << 16, 3)
                while message and not message.endswith(b"\n"):
                    message += self.end.recv(1 << 16)
                if not message:
                    return
                request = CONTROL.decode(message)
                asked_to_fork = isinstance(request, control.Fork)
                answer(self.end, self.fork(request, descriptors) if asked_to_fork else self.look(request))

    def fork(self, request: control.Fork, descriptors: list[int]) -> control.Forked:
        try:
            self.get_ready(request.setup.device)
            pid = os.fork()
            if pid == 0:
                self.end.close()
                become_child(self.role, request, descriptors)
        except Exception as error:
            return control.Forked(error=f"{type(error).__name__}: {error}")
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self.living.add(pid)
        return control.Forked(pid)

    def look(self, request: control.Look) -> control.Looked:
        self.reap()
        pid, others = request.pid, self.living - {request.pid}
        if request.signal and pid in self.living:
            os.killpg(pid, request.signal)  # a child may have forked for its call
        left = process_tree.end(pid, others) if request.end else process_tree.find_programs(pid, others)
        self.reap()
        return control.Looked(self.ended.get(pid), list(left.values()))

    def reap(self) -> None:
        """Note how those ended that have ended."""
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                self.ended[found[0]] = os.waitstatus_to_exitcode(found[1])
                self.living.discard(found[0])


def answer(end: socket.socket, message: control.Forked | control.Looked) -> None:
    end.sendall(msgspec.json.encode(message) + b"\n")


def become_child(role: Any, request: control.Fork, descriptors: list[int]) -> NoReturn:
    """In the forked process: its own group, its own folder and descriptors; answers requests, and never returns."""
    status = 1
    try:
        os.setsid()
        requests, output, channel = descriptors
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        for descriptor in (requests, channel):  # not for programs that the module starts: they may live for longer
            os.set_inheritable(descriptor, False)
        rlimits.apply(request.limits)
        os.chdir(request.setup.folder)
        # Python 3.14 adds the calls in C, whose addresses are nothing to a student.
        faulthandler.enable(**({"c_stack": False} if sys.version_info >= (3, 14) else {}))
        faulthandler.register(signal.SIGUSR1)  # the grader asks where a case hangs before it ends it
        sys.modules["__main__"] = types.ModuleType("__main__")  # the worker's own names are none of the module's
        serve(role, request.setup, os.fdopen(requests, "rb"), channel)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def serve(role: Any, setup: ChildSetup, requests: IO[bytes], channel: int) -> None:
    """Begin as the role does, then answer requests until there are no more."""
    try:
        state = role.begin(setup)
    except BaseException as error:
        return send(channel, role.describe(error, setup))
    send(channel, messages.Loaded())
    for line in requests:
        try:
            request = role.REQUESTS.decode(line)
            reply = role.JOBS[type(request)](state, request)
        except BaseException as error:
            reply = role.describe(error, setup)
        send(channel, reply)
        gc.collect()  # what a case leaves in cycles is few objects, and tens of megabytes


def send(channel: int, reply: messages.Reply) -> None:
    """Write one reply."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    line = msgspec.json.encode(reply) + b"\n"
    while line:
        line = line[os.write(channel, line) :]


if __name__ == "__main__":
    main(*sys.argv[1:])
