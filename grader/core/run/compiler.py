"""In the runner that compiles: each kernel that a program launches is compiled for a GPU, which need not be here."""

import contextlib
import io
import os
import re
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
from triton import knobs
from triton.runtime import cache
from triton.runtime.errors import OutOfResources

from grader.core.protocol.messages import Compile, Compiled, CompiledKernel, CompileError, Gpu
from grader.core.protocol.program import Branch, Launch, Program, Refused
from grader.core.run.compiled import CompiledKernels
from grader.core.run.replay import LaunchRaised, Replay, StepRaised, place_inputs
from grader.core.worker import replies, without_gpu

TENSOR_MEMORY = 512  # columns of a multiprocessor, where the GPU has it
PTXAS_LINES = re.compile(r"ptxas\S* info|bytes (stack frame|gmem)|^\s*$")  # lines of its log


def get_ready(folder: str) -> None:
    """Before anything is compiled: have Triton compile, and leave nothing behind."""
    knobs.runtime.interpret = False
    os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
    # Half a second of hashing all of Triton, so that another Triton's cache is not taken for this one's: it is empty.
    if hasattr(cache, "triton_key"):
        cache.triton_key = lambda: triton.__version__
    tempfile.tempdir = folder  # what ptxas reads and writes
    if hasattr(knobs.nvidia, "dump_ptxas_log"):
        knobs.nvidia.dump_ptxas_log = True  # registers and spills


def compile_program(kernels: CompiledKernels, request: Compile, program: Program) -> Compiled:
    """The Compiled of a program whose launches compile for the request's GPU and return.

    What stopped it has "launch" where the wrapper may have an answer to it.
    """
    size = request.memory_bytes  # of this process, and of each that it starts, ptxas among them
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))
    flats, _ = place_inputs(request.call.inputs, None, "cpu")
    compiling = Compiling(request.gpu)

    def launch(step: Launch, given: list[Any]) -> None:
        compiling.compile(kernels.kernels[step.kernel].name, lambda: kernels.compiled(step, given))

    error: CompileError | None = None
    try:
        with without_gpu.active_driver(without_gpu.Driver(request.gpu)), torch.no_grad():
            Replay(program, "cpu", launch, compiling.first_that_compiles).run(flats)
    except Refused as refused:
        error = CompileError("language", "Refused", str(refused), refused.line)
    except LaunchRaised as raised:
        error = describe(raised.__cause__, compiling)
        error.launch = raised.failed(error.text)
    except StepRaised as raised:
        cause = raised.__cause__
        error = CompileError("wrapper", type(cause).__name__, str(cause), raised.line)
    return Compiled(compiling.report(), error)


class Compiling:
    """A launch compiles its kernel, as specialised for that launch, and runs nothing.

    failed: (kernel, exception) of the last launch that did not compile. Where a kernel needs more shared memory than
    the GPU has, the launch raises OutOfResources, as it does on that GPU.
    """

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.kernels: list[CompiledKernel] = []
        self.seen: set[int] = set()
        self.failed: tuple[str, Exception] | None = None
        self.tried: dict[str, int] = {}

    def compile(self, name: str, make: Callable[[], Any]) -> None:
        """Note what make() compiles, under the kernel's name; raises what it raises."""
        started, said = time.perf_counter(), io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                compiled = make()
            if id(compiled) not in self.seen:
                self.seen.add(id(compiled))
                self.kernels.append(describe_kernel(compiled, said.getvalue(), self.gpu))
                self.kernels[-1].seconds = round(time.perf_counter() - started, 2)
            self.check_resources(compiled.metadata)
        except Exception as error:
            self.failed = name, error
            raise
        finally:
            print("".join(line for line in said.getvalue().splitlines(True) if not PTXAS_LINES.search(line)), end="")

    def check_resources(self, metadata: Any) -> None:
        limits = {"shared memory": (metadata.shared, self.gpu.shared_bytes)}
        limits["tensor memory"] = (getattr(metadata, "tmem_size", None) or 0, TENSOR_MEMORY)
        for name, (needed, limit) in limits.items():
            if needed > limit:
                raise OutOfResources(needed, limit, name)

    def first_that_compiles(self, choices: Sequence[Branch], run: Callable[[int], Any]) -> int:
        """The choice among configurations: the first that compiles and fits stands for the fastest."""
        failure: Any = None  # there is one: no choice is empty
        for i in range(len(choices)):
            before = len(self.kernels)
            try:
                run(i)
            except Exception as error:
                failure = error
                continue
            finally:
                for entry in self.kernels[before:]:
                    self.tried[entry.kernel] = i + 1
            return i
        raise failure

    def report(self) -> list[CompiledKernel]:
        """Each kernel that was compiled; of one that is tuned, the configuration that was taken."""
        latest: dict[str | int, CompiledKernel] = {}
        for entry in self.kernels:
            entry.configs_tried = self.tried.get(entry.kernel)
            latest[entry.kernel if entry.configs_tried else len(latest)] = entry
        return list(latest.values())


# What is told of a kernel --------------------------------------------------------------------------------------------


def describe_kernel(kernel: Any, log: str, gpu: Gpu) -> CompiledKernel:
    """What is known of one compiled kernel."""
    data, asm = kernel.metadata, kernel.asm
    found = CompiledKernel(data.name, data.shared, gpu.shared_bytes, data.num_warps, data.num_stages)
    for form, text, registers, spilled, size in (
        ("ptx", log, r"Used (\d+) registers", r"(\d+) bytes spill stores", 1),
        ("amdgcn", asm.get("amdgcn", ""), r"\.vgpr_count:\s*(\d+)", r"\.vgpr_spill_count:\s*(\d+)", 4),
    ):
        if form in asm:
            spills = number(spilled, text)
            found.registers, found.spill_bytes = number(registers, text), None if spills is None else size * spills
            found.matrix_instructions = matrix_instructions(asm[form])
    return found


MATRIX_INSTRUCTIONS = (
    r"(wgmma)\.mma_async\.sync\.aligned\.m\d+n\d+k\d+\.\w+\.(\w+)",
    r"(tcgen05\.mma)\S*\.kind::(\w+)",
    r"(?<!w)g?(mma)\.sync\.aligned\.m\d+n\d+k\d+\.row\.col\.\w+\.(\w+)",
    r"v_(mfma|smfmac|wmma)_[a-z]+\d+_\d+x\d+x\d+_?(\w+)",
)


def matrix_instructions(text: str) -> str:
    """The kinds of matrix instructions in the assembly and the type of their operands, like "wgmma f16"; or "none"."""
    found = {" ".join(match.groups()) for pattern in MATRIX_INSTRUCTIONS for match in re.finditer(pattern, text)}
    return ", ".join(sorted(found)) or "none"


def number(pattern: str, text: str) -> int | None:
    found = re.findall(pattern, text)
    return max(map(int, found)) if found else None


# What went wrong -----------------------------------------------------------------------------------------------------


def describe(error: Any, compiling: Compiling) -> CompileError:
    """The CompileError of what stopped a launch; what Triton printed of it, with the student's line, is printed."""
    chain = replies.find_causes(error)
    kernel, failed = compiling.failed or (None, error)
    kind = "resources" if isinstance(failed, OutOfResources) else "compiler"
    return CompileError(kind, type(chain[-1]).__name__, str(failed), 0, kernel)
