"""Decode in turns: X4, its fast form, cuDNN's attention and a copy of as many bytes, on the same caches.

    python -m report decode                                   on a GPU; minutes; rows into report/results/<gpu>/
    python -m report decode --tiny --rounds 2 --device cpu    small caches, without a GPU: times mean nothing

Each arm is a CUDA graph of calls over several sets of caches in turn, so that no time has the host's work in it and no
call finds its cache in L2. The host's time of a call is measured beside it. A copy of n bytes reads n and writes n: it
copies the keys alone, half of what the decode reads, and so moves as many bytes as that.
"""

import argparse
import math
import statistics
import sys
import traceback
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from grader.core import in_process
from grader.gpu import timing
from report.arms.backward import host_us
from report.arms.decode_check import expect, fault
from report.measuring.bench import in_a_sentence
from report.measuring.graphs import GraphArm
from report.measuring.machine import write_both
from report.places import NotThere, Refused, load, load_anew
from report.studies.decode import COLUMNS, COPY, CUDNN, FAST, OURS, PLAIN, SHAPES, TINY

FEW = 4  # multiprocessors, where there are none
# Of the scores: few keys have most of the weight. The mean of very many values would be near 0, right or not.
SPREAD = 3.0


def arguments(shape, form, k, v, number):
    """(q, caches, lengths, block table, sink logits, window) of caches (B, Hkv, N, D), of which pages are views."""
    generator = torch.Generator(k.device).manual_seed(number)
    draw = partial(torch.randn, device=k.device, generator=generator)
    q, table = SPREAD * draw(shape.B, shape.Hq, form.new, shape.D, dtype=k.dtype), None
    if form.page:
        pages = shape.B * shape.N // form.page
        table = torch.randperm(pages, device=k.device, generator=generator).int().view(shape.B, -1)
        k, v = (x.view(pages, form.page, shape.Hkv, shape.D) for x in (k, v))
    # As large as the lse of all keys: the logit has much of a row's weight, and without it the result is far off.
    sink = math.log(shape.N) + SPREAD**2 / 2 + draw(shape.Hq) if form.sink else None
    return q, k, v, torch.tensor(shape.lengths(form), dtype=torch.int32, device=k.device), table, sink, form.window


@cache
def with_piece(name, piece):
    """A module of solutions/ or kernels/, with `piece` tokens in a piece, or as it is where `piece` is None."""
    if piece is None:
        return load(name)
    module = load_anew(name, f"{Path(name).stem}_{piece}")
    if getattr(module, "INTERPRETED", False):
        module.TILES_INTERPRETER = piece, *module.TILES_INTERPRETER[1:]
    module.PIECE = piece
    return module


def calls_of(shape, device):
    """{(kernel, form): [(call, its arguments) of each set of caches]}."""
    on_gpu = device == "cuda"
    draw = partial(torch.randn, device=device, dtype=torch.bfloat16 if on_gpu else torch.float16)
    caches = [
        [draw(shape.B, shape.Hkv, shape.N, shape.D) for _ in range(2)] for _ in range(shape.sets() if on_gpu else 2)
    ]
    found = {(CUDNN, PLAIN): [], (COPY, PLAIN): []}
    for number, (k, v) in enumerate(caches):
        given = arguments(shape, PLAIN, k, v, number)
        found[CUDNN, PLAIN].append((partial(scaled_dot_product_attention, *given[:3], enable_gqa=True), given))
        found[COPY, PLAIN].append((partial(torch.empty_like(k).copy_, k), given))
    processors = torch.cuda.get_device_properties(0).multi_processor_count if on_gpu else FEW
    for kernel, name in OURS.items():
        if kernel == FAST and not on_gpu:
            continue
        try:
            forms = PLAIN, *shape.forms, *shape.shares(processors, load(name).PIECE)
        except NotThere as error:
            print(f"{kernel}: {error}", file=sys.stderr)
            continue
        for form in forms:
            call = with_piece(name, form.piece).decode_attention
            given = [arguments(shape, form, k, v, number) for number, (k, v) in enumerate(caches)]
            found[kernel, form] = [(partial(call, *each), each) for each in given]
    return found


def prepare(calls, device):
    """({(kernel, form): GraphArm} of those that are right, {(kernel, form): what is wrong with it})."""
    arms, faults, expected = {}, {}, {}
    for key, pairs in calls.items():
        (kernel, form), (_, given) = key, pairs[0]
        try:
            arm, found = GraphArm([call for call, _ in pairs], device), None
            if kernel != COPY:
                inputs = replace(form, name="", sink=False, piece=None)  # forms with the same ones share what is right
                if inputs not in expected:
                    expected[inputs] = expect(*given)
                found = fault(arm.o, expected[inputs], given[5])
            if form.piece and (kernel, PLAIN) in arms and torch.equal(arm.o, arms[kernel, PLAIN].o):
                found = "not measured: PIECE changed no bit of the result"
        except Exception as error:
            traceback.print_exc()
            found = in_a_sentence(error)
        if found:
            faults[key] = found
        else:
            arms[key] = arm
    return arms, faults


def line(shape, key, timings, hosts, faults):
    """A list of words, as COLUMNS has them; blank where nothing was measured."""
    kernel, form = key
    if key in faults:
        return [shape.name, kernel, form.name, *[""] * (len(COLUMNS) - 4), faults[key]]
    us, size = 1e3 * statistics.median(timings[key].samples), shape.bytes(form)
    ratios = []
    for other, factor in (((CUDNN, PLAIN), 1.0), ((COPY, PLAIN), size / shape.bytes(PLAIN))):
        found = timing.ratio(timings, key, other) if key not in (other, (COPY, PLAIN)) else None
        ratios += [f"{each * factor:.4f}" for each in found] if found else [""] * 3
    found = timing.ratio(timings, (kernel, PLAIN), key) if form != PLAIN else None
    ratios += [f"{each:.4f}" for each in found] if found else [""] * 3
    host = f"{hosts[key]:.1f}" if key in hosts else ""
    return [
        shape.name, kernel, form.name, f"{us:.2f}", f"{size / 2**20:.2f}", f"{size / us / 1e3:.1f}", *ratios, host, "",
    ]  # fmt: skip


def measure(shape, device, rounds):
    """Lines of the table."""
    torch.manual_seed(shape.N)
    calls = calls_of(shape, device)
    plan = timing.Plan(target=0.0, budget_s=math.inf, min_rounds=rounds, max_rounds=rounds, against=(COPY, PLAIN))
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION if device == "cuda" else SDPBackend.MATH):
        arms, faults = prepare(calls, device)
        timings = timing.take_turns(arms, plan)
        hosted = [key for key in arms if key[1] == PLAIN and key[0] != COPY and device == "cuda"]
        hosts = {key: host_us(arms[key].calls[0]) for key in hosted}
    return [line(shape, key, timings, hosts, faults) for key in calls]


def main(argv):
    parser = argparse.ArgumentParser("python -m report decode", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=21, help="turns of each arm")
    parser.add_argument("--tiny", action="store_true", help="a cache that a CPU can read")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="of decode.csv (default: report/results/<gpu>)")
    options = parser.parse_args(argv)
    if options.rounds < 1:
        raise Refused(f"--rounds must be at least 1; got {options.rounds}")
    if options.device == "cuda" and not torch.cuda.is_available():
        raise Refused("PyTorch sees no GPU here; --tiny --rounds 2 --device cpu needs none")
    if options.device == "cpu":
        in_process.begin()
    rows = [COLUMNS]
    if options.out:  # refused before minutes of measuring, where it cannot be made
        options.out.mkdir(parents=True, exist_ok=True)
    for shape in TINY if options.tiny else SHAPES:
        lines = measure(shape, options.device, options.rounds)
        rows += lines
        write_both(options, "decode", rows, {"rounds": options.rounds})
        for each in lines:
            print(*filter(None, each), flush=True)
    return 0
