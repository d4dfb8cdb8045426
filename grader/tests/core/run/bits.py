"""Run by test_fast in a process of its own: kernels in the interpreter, made fast or not, as a hash of all their bits.

Prints one JSON line: {kernel: hash}. Arguments: "fast" or "plain", then files.
"""

import hashlib
import importlib.util
import json
import os
import sys
from pathlib import Path

os.environ |= {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
ROOT = Path(__file__).parents[4]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402

from grader.core.interpret import semantics, speedups  # noqa: E402
from grader.kinds.attention import inputs  # noqa: E402
from grader.kinds.registry import PROBLEMS  # noqa: E402

CASES = ("ragged tail", "head dim 128", "scores rising along the keys", "bfloat16")

np.seterr(all="ignore")
torch.set_num_threads(1)
semantics.take_first_config()
if sys.argv[1] == "plain":
    speedups.enable = lambda: None
semantics.enable()


def bits(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    problem, found = PROBLEMS[path.stem[:2]], hashlib.sha256()
    for case in problem.cases:
        if case.name in CASES:
            tensors = [placed.tensor for placed in inputs.make(case, 0)]
            out = getattr(module, problem.entry_point)(*tensors, **case.arguments)
            found.update(out.contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


print(json.dumps({path.stem: bits(path) for path in map(Path, sys.argv[2:])}))
