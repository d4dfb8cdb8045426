"""A warm process that has imported torch and triton once and forks a child for each module: a start costs milliseconds.

It runs no submitted code itself. One for each device, started when first needed, gone with the grader: its end of the
socket closes then. The devices: "cuda", "cpu" (Triton's interpreter), "compile" (kernels are compiled and never run).
"""

import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

WORKER = Path(__file__).parent / "child" / "worker.py"
START_SECONDS = 120.0  # to import torch and triton: slow only on a cold, busy disk
ANSWER_SECONDS = 10.0  # to fork, or to say how a child ended
# What a child may inherit: enough to find programs, libraries and GPUs.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CC", "VIRTUAL_ENV")
INHERITED_PREFIXES = ("CUDA_", "NVIDIA_", "TRITON_CACHE", "HIP_", "ROCR_")


class NurseryFailed(Exception):
    """The warm process did not start or does not answer: a fault of the grader or of the machine."""


class Nursery:
    """The warm process of one device; `fork` gives a child. Raises NurseryFailed. Safe to use from several threads."""

    def __init__(self, device):
        self.lock = threading.Lock()
        self.socket, theirs = socket.socketpair()
        with tempfile.TemporaryFile() as said:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-B", "-u", str(WORKER), str(theirs.fileno()), device],
                pass_fds=(theirs.fileno(),), env=environment(device), start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, cwd="/",
            )  # fmt: skip
            theirs.close()
            try:
                reply = self._receive(START_SECONDS)
            except NurseryFailed as failure:
                self.process.kill()
                said.seek(0)
                words = said.read().decode(errors="replace").strip().splitlines()
                raise NurseryFailed(f"{failure}; {words[-1] if words else 'it said nothing'}") from None
        if reply["status"] != "ready":
            raise NurseryFailed(reply["error"])

    def fork(self, setup, descriptors):
        """A child with these descriptors as standard input, output and channel; returns its process number."""
        with self.lock:
            socket.send_fds(self.socket, [json.dumps({"op": "fork", **setup}).encode() + b"\n"], descriptors)
            return self._receive(ANSWER_SECONDS)["pid"]

    def how_it_ended(self, pid):
        """The exit status of a child, negative for a signal, or None while it lives."""
        with self.lock:
            self.socket.sendall(json.dumps({"op": "status", "pid": pid}).encode() + b"\n")
            return self._receive(ANSWER_SECONDS)["status"]

    def _receive(self, seconds):
        self.socket.settimeout(seconds)
        message = b""
        while not message.endswith(b"\n"):  # one answer to one question, on a line
            try:
                part = self.socket.recv(1 << 16)
            except TimeoutError:
                raise NurseryFailed(f"the warm process did not answer within {seconds:g} s") from None
            if not part:
                raise NurseryFailed("the warm process ended")
            message += part
        return json.loads(message)

    def close(self):
        self.socket.close()
        self.process.kill()
        self.process.wait()


def environment(device):
    """The child's environment: little is inherited; TRITON_INTERPRET must stand before triton is imported."""
    kept = {
        name: value for name, value in os.environ.items() if name in INHERITED or name.startswith(INHERITED_PREFIXES)
    }
    # One thread each: cases run side by side, and a forked child has no threads of its parent's pools.
    kept |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if device == "cpu":
        kept |= {"TRITON_INTERPRET": "1"}
    if device != "cuda":
        kept |= {"CUDA_VISIBLE_DEVICES": ""}
    return kept


_running, _starting = {}, threading.Lock()


def nursery(device):
    """The nursery of this device, started on first use."""
    with _starting:
        key = device, WORKER
        if key not in _running or _running[key].process.poll() is not None:
            _running[key] = Nursery(device)
            atexit.register(_running[key].close)
        return _running[key]
