"""Inside a child: what it tells of an exception and of what came back, and the raw bytes of outputs in a file."""

import linecache
import os
import re
import traceback
from collections.abc import Sequence
from typing import IO, Any

import torch

from grader.core.protocol.messages import Output, Raised

MOST_LINES = 1 << 24
OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


# Exceptions -----------------------------------------------------------------------------------------------------------


def describe_error(error: BaseException, module: str, code: str, gap: str = "") -> Raised:
    """An exception: the root cause, the student's line where it arose, and a gap's name if it is one.

    module: the name of the student's file in tracebacks. code: its text, or that of its kernels.
    gap: the word of an open gap, "" where there is none.
    """
    chain = find_causes(error)
    root = chain[-1]
    text = "\n".join(str(link) for link in reversed(chain))
    named = re.search(rf"{re.escape(gap)} \d+: [^\"\n]+", text) if gap else None
    todo = first_open_gap(code, gap) or named.group(0).strip() if named else None
    frames = [frame for link in chain for frame in traceback.extract_tb(link.__traceback__) if frame.filename == module]
    line = frames[-1].lineno if frames else getattr(root, "lineno", None) or getattr(root, "line", None)
    line = line if type(line) is int and 0 < line < MOST_LINES else None
    file = file_of(root)  # in a file of the grader's a plain exception may be a mistake of ours
    unfinished = bool(todo) or (isinstance(root, NotImplementedError) and file == module)
    return Raised(
        type(root).__name__[:200], str(root)[:2000], line, source=linecache.getline(module, line or 0).strip()[:400],
        todo=todo and todo[:200], unfinished=unfinished, bad_module=type(root).__name__ == "BadModule",
        ours=file.startswith(OURS) and type(root).__module__ == "builtins",
        as_seen=any(getattr(link, "as_seen", False) is True for link in chain),
    )  # fmt: skip


def find_causes(error: BaseException) -> list[BaseException]:
    """[the exception, what caused it ... the root]"""
    chain = [error]
    while cause := chain[-1].__cause__ or (None if chain[-1].__suppress_context__ else chain[-1].__context__):
        chain.append(cause)
        if len(chain) > 50:
            break
    return chain


def first_open_gap(code: str, gap: str) -> str | None:
    """The name of the open gap with the lowest number: which one runs first depends on the case."""
    lines = [line for line in code.splitlines() if not line.lstrip().startswith("#")]
    fails = rf"(?:static_assert\(False, |NotImplementedError\()\"({re.escape(gap)} (\d+): [^\"\n]+)\""
    found = re.findall(fails, "\n".join(lines))
    return min(found, key=lambda gap: int(gap[1]))[0] if found else None


def file_of(error: BaseException) -> str:
    """The file whose code raised the error; "" where none is known."""
    frames = traceback.extract_tb(error.__traceback__)
    return frames[-1].filename if frames else ""


# Outputs --------------------------------------------------------------------------------------------------------------


def write_outputs(outputs: Sequence[Any], device: str) -> list[Output]:
    """Write the bytes of the outputs that are plain tensors on `device`; returns the descriptions."""
    described = [describe_output(output) for output in outputs]
    with open_to_write("outputs.bin") as file:
        for output, words in zip(outputs, described, strict=True):
            if words.plain and words.device == device:
                file.write(raw_bytes(output.detach()))
    return described


def open_to_write(name: str) -> IO[bytes]:
    """The file, for bytes. A link that the submission left there is not followed: it may lead to another's file."""
    return open(name, "wb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o644))


def describe_output(tensor: Any) -> Output:
    if not isinstance(tensor, torch.Tensor):
        named = getattr(tensor, "type", None)  # a program.Other has the name of what the wrapper returned
        return Output(False, (named if isinstance(named, str) else type(tensor).__name__)[:200])
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Output(plain, type(tensor).__name__[:200], list(tensor.shape), dtype, tensor.device.type)


def raw_bytes(tensor: torch.Tensor) -> bytes:
    # One row of stride 1, whatever the tensor's strides are; on the CPU, whatever the module set as default device.
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype, device="cpu")
    flat.copy_(tensor.reshape(-1))
    return flat.view(torch.uint8).numpy().tobytes()
