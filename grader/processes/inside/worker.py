"""Inside the sandbox: a fork server. It imports what its role needs, and forks a child for each module or program.

Started as `python -I worker.py ROLE SCRATCH DEVICE=SOCKET ...` by sandbox_process.py; ROLE is a folder whose role.py
says what to import (`get_ready`), what a child begins with (`begin`) and which requests it answers (`JOBS`). A child
gets its requests as JSON lines on one descriptor and replies with JSON lines on another; tensors and programs travel as
files of its scratch folder, the current folder.
"""

import contextlib
import faulthandler
import fcntl
import gc
import json
import os
import random
import signal
import socket
import sys
import time
import traceback
import types

HERE = os.path.dirname(os.path.abspath(__file__))
KEPT = {}  # the role; the core-seconds of the imports


def sandbox_process(role, scratch, controls):
    """Import what every device needs, and fork the fork server of each; ends, and all with it, when one of them does.

    scratch: a folder whose descriptor the grader needs, or "-". controls: {device: socket}.
    """
    if scratch != "-":
        folder = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY)
        socket.send_fds(next(iter(controls.values())), [b"s"], [folder])
        os.close(folder)
    sys.path[:0] = [HERE, role]
    gc.disable()  # nothing that is imported goes away
    try:
        import limits
        import process_tree  # noqa: F401
        import role as jobs
        import torch  # noqa: F401

        KEPT["role"] = jobs
    except Exception as error:
        for control in controls.values():
            answer(control, status="broken", error=f"{type(error).__name__}: {error}")
        return
    KEPT["imports"] = time.process_time()
    for control in controls.values():
        if os.fork() == 0:
            for other in controls.values():
                if other is not control:
                    other.close()
            fork_server(control)
            os._exit(0)
    for control in controls.values():
        control.close()
    limits.protect_server()
    os.wait()


def fork_server(control):
    """In a process of its own: what one device needs, once that is asked for; then a fork for each child."""
    import limits

    limits.protect_server()
    with contextlib.suppress(ConnectionError):
        serve_grader(control)


def start(control, request, descriptors, ended, living):
    """Import what the device needs."""
    try:
        KEPT["role"].get_ready(request["device"])
    except Exception as error:
        return {"status": "broken", "error": f"{type(error).__name__}: {error}"}
    gc.enable()
    gc.freeze()  # a child's collector need not walk, and copy, what is here already
    return {"status": "ready"}


def serve_grader(control):
    """Answer what the grader asks, until it closes its end."""
    ended, living = {}, set()
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 3)
        while message and not message.endswith(b"\n"):
            message += control.recv(1 << 16)
        if not message:
            return
        request = json.loads(message)
        reap(ended, living)
        answer(control, **ASKED[request["op"]](control, request, descriptors, ended, living))


def fork(control, request, descriptors, ended, living):
    pid = os.fork()
    if pid == 0:
        control.close()
        become_child(request, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    living.add(pid)
    return {"pid": pid}


def status(control, request, descriptors, ended, living):
    return {"status": ended.get(request["pid"])}


def send_signal(control, request, descriptors, ended, living):
    if request["pid"] in living:
        os.killpg(request["pid"], request["number"])  # a child may have forked for its call
    return {}


def programs(control, request, descriptors, ended, living):
    import process_tree

    return {"programs": list(process_tree.find_programs(request["pid"], living - {request["pid"]}).values())}


def end(control, request, descriptors, ended, living):
    import process_tree

    gone = process_tree.end(request["pid"], living - {request["pid"]})
    reap(ended, living)
    return {"gone": gone}


def usage(control, request, descriptors, ended, living):
    """The core-seconds of this fork server and its ended children, and those of what was imported before."""
    import resource

    reap(ended, living)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {"core_seconds": sum(each.ru_utime + each.ru_stime for each in used), "imports": KEPT["imports"]}


ASKED = {
    "start": start, "fork": fork, "status": status, "signal": send_signal, "programs": programs, "end": end,
    "usage": usage,
}  # fmt: skip


def answer(control, **message):
    control.sendall(json.dumps(message).encode() + b"\n")


def reap(ended, living):
    """Note how those ended that have ended: {process number: exit status, negative for a signal}."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        ended[pid] = os.waitstatus_to_exitcode(status)
        living.discard(pid)


def become_child(setup, descriptors):
    """In the forked process: its own group, its own folder and descriptors; answers requests, and never returns."""
    import limits

    status = 1
    try:
        os.setsid()
        requests, output, channel = map(hidden, descriptors)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        limits.apply(setup["limits"])
        os.chdir(setup["folder"])
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1)  # the grader asks where a case hangs before it ends it
        sys.modules["__main__"] = types.ModuleType("__main__")  # the worker's own names are none of the module's
        serve(setup, os.fdopen(requests, "rb"), channel)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def hidden(descriptor):
    """The same under a number that cannot be guessed, and not for programs that the module starts."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, random.SystemRandom().randrange(100, 800))
    os.close(descriptor)
    return moved


def send(channel, **message):
    """Write one reply."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    line = json.dumps(message).encode() + b"\n"
    while line:
        line = line[os.write(channel, line) :]


def serve(setup, requests, channel):
    """Begin as the role does, then answer requests until there are no more."""
    role = KEPT["role"]
    try:
        state = role.begin(setup)
    except BaseException as error:
        return send(channel, status="raised", **role.describe(error, setup))
    send(channel, status="loaded")
    for line in requests:
        request = json.loads(line)
        try:
            message = {"status": "returned", **role.JOBS[request["op"]](state, request)}
        except BaseException as error:
            message = {"status": "raised", **role.describe(error, setup)}
        send(channel, **message | {"token": request.get("token")})


if __name__ == "__main__":
    given = (word.split("=") for word in sys.argv[3:])
    sandbox_process(sys.argv[1], sys.argv[2], {device: socket.socket(fileno=int(number)) for device, number in given})
