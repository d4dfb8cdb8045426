"""The fast forms compiled for a Hopper GPU that need not be here; a JSON line {form: facts of its kernel} each.

Arguments: head dims for the fast form of X1, names of MASKS for the ladder's, of BACKWARD for X3's, of DECODE for
X4's. A process of its own, since what passes for a GPU here must not outlive it.
"""

import ctypes
import json
import re
import sys
import tempfile
from unittest.mock import patch

import torch
from msgspec.structs import asdict
from triton.runtime.jit import JITFunction

from grader.core.run import compiler
from grader.core.worker import without_gpu
from grader.gpu.gpus import GPUS
from kernels import fast_attention, fast_backward, fast_decode, hopper_launch
from kernels import fast_block_sparse as fast
from kernels.block_sparse_lists import Lists
from kernels.cuda_driver import Direct
from solutions import x1_block_sparse

TOKENS = 384
# What the backward pass is asked: is_causal, window_size and head dim.
BACKWARD = {f"backward, {D}": (True, 100, D) for D in fast_backward.TILES}
# What decode is asked: head dim, tokens of a page (0: none), sequences and new tokens of four heads.
DECODE = {
    "decode, 64": (64, 0, 2, 1), "decode, 128": (128, 0, 64, 1), "decode, 128, pages": (128, 16, 2, 1),
    "decode, 256": (256, 0, 2, 1), "decode, 64, most rows": (64, 0, 2, 8), "decode, 128, most rows": (128, 0, 2, 8),
    "decode, 256, most rows": (256, 0, 2, 4),
}  # fmt: skip
# What a ladder of masks asks of the one kernel: is_causal, window_size, sink_size, tokens and head dim.
MASKS = {
    "full": (False, None, 0, 512, 64), "causal": (True, None, 0, 512, 64), "window": (True, 128, 0, 512, 128),
    "few sinks": (True, 128, 4, 512, 64), "many sinks, long": (True, 1024, 40, 4096, 64),
    "long, 64": (False, None, 0, 16384, 64), "long, 128": (True, None, 0, 16384, 128),
    "long, 256": (False, None, 0, 4096, 256),
}  # fmt: skip


def forms(D):
    """{name: (keys in a step, consumers, stages, programs)}; the two are one where they are alike."""
    return {str((D, *form[D])): form[D] for form in (fast.TOGETHER, fast.ALONE)}


def block_sparse(D, form, dtype=torch.float16):
    """The wrapper's own launch, with lists in which nothing stands: what fills them is not run here."""
    q, neighbours = torch.zeros(2, 4, TOKENS, D, dtype=dtype), form[1]
    shapes = (1, TOKENS // 64 // neighbours, 8), (1, TOKENS // 64 // neighbours, TOKENS // 64), (1, neighbours, 64, 2)
    lists = Lists(*(torch.zeros(shape, dtype=torch.int32) for shape in shapes), 0)
    tiles = x1_block_sparse.tiles_of_mask(torch.ones(TOKENS, TOKENS, dtype=torch.bool))
    fast.choose_lists = lambda *given: (lists, form)
    fast.block_sparse_attention(q, q[:, :2], q[:, 2:], fast.Prepared(tiles, D, lists, lists))


def attention(is_causal, window_size, sink_size, N, D):
    q = torch.zeros(1, 4, N, D, dtype=torch.bfloat16 if sink_size else torch.float16)
    fast_attention.flash_attention_forward(q, q[:, :2], q[:, 2:], is_causal, window_size, sink_size)


def backward(is_causal, window_size, D):
    q = torch.zeros(1, 4, 512, D, dtype=torch.bfloat16)
    k, lse = q[:, :2], torch.zeros(1, 4, 512)
    fast_backward.attention_backward(q, q, k, k, q, lse, is_causal, window_size)


def decode(D, page, B, Nq):
    q, lengths = torch.zeros(B, 8, Nq, D, dtype=torch.bfloat16), torch.zeros(B, dtype=torch.int32)
    cache, table = torch.zeros(B, 2, 4096, D, dtype=torch.bfloat16), None
    if page:
        cache, table = cache.view(-1, page, 2, D), torch.zeros(B, 4096 // page, dtype=torch.int32)
    fast_decode.decode_attention(q, cache, cache, lengths, table, torch.zeros(8))


def parameters(ptx):
    """The bytes of each parameter of a kernel, in their order."""
    head = ptx[ptx.index(".entry") : ptx.index(")", ptx.index(".entry"))]
    found = re.findall(r"\.param (?:\.align \d+ )?\.[a-z](\d+)[^\[,\n]*(?:\[(\d+)\])?", head)
    return [int(count or 1) * int(bits) // 8 for bits, count in found]


def compiled(launch, *arguments):
    """Plain data about the kernel, and the PTX instructions of Hopper's that its text must have."""
    gpu, kept, run, as_told = GPUS["sm_90"], [], JITFunction.run, []
    compiling = compiler.Compiling(gpu)

    def compile_only(function, *args, grid, warmup=False, **named):
        def keep():
            kept.append(run(function, *args, grid=grid, warmup=True, **named))
            return kept[-1]

        compiling.compile(function.__name__, keep)
        return kept[-1]

    def direct(kernel, *others):
        made = Direct(kernel, *others)
        as_told.append(parameters(kernel.asm["ptx"]) == [ctypes.sizeof(each) for each in made.values])
        return made

    with (
        patch.object(JITFunction, "run", compile_only),
        patch.object(hopper_launch, "Direct", direct),
        without_gpu.pass_for(gpu),
    ):
        launch(*arguments)
    at = next(n for n, kernel in enumerate(kept) if "wgmma" in kernel.asm["ptx"])  # beside small ones
    ptx = kept[at].asm["ptx"]
    return asdict(compiling.kernels[at]) | {
        "tma": "cp.async.bulk.tensor" in ptx,
        "setmaxnreg": "setmaxnreg" in ptx,
        "as_the_driver_is_told": all(as_told),
    }


def asked(words):
    """(name, launch, its arguments) of each kernel to compile."""
    for word in words:
        if word in MASKS:
            yield word, attention, *MASKS[word]
        elif word in BACKWARD:
            yield word, backward, *BACKWARD[word]
        elif word in DECODE:
            yield word, decode, *DECODE[word]
        else:
            yield from ((name, block_sparse, int(word), form) for name, form in forms(int(word)).items())
    if "64" in words:
        yield "bfloat16", block_sparse, 64, fast.TOGETHER[64], torch.bfloat16


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        compiler.get_ready(folder)
        for name, *launch in asked(sys.argv[1:]):
            print(json.dumps({name: compiled(*launch)}), flush=True)
