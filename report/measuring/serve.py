"""In the process that measures: one point after another, each of which leaves nothing behind."""

import os
from functools import partial
from importlib import import_module

SHARE = 0.97  # of the GPU's memory for tensors: the driver needs a little to load kernels


def serve(channel, study, device):
    """Answer requests, {"op": "measure" or "prepare", and of a point what to do, or "machine"}, by (kind, *values)."""
    set_environment(study, device)
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        channel.send(("broken", "PyTorch sees no GPU here"))
        return
    torch.set_grad_enabled(False)
    if device == "cpu":
        torch.set_num_threads(1)  # steadier, beside whatever else the machine does
    arms = import_module(f"report.arms.{study.name}").StudyArms
    channel.send(("ready", facts(device)))
    while True:
        request = channel.recv()
        if request["op"] == "machine":
            channel.send(("machine", facts(device)))
        else:
            answer(request, study, arms, device, channel)


def set_environment(study, device):
    """What torch and triton read when they are imported."""
    # One process compiles for itself: those that compile ahead are many already.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    os.environ.pop("TRITON_INTERPRET", None)
    if study.interpreted and device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"


def say(channel, *message):
    channel.send(message)


def facts(device):
    """What is kept with the numbers; a GPU that was not measured is none."""
    from grader.gpu import machine
    from report.measuring.bench import PROTOCOL

    if device == "cpu":
        unused = dict.fromkeys(("gpu", "memory_gib", "driver", "cudnn", "clocks"))
        return {**machine.facts(), **unused, "protocol": PROTOCOL}
    return {**machine.facts(), "clocks": machine.clocks(), "protocol": PROTOCOL}


def answer(request, study, arms, device, channel):
    """Measure or prepare one point."""
    import torch

    from report.measuring.bench import Bench, in_a_sentence

    torch._dynamo.reset()
    if device == "cuda":
        torch.cuda.set_per_process_memory_fraction(request.get("share", SHARE))
        torch.cuda.empty_cache()
    try:
        point = request["point"]
        bench = Bench(study, point, arms(point, device), partial(say, channel))
        if request["op"] == "prepare":
            bench.prepare(request["kernels"])
        else:
            bench.run(request["kernels"], request["companions"], request["budget"])
        channel.send(("done",))
    except Exception as error:  # ours: no arm was in hand
        channel.send(("fault", in_a_sentence(error)))
        if device == "cuda":
            torch.cuda.synchronize()  # where the GPU is unusable, this ends the process: a new one may fare better
