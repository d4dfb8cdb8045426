"""Inside the child that compiles: each kernel that a wrapper launches is compiled for a GPU, which need not be here."""

import contextlib
import io
import os
import re
import resource
import tempfile
import time
import traceback
from unittest.mock import patch

import extras
import torch
import triton
import without_gpu
from allocations import Allocations
from triton import knobs
from triton.compiler.errors import CompilationError
from triton.runtime import cache
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction

TENSOR_MEMORY = 512  # columns of a multiprocessor, where the GPU has it
OF_PTXAS = re.compile(r"ptxas\S* info|bytes (stack frame|gmem)|^\s*$")  # lines of its log


def get_ready(folder):
    """Before a module is loaded: compile, whatever the module says about the interpreter, and leave nothing behind."""
    knobs.runtime.interpret = False
    os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
    # Half a second of hashing all of Triton, so that another Triton's cache is not taken for this one's: it is empty.
    if hasattr(cache, "triton_key"):
        cache.triton_key = lambda: triton.__version__
    tempfile.tempdir = folder  # what ptxas reads and writes
    if hasattr(knobs.nvidia, "dump_ptxas_log"):
        knobs.nvidia.dump_ptxas_log = True  # registers and spills


def compile_launches(function, request):
    """Call the wrapper on tensors of the request's shapes, for the request's GPU; each launch compiles and returns.

    Returns {"kernels": [facts of each], "error": None or what stopped it}.
    """
    limit_memory(request["memory_bytes"])
    gpu, dtype = request["gpu"], getattr(torch, request["dtype"])
    tensors = [torch.zeros(shape, dtype=dtype) for shape in request["shapes"]]
    compiling, extra = Compiling(gpu), extras.of(request, tensors, Allocations(), "cpu")
    error = None
    with compiling, without_gpu.pass_for(gpu), torch.no_grad():
        try:
            function(*tensors, **request["arguments"], **extra.arguments)
        except Exception as raised:
            error = raised
    return {"kernels": compiling.report(), "error": error and describe(error, compiling, request["module"])}


def limit_memory(size):
    """At most `size` bytes of data for this process and for each that it starts, ptxas among them."""
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))


class Compiling:
    """While open, a launch compiles its kernel, exactly as specialised for that launch, and runs nothing.

    failed: (kernel, exception) of the last launch that did not compile. Where a kernel needs more shared memory than
    the GPU has, the launch raises OutOfResources, as it does on that GPU.
    """

    def __init__(self, gpu):
        self.gpu = gpu
        self.kernels, self.seen, self.failed = [], set(), None
        self.tuned, self.tried = {}, {}

    def __enter__(self):
        compiling, run = self, JITFunction.run

        def compile_only(function, *args, grid, warmup, **kwargs):
            return compiling.launch(function, lambda: run(function, *args, grid=grid, warmup=True, **kwargs))

        self.patches = contextlib.ExitStack()
        self.patches.enter_context(patch.object(JITFunction, "run", compile_only))
        self.patches.enter_context(patch.object(Autotuner, "do_bench", property(self.first_that_compiles)))
        return self

    def __exit__(self, *exc):
        self.patches.close()

    def launch(self, function, compile_it):
        name, started, said = function.__name__, time.perf_counter(), io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                kernel = compile_it()
            if id(kernel) not in self.seen:
                self.seen.add(id(kernel))
                seconds = time.perf_counter() - started
                self.kernels.append(facts_of(kernel, said.getvalue(), self.gpu) | {"seconds": round(seconds, 2)})
            self.check_resources(kernel.metadata)
            return kernel
        except Exception as error:
            self.failed = name, error
            raise
        finally:
            print("".join(line for line in said.getvalue().splitlines(True) if not OF_PTXAS.search(line)), end="")

    def check_resources(self, metadata):
        limits = {"shared memory": (metadata.shared, self.gpu["shared_bytes"])}
        limits["tensor memory"] = (getattr(metadata, "tmem_size", None) or 0, TENSOR_MEMORY)
        for name, (needed, limit) in limits.items():
            if needed > limit:
                raise OutOfResources(needed, limit, name)

    def first_that_compiles(self, autotuner):
        """The benchmark of triton.autotune: the first config that compiles and fits is the fastest, others are left."""

        def benchmark(kernel_call, quantiles=None):
            if self.tuned.get(id(autotuner)) is autotuner.nargs:
                return [float("inf")] * 3
            name = autotuner.base_fn.__name__
            self.tried[name] = self.tried.get(name, 0) + 1
            kernel_call()
            self.tuned[id(autotuner)] = autotuner.nargs
            return [1.0] * 3

        return benchmark

    def report(self):
        """The facts of each kernel; of one that was tuned, the config that was taken, and how many were tried."""
        latest = {}
        for entry in self.kernels:
            tried = self.tried.get(entry["kernel"])
            key = entry["kernel"] if tried else len(latest)
            latest[key] = entry | ({"configs_tried": tried} if tried else {})
        return list(latest.values())


# What is told of a kernel --------------------------------------------------------------------------------------------


def facts_of(kernel, log, gpu):
    """Plain data about one compiled kernel; None where it cannot be known."""
    data, asm = kernel.metadata, kernel.asm
    facts = {
        "kernel": data.name, "registers": None, "spill_bytes": None,
        "shared_bytes": data.shared, "shared_limit": gpu["shared_bytes"], "matrix_instructions": None,
        "num_warps": data.num_warps, "num_stages": data.num_stages,
    }  # fmt: skip
    if "ptx" in asm:
        facts["registers"] = number(r"Used (\d+) registers", log)
        facts["spill_bytes"] = number(r"(\d+) bytes spill stores", log)
        facts["matrix_instructions"] = matrix_instructions(asm["ptx"])
    elif "amdgcn" in asm:
        spilled = number(r"\.vgpr_spill_count:\s*(\d+)", asm["amdgcn"])
        facts["registers"] = number(r"\.vgpr_count:\s*(\d+)", asm["amdgcn"])
        facts["spill_bytes"] = None if spilled is None else 4 * spilled
        facts["matrix_instructions"] = matrix_instructions(asm["amdgcn"])
    return facts


MATRIX_INSTRUCTIONS = (
    r"(wgmma)\.mma_async\.sync\.aligned\.m\d+n\d+k\d+\.\w+\.(\w+)",
    r"(tcgen05\.mma)\S*\.kind::(\w+)",
    r"(?<!w)g?(mma)\.sync\.aligned\.m\d+n\d+k\d+\.row\.col\.\w+\.(\w+)",
    r"v_(mfma|smfmac|wmma)_[a-z]+\d+_\d+x\d+x\d+_?(\w+)",
)


def matrix_instructions(text):
    """The kinds of matrix instructions in the assembly and the type of their operands, like "wgmma f16"; or "none"."""
    found = {" ".join(match.groups()) for pattern in MATRIX_INSTRUCTIONS for match in re.finditer(pattern, text)}
    return ", ".join(sorted(found)) or "none"


def number(pattern, text):
    found = re.findall(pattern, text)
    return max(map(int, found)) if found else None


# What went wrong -----------------------------------------------------------------------------------------------------


def describe(error, compiling, module):
    """What stopped the wrapper, as plain data: its kind, the cause, and the student's line, 0 where it is not known.

    kind: "language" for an error in the kernel's text, "resources" where it does not fit, "compiler" for what Triton
    or ptxas said later, "wrapper" where no kernel was compiling.
    """
    chain = [error]
    while (following := chain[-1].__cause__ or chain[-1].__context__) and following not in chain:
        chain.append(following)
    kernel, failed = compiling.failed or (None, None)
    found = {"kernel": kernel, "exception": type(chain[-1]).__name__, "text": str(chain[-1]), "line": 0}
    if failed is None or failed not in chain:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == module]
        return found | {"kind": "wrapper", "line": frames[-1].lineno if frames else 0}
    inner = [link for link in chain if isinstance(link, CompilationError)]
    if inner:
        found |= {"text": inner[-1].error_message or str(chain[-1])}
        return found | {"kind": "language", "line": place([(link.src, link.node) for link in inner], module)}
    if isinstance(failed, OutOfResources):
        return found | {"kind": "resources", "needed": failed.required, "limit": failed.limit, "what": failed.name}
    return found | {"kind": "compiler", "text": str(failed), "line": place([node_in(failed)], module)}


def node_in(error):
    """(source, node) of the kernel's text that Triton was looking at when it raised an error without a place."""
    source = node = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        seen = frame.f_locals
        source = getattr(seen.get("self"), "src", None) or source
        node = seen["node"] if hasattr(seen.get("node"), "lineno") else node
    return source, node


def place(nodes, module):
    """The line in the module of the last of these (source of a kernel, node) that lies there; 0 without."""
    with open(module, encoding="utf-8") as file:
        text = file.read()
    for source, node in reversed(nodes):
        start = text.find(source) if isinstance(source, str) else -1
        if start >= 0 and hasattr(node, "lineno"):
            return text[:start].count("\n") + node.lineno
    return 0
