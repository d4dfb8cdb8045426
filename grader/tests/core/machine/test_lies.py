"""IR and programs that no front end makes, followed by all observers: refused, stopped, or only another program."""

# ruff: noqa: E501  (tables)

import json
import random
import re

import pytest
import torch

from grader.core.machine import execution
from grader.core.machine.bad_numbers import Follower
from grader.core.machine.buffers import Memory
from grader.core.machine.execution import Machine, Stopped
from grader.core.machine.lines import Lines
from grader.core.machine.report import Report
from grader.core.protocol.program import Malformed, Refused, read
from grader.core.run import machine_launches
from grader.core.run.allocations import Allocations
from grader.core.run.replay import LaunchRaised, Replay, StepRaised, settled
from grader.tests.core.machine import entries, lowering
from grader.tests.core.machine import test_machine as texts
from grader.tests.core.machine.language_kernels import KERNELS
from grader.tests.core.machine.test_observers import Job
from grader.tests.core.machine.test_text import TEXT
from grader.tests.support import thorough_but

HUGE = "9" * 5000
TYPES = """i1 i8 i32 i64 f16 f32 f64 f8E5M2 index !tt.ptr<f32> !tt.ptr<i1> !tt.ptr<!tt.ptr<i32>> tensor<8xi32>
    tensor<1xi32> tensor<16xf32> tensor<4x4xf32> tensor<8x!tt.ptr<f32>> !tt.tensordesc<8x8xf32> tensor<0xi32>
    tensor<1099511627776xi8>"""
NUMBERS = f"0 1 -1 7 4294967296 1099511627776 18446744073709551616 {HUGE} 1e400 0xFF x true"
PLACES = (
    (r"!tt\.(?:ptr|tensordesc)<[^ ,()]*>|tensor<[^ ,()]*>|\b(?:i\d+|b?f\d+)\b", TYPES.split()),
    (r"(?<![\w%#])-?\d+|\btrue\b|\bfalse\b", NUMBERS.split()), (r"%[\w.$#\-]+", []),
)  # fmt: skip


def observers_of(inputs, kind):
    report = Report(inputs, Job(f"{kind}.py", {}).observer())
    return report, [*report.observers, Follower("")]


def run(text, entry, grid, arguments, kind="p3"):
    """A launch; the first tensor is an input of the call."""
    first = next((x for x in arguments if isinstance(x, torch.Tensor) and x.numel() % 8 == 0), torch.zeros(8))
    inputs = {"q" if kind == "p3" else "k_cache": first.view(1, -1, 2, 4)}
    report, observers = observers_of(inputs, kind)
    made = Machine(text, entry, observers)
    for each in observers:
        each.lines = Lines(made.module.locations, "p3.py", TEXT)
    made.launch(grid, arguments, memory=Memory(inputs, {}))
    assert not report.make().failed


def lied(text, draw):
    """The text with a type, a number or a name that is another one, in one place or in all of a line."""
    lines = text.split("\n")
    at = draw.choice([i for i, line in enumerate(lines) if not line.startswith("#")])
    pattern, others = draw.choice(PLACES)
    line, mark, location = lines[at].partition(" loc(")
    if found := list(re.finditer(pattern, line)):
        one, new = draw.choice(found), draw.choice(others + re.findall(pattern, text))
        line = line.replace(one[0], new) if draw.random() < 0.4 else line[: one.start()] + new + line[one.end() :]
    lines[at] = line + mark + location
    return "\n".join(lines)


@pytest.mark.parametrize("seed", thorough_but([0], range(25)))
def test_lies_in_kernels_of_the_whole_language(seed, monkeypatch):
    """200 of each seed."""
    monkeypatch.setattr(execution, "STEPS", 20_000)
    draw, ran = random.Random(seed), 0
    known = [each for each in KERNELS if any(each.cases(lowering.VERSION)) and not each.refused]
    for number in range(200):
        entry = draw.choice(known)
        given = entries.inputs(entry, next(entry.cases(lowering.VERSION)), False, lowering.described)
        try:
            text, name, arguments = lowering.lowered(entry.kernel, given, entry.constants, entry.options)
            run(lied(text, draw), name, (*entry.grid, 1, 1)[:3], arguments, ("p3", "x4")[number % 2])
            ran += 1
        except (Refused, Stopped):
            continue
    assert 5 < ran < 195


# Whole texts ----------------------------------------------------------------------------------------------------------

MILLION = "tensor<1048576xi32>"
RANGE = f"%r = tt.make_range {{end = 1048576 : i32, start = 0 : i32}} : {MILLION}\n"
EVERYWHERE = f"""%c = arith.constant dense<1099511627776> : {MILLION.replace("i32", "i64")}
    %e = arith.extsi %r : {MILLION} to {MILLION.replace("i32", "i64")}
    %f = arith.muli %e, %c : {MILLION.replace("i32", "i64")}
    %p = tt.int_to_ptr %f : {MILLION.replace("i32", "i64")} -> tensor<1048576x!tt.ptr<i32>>
    tt.store %p, %r : tensor<1048576x!tt.ptr<i32>>
"""
SCAN = f"""%s = "tt.scan"(%r) <{{axis = 0 : i32, reverse = false}}> ({{
    ^bb0(%y: i32, %z: i32):
    BODY
    tt.scan.return %v : i32
    }}) : ({MILLION}) -> {MILLION}
"""
FUNCTION = "tt.func private @f{}(%a: i32) -> i32 attributes {{noinline = true}} {{\n{}\ntt.return %b : i32\n}}\n"
CALL = "%{} = tt.call @f{}(%a) : (i32) -> i32\n"
IS = "%t = arith.cmpi eq, %pid, %c0 : i32\n"


def far(offset):
    return f"""%o{offset % 97} = arith.constant {offset} : i64
    %b{offset % 97} = tt.bitcast %x : !tt.ptr<i32> -> !tt.ptr<i8>
    %q{offset % 97} = tt.addptr %b{offset % 97}, %o{offset % 97} : !tt.ptr<i8>, i64
    %w{offset % 97} = tt.bitcast %q{offset % 97} : !tt.ptr<i8> -> !tt.ptr<i32>
    %l{offset % 97} = tt.load %w{offset % 97} : !tt.ptr<i32>
    tt.store %w{offset % 97}, %c1 : !tt.ptr<i32>
"""


def calls(count, each):
    return "".join(FUNCTION.format(i, each(i + 1)) for i in range(count)) + FUNCTION.format(
        count, "%b = arith.addi %a, %a : i32"
    )


WHOLE = {
    "deep conditions": IS + "scf.if %t {\n" * 5000 + "}\n" * 5000,
    "many returns": "".join(
        f"%k{i} = arith.constant {i} : i32\n%t{i} = arith.cmpi eq, %pid, %k{i} : i32\n"
        f"cf.cond_br %t{i}, ^r{i}, ^n{i}\n^r{i}:\ntt.return\n^n{i}:\n" for i in range(700)),
    "a jump back": "cf.br ^a\n^a:\ncf.br ^a\n^b:", "many jumps": "".join(f"cf.br ^b{i}\n^b{i}:\n" for i in range(9000)),
    "calls in calls": ("%a = arith.addi %c0, %c0 : i32\n" + CALL.format("z", 0), calls(400, lambda i: CALL.format("b", i))),
    "calls twice": ("%a = arith.addi %c0, %c0 : i32\n" + CALL.format("z", 0),
                    calls(50, lambda i: CALL.format("b", i) + CALL.format("c", i))),
    "many ranges": "".join(RANGE.replace("%r", f"%r{i}") for i in range(4000)),
    "many blocks": RANGE + "".join(f"%v{i} = arith.addi %r, %r : {MILLION}\n" for i in range(4000)),
    "a long scan": RANGE + SCAN.replace("BODY", "%v = arith.addi %y, %z : i32"),
    "blocks in a scan": RANGE + SCAN.replace("BODY", f"%w = arith.addi %r, %r : {MILLION}\n%v = arith.addi %y, %z : i32"),
    "stores in a scan": RANGE + SCAN.replace("BODY", "tt.store %at, %y : !tt.ptr<i32>\n%v = arith.addi %y, %z : i32"),
    "loops in a scan": RANGE + SCAN.replace("BODY", "%v = scf.for %i = %c0 to %y step %c1 iter_args(%g = %z) -> (i32)  : i32 {\n"
                                           "scf.yield %i : i32\n}"),
    "addresses everywhere": RANGE + EVERYWHERE,
    "atomics on one": f"{RANGE}%p = tt.splat %x : !tt.ptr<i32> -> tensor<1048576x!tt.ptr<i32>>\n%o = tt.atomic_rmw add, acq_rel, gpu, "
                      f"%p, %r : (tensor<1048576x!tt.ptr<i32>>, {MILLION}) -> {MILLION}\n",
    "a loop of 2^62": "%l = arith.extsi %pid : i32 to i64\n%h = arith.constant 4611686018427387904 : i64\n"
                      "%s = arith.constant 1 : i64\nscf.for %i = %l to %h step %s  : i64 {\n}\n",
    "a loop that never ends": "%t = arith.constant true\nscf.while : () -> () {\nscf.condition(%t)\n} do {\n}\n",
    "far addresses": "".join(map(far, ((1 << 63) - 4, -(1 << 63), (1 << 40) - 4, -4, 92, 93, 96, 1 << 39))),
    "a long type": "%a = arith.constant 0 : " + "!tt.ptr<" * 10000 + "i32" + ">" * 10000,
    "many attributes": "%a = arith.addi %c0, %c0 {" + ", ".join(f"a{i} = 1 : i32" for i in range(9000)) + "} : i32",
    "many results": f"%a:{HUGE} = arith.constant 1 : i32", "quotes": 'tt.print "' + '\\"' * 99999,
    "a flood": RANGE + f'tt.print " x" {{hex = false, isSigned = array<i32: 1>}} : %r : {MILLION}\n' * 20,
    "no characters": '%t = arith.constant false\ntt.assert %t, "\ud800\x1b[2J\\" }{ %x" : i1',
    "scopes and values": IS + "".join(f"%v{i} = arith.addi %c0, %c1 : i32\n" for i in range(4000)) + "scf.if %t {\n}\n" * 9000
                         + "".join(f"%w{i} = arith.addi %v{i}, %v{i} : i32\n" for i in range(4000)),
    "returns and values": "".join(f"%v{i} = arith.addi %c0, %c1 : i32\n" for i in range(4000)) + IS + "".join(
        f"cf.cond_br %t, ^r, ^n{i}\n^n{i}:\n" for i in range(9000)) + "cf.br ^r\n^r:\n"
        + "".join(f"%w{i} = arith.addi %v{i}, %v{i} : i32\n" for i in range(4000)),
    "many scopes": IS + "".join(f"%v{i} = arith.addi %c0, %c1 : i32\n" for i in range(2000)) + "scf.if %t {\n}\n" * 2000,
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_a_forged_text_ends_soon(name, monkeypatch):
    monkeypatch.setattr(execution, "STEPS", 20_000)
    monkeypatch.setattr(execution, "ELEMENTS", 50_000_000)
    body, more = WHOLE[name] if isinstance(WHOLE[name], tuple) else (WHOLE[name], "")
    x = torch.zeros(24, dtype=torch.int32)
    for kind in ("p3", "x4"):
        try:
            run(texts.kernel(texts.HEAD + body, more=more), "k", (3, 1, 1), [x, 2], kind)
        except (Refused, Stopped):
            continue


LINES = ("/x/../p3.py", "p3.py\x00", "\ud800\u202e", "p3.py", 0, 1 << 40, HUGE)


@pytest.mark.parametrize("lie", LINES)
def test_locations_that_lie(lie):
    was = "/home/ada/p3.py" if isinstance(lie, str) and lie != HUGE else ":12:"
    text = TEXT.replace(was, f":{lie}:" if was == ":12:" else lie).replace("(#loc2 at #loc3)", "(#loc4 at #loc4)")
    run(text, "kernel", (1, 1, 1), [torch.arange(24.0), 16])


@pytest.mark.parametrize("grid", [(1 << 31, 1, 1), (1 << 31,) * 3, (0, 0, 0), (1, 0, 5), (-1, 1, 1)])
@pytest.mark.parametrize("given", [16, -1 << 63, 1 << 70, float("nan"), float("inf"), True, None, "16", torch.zeros(2)])
def test_launches_that_lie(grid, given):
    x = torch.arange(24.0)
    try:
        run(TEXT, "kernel", grid, [x, given])
    except Refused:
        assert x.equal(torch.arange(24.0))


# Programs -------------------------------------------------------------------------------------------------------------


def tensor(storage, sizes, **named):
    return {
        "is": "tensor",
        "storage": storage,
        "dtype": "float32",
        "sizes": sizes,
        "strides": [1] * len(sizes),
        "offset": 0,
    } | named


def launch(*args):
    return {"is": "launch", "kernel": 0, "number": 0, "grid": [1, 1, 1], "args": list(args), "names": ["a"] * len(args),
            "unspecialized": [], "options": {}, "line": 3}  # fmt: skip


def program():
    empty = {"is": "operation", "namespace": "aten", "op": "empty", "overload": "memory_format", "args": [[64]], "line": 2,
             "kwargs": {"dtype": {"is": "dtype", "name": "float32"}}, "out": [tensor(1, [64])]}  # fmt: skip
    return {"version": 3, "storages": [{"is": "input", "bytes": 256, "name": "q"}, {"is": "made", "bytes": 256}], "setup": [], "stale": [], "steps": [empty, launch(tensor(1, [64]), 16)], "returns": [tensor(1, [64])], "several": False,
            "kernels": [{"name": "kernel", "file": "p3.py", "line": 1, "text": TEXT}]}  # fmt: skip


def described(shape, strides, block=(4, 4), **named):
    base = tensor(1, [64]) | named
    return {
        "is": "descriptor",
        "base": base,
        "shape": shape,
        "strides": strides,
        "block": list(block),
        "padding": "nan",
    }


ODD = [-1, 0, 1, 2, 7, 1 << 31, 1 << 40, 1 << 63, 10**30, 1.5, "x", "a/b", "\x00", None, True, [], {}, [1], [0, 0, 0], [1 << 31] * 3]  # fmt: skip
FREE = {"is": "free", "storages": [1, 1]}
WHERE = """steps.1.kernel steps.1.line steps.1.args steps.1.args.0 steps.1.args.1 steps.1.args.0.storage steps.1.args.0.offset
    steps.1.args.0.sizes steps.1.args.0.strides steps.1.names steps.1.grid steps.1.options steps.1.unspecialized storages.0.bytes
    storages.1.bytes storages.0.name returns.0.storage returns.0.offset returns.0.sizes kernels.0.text kernels.0.name kernels.0.file
    kernels.0.line steps.0.op steps.0.args.0 steps.0.out.0.sizes steps.0.out.0.offset stale several version kernels steps"""
CHANGES = [(place, odd) for place in WHERE.split() for odd in ODD] + [
    ("storages.0", {"is": "old", "bytes": 1 << 45}), ("steps.1", FREE), ("steps.0", FREE), ("setup", [launch(tensor(0, [64]), 4)]), ("steps.1.args.0.dtype", "complex64"),
    ("steps.1.args.0", tensor(0, [64])), ("steps.1.args.0", tensor(0, [8, 8])), ("steps.1.args.0", tensor(1, [64], dtype="int8")),
    ("steps.1.args.0", tensor(1, [9], strides=[7])), ("steps.1.args.1", {"is": "float", "hex": "nan"}),
    ("steps.1.options", {"ir_override": "/etc/passwd"}), ("steps.1.options", {"num_warps": 1 << 62}),
    ("steps.1", {"is": "choice", "branches": [{"config": "", "steps": [FREE]}], "line": 1}),
    *(("steps.1.args.0", described(*each)) for each in (([8], [1]), ([8, 8], [8, 1]), ([1 << 40] * 2, [0, 1 << 40]), ([8], [1, 1]))),
]  # fmt: skip
DESCRIBED = """module {
  tt.func public @kernel(%d: !tt.tensordesc<4x4xf32>, %n: i32) attributes {noinline = false} {
    %v = tt.descriptor_load %d[%n, %n] : !tt.tensordesc<4x4xf32> -> tensor<4x4xf32>
    tt.descriptor_store %d[%n, %n], %v : !tt.tensordesc<4x4xf32>, tensor<4x4xf32>
    tt.return
  }
}
"""
SHAPES = [
    ([8, 8], [8, 1]),
    ([8], [1]),
    ([8, 8], [1]),
    ([0, 0], [0, 0]),
    ([1 << 40] * 2, [1 << 40, 0]),
    ([8] * 3, [1] * 3),
]


def replayed(forged):
    """Run it as a runner does."""
    q = torch.arange(64.0)
    inputs = {"q": q.view(1, 2, 8, 4)}
    report, observers = observers_of(inputs, "p3")
    try:
        made = read(forged)
        kernels = machine_launches.MachineLaunches(made.kernels, inputs, Allocations(), {"p3.py": TEXT}, observers)
        replay = Replay(settled(made, 0), "cpu", kernels.launch)
        replay.run({"q": q})
        assert not report.make().failed
    except LaunchRaised as raised:
        assert isinstance(raised.__cause__, machine_launches.Stopped)
    except (Malformed, Refused, StepRaised):
        return


@pytest.mark.parametrize("part", range(4))
def test_a_forged_program(part):
    for place, odd in CHANGES[part::4]:
        forged = program()
        *way, last = (int(word) if word.isdigit() else word for word in place.split("."))
        inner = forged
        for word in way:
            inner = inner[word]
        inner[last] = odd
        replayed(json.dumps(forged).encode())


@pytest.mark.parametrize("start", [0, -3, 7, (1 << 31) - 1])
@pytest.mark.parametrize("named", [{}, {"offset": 3, "dtype": "float16"}, {"storage": 9}])
def test_a_program_with_forged_descriptors(start, named):
    for shape, strides in SHAPES:
        forged = program()
        forged["kernels"][0]["text"], forged["steps"][1] = DESCRIBED, launch(described(shape, strides, **named), start)
        replayed(json.dumps(forged).encode())


@pytest.mark.parametrize("data", [b"{", b"null", b"[" * 100000, b'{"version":"\xff"}', b"9" * 5000])
def test_what_is_no_program(data):
    with pytest.raises(Malformed):
        read(data)
