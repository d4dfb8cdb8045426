"""What observers on the machine report of calls of whole submissions, and what a program holds."""

import contextlib
import importlib.util
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest
import torch

pytest.importorskip("triton")
from triton import knobs
from triton.runtime.jit import JITFunction

from grader import registry
from grader.core.machine.buffers import Memory
from grader.core.machine.execution import Machine, load
from grader.core.machine.held import most_held
from grader.core.machine.lines import Lines
from grader.core.machine.report import Report
from grader.core.run.allocations import GUARD, Allocations
from grader.core.run.replay import place_inputs
from grader.kinds.attention import inputs as attention
from grader.kinds.attention.cases import Case
from grader.kinds.decode import inputs as decode
from grader.kinds.decode.cases import DecodeCase
from grader.tests.core.machine.lowering import lowered
from grader.tests.support import ROOT, solution

KINDS = ROOT / "grader" / "kinds"
SMALL = {"B": 2, "N": 97, "D": 16, "layout": "mixed", "dtype": "bfloat16"}
SHARED = SMALL | {"Hq": 4, "Hkv": 2, "causal": True}
CASES = {
    "p3": SMALL | {"Hq": 2},
    "p4": SMALL | {"Hq": 2, "causal": True, "tiles": None},
    "p5": SHARED,
    "p6": SHARED | {"window": 20},
    "p7": SHARED | {"window": 20, "sinks": 5},
    "x4": {"lengths": [37, 64, 150], "page": 16, "window": 90, "Nq": 2, "layout": "slice", "rest": "NaN"},
}


class Job(msgspec.Struct):
    """A call of one submission: its file, and the fields of a case."""

    file: str
    case: dict

    @property
    def problem(self):
        return Path(self.file).name[:2]

    def call(self):
        """(name of the entry point, TensorSpecs of what it is given, their bytes, other arguments)."""
        if self.problem == "x4":
            case = DecodeCase("observed", **{**self.case, "lengths": tuple(self.case["lengths"])})
            names, placed = ("q", "k_cache", "v_cache"), decode.make(case, 0)
            tensors = dict(zip(names, placed, strict=True)) | decode.placed_beside(case)
        else:
            case = Case("observed", **self.case)
            tensors = dict(zip("qkv", attention.make(case, 0), strict=True))
        specs = [each.describe(name) for name, each in tensors.items()]
        data = bytearray(b"".join(each.raw() for each in tensors.values()))
        return registry.EVERY[self.problem].entry_point, specs, data, case.arguments

    def observer(self):
        """The class of the course's own observer, as a runner makes it of a file's text."""
        path = KINDS / "attention" / "observer.py" if self.problem != "x4" else KINDS.parent / "engine" / "row_log.py"
        space = {"__name__": "observer"}
        exec(compile(path.read_text(encoding="utf-8"), path, "exec"), space)
        return space["OBSERVER"]


def load_file(file):
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def launched_by(launch):
    """While open, launches of kernels call launch(text, entry, grid, arguments, their names)."""

    def run(kernel, *args, grid, **named):
        given = dict(zip(kernel.arg_names, args, strict=False)) | named
        constants, arguments, names = {}, [], []
        for parameter in kernel.params:
            value = given.get(parameter.name, parameter.default)
            if parameter.is_constexpr or value is None:
                constants[parameter.name] = getattr(value, "value", value)
            else:
                arguments.append(value)
                names.append(parameter.name)
        with torch._C._DisableTorchDispatch():
            text, entry, values = lowered(kernel, arguments, constants)
            sizes = grid(given) if callable(grid) else grid
            launch(text, entry, (*sizes, 1, 1)[:3], values, names)

    compiles = property(lambda knobs: False, lambda knobs, value: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(knobs.runtime), "interpret", compiles, raising=False)
        patch.setenv("TRITON_INTERPRET", "1")  # the small tiles
        patch.setattr(JITFunction, "run", run)
        yield


def report_of(job, chunk=None):
    """The TraceReport of a job."""
    entry_point, specs, data, arguments = job.call()
    _, tensors = place_inputs(specs, data, "cpu")
    allocations, report = Allocations(), Report(tensors, job.observer())

    def launch(text, entry, grid, values, names):
        machine = Machine(text, entry, report.observers)
        for observer in report.observers:
            observer.lines = Lines(machine.module.locations, job.file, Path(job.file).read_text(encoding="utf-8"))
        fences = {base.untyped_storage().data_ptr(): (GUARD, GUARD + size) for base, size, _ in allocations.buffers}
        machine.launch(grid, values, chunk, Memory(tensors, fences), names)

    with launched_by(launch):
        module = load_file(job.file)
        with torch.no_grad(), allocations:
            getattr(module, entry_point)(**tensors, **arguments)
    return report.make()


@pytest.fixture
def job(tmp_path):
    """job(problem, text, case) -> Job."""

    def made(problem, text, case):
        file = tmp_path / f"{problem}_observed.py"
        file.write_text(text, encoding="utf-8")
        return Job(str(file), case)

    return made


def plain(report):
    """A report as data, each list of programs in the order of their places."""
    data = msgspec.json.decode(msgspec.json.encode(report))
    for table in data["addresses"]:
        table["programs"].sort(key=lambda each: each["place"])
    own = data["own"]
    if own and "tiles" in own[0]:
        own = sorted(({**each, "program": None} for each in own), key=str)
    return data | {"own": own}


@pytest.mark.parametrize("problem", CASES)
def test_nothing_depends_on_which_programs_run_together(problem, job):
    made = job(problem, solution(problem), CASES[problem])
    assert plain(report_of(made, chunk=3)) == plain(report_of(made))


TOUCH = """
import torch, triton
import triton.language as tl

@triton.jit
def touch(Q, O, n, D: tl.constexpr):
    row = tl.program_id(0)
    d = tl.arange(0, D)
    {body}

def flash_attention_forward(q, k, v, is_causal=False):
    o = torch.empty_like(q)
    touch[(q.shape[2],)](q, o, q.shape[2], q.shape[3])
    return o
"""
COPY = "tl.store(O + row * D + d, tl.load(Q + row * D + d))"
# name: (body, kind of fault, argument, lanes, where, programs, the block's first element and steps)
FAULTS = {
    "before the start": (COPY.replace("O + row * D", "O - row * D"),
                         "out-of-bounds store", "O", 64, "whole", [(1, 0, 0)], (-16, [1])),
    "nowhere": (COPY.replace("Q + row", "Q + (1 << 33) + row"),
                "out-of-bounds load", "Q", 80, "whole", [(0, 0, 0)], (1 << 33, [1])),
    "lanes that lie scattered": (COPY.replace("row * D + d))", "row * D + (d % 2) * 4096))"),
                                 "out-of-bounds load", "Q", 40, "end", [(0, 0, 0)], (0, [4096])),
    "one element by all": (COPY.replace("O + row * D", "O"),
                           "write of another program's element", "O", 64, "", [(0, 0, 0), (1, 0, 0)], None),
    "an overflow": ("far = (row + 50000) * 50000\n" + COPY.replace("d))", "d), mask=d < tl.maximum(far, D))"),
                    "int32 overflow", "?", 5, "", [], None),
    "a hint of a number": ("row = tl.multiple_of(row, 2)\n" + COPY,
                           "hint that does not hold", "tl.multiple_of", 2, "", [], None),
    "a hint of a block": ("x = tl.load(tl.max_contiguous(Q + row * D + d // 2, D))\ntl.store(O + row * D + d, x)",
                          "hint that does not hold", "tl.max_contiguous", 75, "", [], None),
    "a call of several lines": ("tl.store(\n    O + row * D + d + 1,\n    tl.load(\n    Q + row * D + d,\n    ),\n)",
                                "out-of-bounds store", "O", 1, "end", [(4, 0, 0)], (65, [1])),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_where_it_is(name, job):
    body, kind, argument, lanes, where, programs, at = FAULTS[name]
    text = TOUCH.format(body=textwrap.indent(body, "    ").strip())
    (fault,) = report_of(job("p3", text, {"N": 5, "D": 16})).faults
    found = fault.at and (fault.at.first, fault.at.steps)
    assert (fault.kind, fault.argument, fault.lanes, fault.where, fault.programs) == (
        kind, argument, lanes, where, programs
    )  # fmt: skip
    assert found == at and (fault.line == 9 or kind.startswith("hint"))


STEP = """
import torch, triton
import triton.language as tl

@triton.jit
def kernel(Q, K, O, n, D: tl.constexpr, B: tl.constexpr):
    d, at = tl.arange(0, D), tl.arange(0, B)
    q_start = tl.program_id(0) * B
    q = tl.load(Q + (q_start + at)[:, None] * D + d[None, :])
    acc = tl.zeros([B, D], tl.float32)
    {first}
    for start in range(0, {end}, B):
        {body}
    tl.store(O + (q_start + at)[:, None] * D + d[None, :], acc.to(O.dtype.element_ty))

def flash_attention_forward(q, k, v, is_causal=False):
    o = torch.empty_like(q)
    kernel[(q.shape[2] // 16,)](q, k, o, q.shape[2], q.shape[3], 16)
    return o
"""
LOAD = "tl.load(K + ({} + at)[:, None] * D + d[None, :])"
FIRST = f"k = {LOAD.format(0)}"
NEXT = f"""
after = {LOAD.format("(start + B) % n")}
scores = tl.dot(q, tl.trans(k))
{{}}
acc += tl.dot(scores.to(k.dtype), k)
k = after
"""
HIDDEN = 'scores = tl.where(at[None, :] + start <= at[:, None], scores, float("-inf"))'
TERM = 'scores += tl.where({}, 0.0, float("-inf"))'
ALL = [[0, 16, 32, 48]] * 4
UP_TO = [[0], [0, 16], [0, 16, 32], [0, 16, 32, 48]]
# name: (end of the loop, before it, its body, the tiles that each tile of queries visits, whether a mask hides keys)
VISITS = {
    "the next tile loaded first": ("n", FIRST, NEXT.format(""), ALL, False),
    "rounds of different number": ("q_start + B", FIRST, NEXT.format(HIDDEN), UP_TO, True),
    "a term that hides": ("n", FIRST, NEXT.format(TERM.format("at[None, :] <= at[:, None]")), ALL, True),
    "a term that hides nothing": ("n", FIRST, NEXT.format(TERM.format("start + at[None, :] < n")), ALL, False),
    "a guard of rows": (
        "n", FIRST, NEXT.format("scores = tl.where(tl.max(scores, 1)[:, None] > 0.0, scores, 0.0)"), ALL, False,
    ),
    "a tile chosen by a condition": ("n", FIRST, f"""
if start == q_start:
    k = {LOAD.format("start")}
acc += tl.dot(tl.dot(q, tl.trans(k)).to(k.dtype), k)
""", [[0], [0, 16], [0, 32], [0, 48]], False),
    "products without a dot": ("n", "", f"""
k = {LOAD.format("start")}
scores = tl.sum(k[:, None, :].to(tl.float32) * q[None, :, :], 2)
acc += tl.sum(scores[:, :, None] * k[:, None, :], 0)
""", ALL, False),
    "keys transposed": ("n", "", f"""
k = {LOAD.format("start")}
acc += tl.trans(tl.dot(tl.trans(k), tl.dot(k, tl.trans(q)).to(k.dtype)))
""", ALL, False),
    "q scaled in each round": ("n", "", f"""
k = {LOAD.format("start")}
q = (q * 0.5).to(k.dtype)
acc += tl.dot(tl.dot(q, tl.trans(k)).to(k.dtype), k)
""", ALL, False),
}  # fmt: skip


@pytest.mark.parametrize("name", VISITS)
def test_tiles_of_keys_are_followed_to_the_queries(name, job):
    end, first, body, tiles, masked = VISITS[name]
    text = STEP.format(end=end, first=first, body=textwrap.indent(body.strip(), "        ").strip())
    own = plain(report_of(job("p3", text, {"N": 64, "D": 16})))["own"]
    assert [[first for first, _ in each["tiles"]] for each in own] == tiles
    assert all(each["masked"] == (each["tiles"] if masked else []) for each in own)


HELD = """
@triton.jit
def kept(X, O, N: tl.constexpr, KEEP: tl.constexpr):
    at = tl.arange(0, 64)
    total = tl.load(X + at)
    tiles = ()
    for i in tl.static_range(N):
        tile = tl.load(X + i * 64 + at)
        total += tile
        if KEEP:
            tiles = tiles + (tile[None, :],)
    for i in tl.static_range(len(tiles)):
        total += tl.sum(tiles[i], 0)
    tl.store(O + at, total)

@triton.jit
def looped(X, O, n, N: tl.constexpr, KEEP: tl.constexpr):
    at = tl.arange(0, 64)
    unused = tl.load(X + at)
    total = tl.zeros([64], tl.float32)
    for i in range(n):
        total += tl.load(X + i * N + at)
    tl.store(O + at, total + unused if KEEP else total)
"""


@pytest.mark.parametrize("kernel", ["kept", "looped"])
def test_what_a_program_holds_is_what_it_still_needs(kernel, tmp_path):
    file = tmp_path / "held.py"
    file.write_text("import triton\nimport triton.language as tl\n" + HELD, "utf-8")
    made, x = getattr(load_file(str(file)), kernel), torch.zeros(64)

    def held(**constants):
        text, entry, _ = lowered(made, [x, x, *([64] if kernel == "looped" else [])], constants)
        return most_held(load(text, entry), entry)

    few, many = (held(N=N, KEEP=True) - held(N=N, KEEP=False) for N in (4, 9))
    if kernel == "looped":  # one block more, however long
        assert few == many == 64
    else:
        assert abs(few - 3 * 64) <= 1 and abs(many - 8 * 64) <= 1  # and a number more, or less
