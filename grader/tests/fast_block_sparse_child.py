"""The fast form of X1 compiled for a Hopper GPU that need not be here; a JSON line {form: facts of its kernel} each.

Arguments: head dims. A process of its own, since what passes for a GPU here must not outlive it.
"""

import json
import sys
import tempfile
from dataclasses import asdict

from grader.gpus import GPUS
from grader.tests.support import ROOT

sys.path.insert(0, str(ROOT / "grader" / "child"))  # what lies there imports its neighbours by bare name

import compiler
import torch
import without_gpu

from solutions import fast_block_sparse as fast
from solutions import x1_block_sparse

TOKENS = 384


def forms(D):
    """{name: (which lists, keys in a step, consumers, stages, programs)}; the two are one where they are alike."""
    return {str((D, *form[D])): (way, form[D]) for way, form in (("together", fast.TOGETHER), ("alone", fast.ALONE))}


def launch(D, way, form, block, dtype):
    q = torch.zeros(2, 4, TOKENS, D, dtype=dtype)
    tiles = x1_block_sparse.tiles_of_mask(torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril(), block, block)
    fast.choose_lists = lambda prepared, *sizes: (getattr(prepared, way), form)
    fast.block_sparse_attention(q, q[:, :2], q[:, 2:], tiles)


def compiled(D, way, form, block=64, dtype=torch.float16):
    """Plain data about the kernel, and the PTX instructions of Hopper's that its text must have."""
    gpu, kernels = asdict(GPUS["sm_90"]), []

    class Keeping(compiler.Compiling):
        def launch(self, function, compile_it):
            kernel = super().launch(function, compile_it)
            kernels.append(kernel)
            return kernel

    with Keeping(gpu) as compiling, without_gpu.pass_for(gpu):
        launch(D, way, form, block, dtype)
    ptx = kernels[-1].asm["ptx"]
    return compiling.kernels[-1] | {"tma": "cp.async.bulk.tensor" in ptx, "setmaxnreg": "setmaxnreg" in ptx}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        compiler.get_ready(folder)
        for D in map(int, sys.argv[1:]):
            for name, form in forms(D).items():
                print(json.dumps({name: compiled(D, *form)}), flush=True)
        if "64" in sys.argv[1:]:
            form = next(iter(forms(64).values()))
            print(json.dumps({"bfloat16, tiles of 128": compiled(64, *form, 128, torch.bfloat16)}))
