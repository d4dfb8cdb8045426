"""The process that measures one point after another: python -m report.measuring.serve STUDY cuda, or cpu.

Requests come as JSON lines on standard input, messages go as JSON lines to what was standard output; what kernels and
libraries print goes to standard error.
"""

import json
import os
import queue
import sys
import threading
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

import torch

from grader.core import in_process
from grader.gpu import machine
from report.measuring.bench import PROTOCOL, Bench, in_a_sentence
from report.measuring.study import Point, find_study

SHARE = 0.97  # of the GPU's memory for tensors: the driver needs a little to load kernels


def requests():
    """The requests on standard input; where the other end is gone, so is this process, at once."""
    arrived = queue.Queue()

    def listen():
        for line in sys.stdin:
            arrived.put(json.loads(line))
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        yield arrived.get()


def open_channel():
    """A function that sends a message; from here on whatever prints does so on standard error."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr

    def say(**message):
        print(json.dumps(message), file=channel, flush=True)

    return say


def import_arms(name, device):
    if device == "cpu" and find_study(name).interpreted:
        in_process.begin()  # before modules with kernels are imported
    return import_module(f"report.arms.{name}")


def main(name, device):
    say = open_channel()
    if device == "cuda" and not torch.cuda.is_available():
        say(event="broken", reason="PyTorch sees no GPU here")
        return
    torch.set_grad_enabled(False)
    if device == "cpu":
        torch.set_num_threads(1)  # steadier, beside whatever else the machine does
    arms = import_arms(name, device).StudyArms
    say(event="ready", machine=facts(device))
    for request in requests():
        if request["op"] == "machine":
            say(event="machine", machine=facts(device))
        else:
            answer(request, find_study(name), arms, device, say)


def facts(device):
    """What is kept with the numbers; a GPU that was not measured is none."""
    if device == "cpu":
        unused = dict.fromkeys(("gpu", "memory_gib", "driver", "cudnn", "clocks"))
        return {**machine.facts(), **unused, "protocol": PROTOCOL}
    try:
        peer = version("flash-attn-4")
    except PackageNotFoundError:
        peer = None
    return {**machine.facts(), "flash_attn_4": peer, "clocks": machine.clocks(), "protocol": PROTOCOL}


def answer(request, study, arms, device, say):
    """Measure or prepare one point, which leaves nothing behind."""
    torch._dynamo.reset()
    if device == "cuda":
        torch.cuda.set_per_process_memory_fraction(request.get("share", SHARE))
        torch.cuda.empty_cache()
    try:
        point = Point(**request["point"])
        bench = Bench(study, point, arms(point, device), say)
        if request["op"] == "prepare":
            bench.prepare(request["kernels"])
        else:
            bench.run(request["kernels"], request["companions"], request["budget"])
        say(event="done")
    except Exception as error:  # ours: no arm was in hand
        say(event="fault", reason=in_a_sentence(error))
        if device == "cuda":
            torch.cuda.synchronize()  # where the GPU is unusable, this ends the process: a new one may fare better


if __name__ == "__main__":
    main(*sys.argv[1:])
