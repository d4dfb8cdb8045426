"""Programs changed at random and on purpose, and what the runner made of each.

python -m grader.tests.submissions.changed_programs 5000 changes that many at random, then makes every directed change.

Whoever writes a program by hand can write anything. Whatever it is, the runner must answer, and what is wrong must not
pass.
"""

import collections
import itertools
import json
import random
import re
import sys
from dataclasses import replace

from grader import unfinished
from grader.core.sandbox.child import ChildFailed
from grader.core.sandbox.submission import Submission
from grader.kinds.attention.cases import Case
from grader.registry import PROBLEMS
from grader.result import Outcome
from grader.tests.support import SOLUTIONS

CASES = {"p2": Case("x", Hq=2, N=70, D=16), "p3": Case("x", Hq=2, N=70, D=16)}
CASES["p5"] = Case("x", Hq=4, Hkv=2, N=70, D=16, causal=True)
OUR_FAULT = "the program could not be run"
ODD = (None, True, -1, 0, 1, 7, 2**31, 2**62, 10**30, 0.5, "", "q", "float64", "__import__", [], {}, [[]], {"is": ""})

# Directed changes ----------------------------------------------------------------------------------------------------

TENSOR = {"is": "tensor", "storage": 0, "dtype": "float16", "sizes": [4], "strides": [1], "offset": 0}
BLOCK = {"is": "descriptor", "base": TENSOR, "shape": [4], "strides": [1], "block": [4], "padding": "zero"}
NEST = []
for _ in range(40):
    NEST = [NEST]
# Each of NEVER and OTHER is put at each of PLACES of a program of P5: [keys from the program on].
PLACES = {
    "an argument": ["steps", -1, "args", 16],
    "a pointer": ["steps", -1, "args", 1],
    "a name": ["steps", -1, "names", 1],
    "an option": ["steps", -1, "options", "num_warps"],
    "a text": ["kernels", -1, "text"],
    "a size of the grid": ["steps", -1, "grid", 0],
    "an operand": ["steps", 0, "args", 0],
    "a keyword": ["steps", 0, "kwargs", "memory_format"],
    "an output": ["steps", 0, "out", 0],
    "what is returned": ["returns", 0],
}
# What is no value of any kind: no program with it runs.
NEVER = (
    {"is": "format", "name": "__builtins__"}, {"is": "format", "name": "_C"}, {"is": "dtype", "name": "__class__"},
    {"is": "dtype", "name": "complex64"}, {"is": "module", "name": "os"}, {"is": "kernel", "number": 0},
    {"is": "function", "module": "os", "name": "system"}, {"is": "float", "hex": "__import__"},
    {"is": "float", "hex": "0x1.0p+9999"}, {"is": "device", "name": "cuda"}, {"is": "unknown"}, {"is": "storage"},
    TENSOR | {"sizes": [1 << 40]}, TENSOR | {"strides": [-1]}, TENSOR | {"offset": 1 << 44}, TENSOR | {"dtype": "O"},
    TENSOR | {"storage": -1}, TENSOR | {"strides": []}, TENSOR | {"more": 1}, BLOCK | {"padding": "none"},
    BLOCK | {"layout": {"more": 1}}, NEST, 1 << 63, 0.5, "x" * 1000, [1, [2]],
)  # fmt: skip
OTHER = ({"is": "float", "hex": "nan"}, {"is": "device"}, TENSOR, BLOCK, 1 << 62, -1, True, None, "\x00")
# (problem, what replaces what stands at these keys), each a way in which parts do not fit together.
ALONE = (
    ("p5", ["version"], 1), ("p5", ["steps"], []), ("p5", ["kernels"], []), ("p5", ["storages"], []),
    ("p5", ["returns"], []), ("p5", ["stale"], [0]), ("p5", ["stale"], [99]), ("p5", ["several"], None),
    ("p5", ["storages", 0, "bytes"], 1 << 45), ("p5", ["storages", 0, "bytes"], 1 << 60),
    ("p5", ["storages", 0, "is"], "made"), ("p5", ["storages", 0, "is"], "constant"),
    ("p5", ["storages", 0, "name"], "graded"), ("p5", ["storages", 0], {"is": "constant", "data": "AAAA"}),
    ("p5", ["storages", 0], {"is": "constant", "data": "A" * (1 << 17)}),
    ("p5", ["storages", 0], {"is": "constant", "data": "?"}),
    ("p5", ["kernels", 0, "file"], "../../etc/passwd"), ("p5", ["kernels", 0, "name"], "__init__"),
    ("p5", ["kernels", 0, "line"], 0), ("p5", ["kernels", 0, "line"], 1 << 19), ("p5", ["kernels", 0, "text"], ""),
    ("p5", ["kernels", 0, "text"], "import os"), ("p5", ["kernels", 0, "text"], "module {" * 10000),
    ("p5", ["steps", -1, "kernel"], 1), ("p5", ["steps", -1, "kernel"], 99), ("p5", ["steps", -1, "number"], 1 << 40),
    ("p5", ["steps", -1, "grid"], [1, 1]), ("p5", ["steps", -1, "grid"], [0, 0, 0]),
    ("p5", ["steps", -1, "grid"], [1 << 31] * 3), ("p5", ["steps", -1, "args"], []),
    ("p5", ["steps", -1, "names"], []), ("p5", ["steps", -1, "unspecialized"], [99]),
    ("p5", ["steps", -1, "options"], {"ir_override": "/etc/passwd"}),
    ("p5", ["steps", -1, "options"], {"extern_libs": "/etc/passwd"}),
    ("p5", ["steps", -1], {"is": "choice", "branches": [], "line": None}),
    ("p5", ["steps", -1], {"is": "choice", "branches": [{"config": "", "steps": []}], "line": None}),
    ("p5", ["steps", -1], {"is": "free", "storages": [0, 1, 2, 3]}),
    ("p5", ["setup"], [{"is": "free", "storages": [9]}]),
    *(("p5", ["steps", 0, "op"], name) for name in (
        "__class__", "__dict__", "__init__", "_dir", "name", "__getattr__", "load_library", "from_file", "set_",
        "resize_", "rand_like", "normal_", "_scaled_dot_product_flash_attention_for_cpu", "convolution", "", "x" * 999,
    )),
    *(("p5", ["steps", 0, "overload"], name) for name in ("__class__", "Tensor", "out", "op", "_schema", "default.")),
    *(("p5", ["steps", 0, "namespace"], name) for name in ("prims", "quantized", "__class__", "aten::", "")),
    ("p5", ["steps", 0, "out"], []), ("p5", ["steps", 0, "out"], [TENSOR, TENSOR]), ("p5", ["steps", 0, "out"], [None]),
    ("p5", ["steps", 0, "line"], -1), ("p2", ["steps", 0, "args"], []), ("p2", ["steps", -1, "out"], []),
    ("p2", ["steps", 0, "kwargs"], {"self": 1}), ("p2", ["steps", 0, "kwargs"], {"out": TENSOR}),
    ("p2", ["returns"], [TENSOR] * 65), ("p2", ["returns"], [{"is": "other", "type": "Tensor"}]),
)  # fmt: skip


def put(program, keys, value):
    """A copy of the program with this value at the place that the keys lead to."""
    program = json.loads(json.dumps(program))
    place = program
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return program


def directed():
    """Yields (problem, [keys], value)."""
    yield from ALONE
    yield from (("p5", keys, value) for keys, value in itertools.product(PLACES.values(), NEVER + OTHER))


# Random changes ------------------------------------------------------------------------------------------------------


def places(value, found):
    """Every (container, key) in plain data."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        found.append((value, key))
        places(value[key], found)
    return found


def changed(program, draw):
    """A copy with one to three random changes."""
    program = json.loads(json.dumps(program))
    for _ in range(draw.randint(1, 3)):
        container, key = draw.choice(places(program, []))
        how = draw.randrange(5)
        if key == "text":  # of a kernel: a line is lost, is there twice, or has another number
            lines = container[key].splitlines(True)
            at = draw.randrange(len(lines))
            lines[at] = draw.choice(("", lines[at] * 2, re.sub(r"\d+", str(draw.choice((0, 1, 1 << 40))), lines[at])))
            container[key] = "".join(lines)
            continue
        other, other_key = draw.choice(places(program, []))
        if how == 0:
            container[key] = draw.choice(ODD)
        elif how == 1 and type(container[key]) is int:
            container[key] += draw.choice((-1, 1, 8, 64, -container[key], 1 << 40))
        elif how == 2:
            container[key] = json.loads(json.dumps(other[other_key]))
        elif how == 3 and isinstance(container, list):
            container.insert(key, json.loads(json.dumps(container[key])))
        elif isinstance(container, list) or how == 4:
            del container[key]
        else:
            container[key] = draw.choice(ODD)
    return program


# What the runner makes of them ---------------------------------------------------------------------------------------


class Changed:
    """The program of our solution of a problem, on one case; `outcome` grades changes of it."""

    def __init__(self, id, seconds):
        self.problem, self.case, self.seconds = replace(PROBLEMS[id], cases=(CASES[id],)), CASES[id], seconds
        self.submission = Submission(SOLUTIONS / self.problem.module, self.problem, "cpu", seconds)
        self.how = self.problem.kind.handler(self.case)
        self.placed = self.how.inputs(self.case, 0)
        self.call, self.files = self.how.request(self.problem, self.case, self.placed, "cpu")
        self.program = json.loads(self.submission.record(self.call).program)

    def outcome(self, program):
        """(outcome, sentence)"""
        submission, problem, how = self.submission, self.problem, self.how
        try:
            answer = submission.rerun(self.call, json.dumps(program).encode(), self.files)
            if not answer.returned:
                verdict = unfinished.explain_reply(answer.reply, problem, submission.path)
            else:
                answer.data = submission.take_outputs(answer.reply)
                verdict = how.judge(problem, self.case, self.placed, answer, "cpu")
            return verdict.outcome, verdict.sentence
        except ChildFailed as failure:  # that program's process is gone, and the next gets another
            submission.runner.close()
            submission.runner = None
            return Outcome.CRASHED, str(failure)


def must_not_pass(outcome, what):
    """True where a value that is none was taken for one."""
    return outcome is Outcome.PASSED and type(what) is tuple and what[1] in NEVER


def outcomes(count, seed, chosen=(), seconds=10.0):
    """Yields (problem, outcome, sentence, what was changed) of `count` random changes, then of chosen ones."""
    draw = random.Random(seed)
    recorded = {id: Changed(id, seconds) for id in CASES}
    for number in range(count):
        id = [*CASES][number % len(CASES)]
        yield id, *recorded[id].outcome(changed(recorded[id].program, draw)), number
    for id, keys, value in chosen:
        yield id, *recorded[id].outcome(put(recorded[id].program, keys, value)), (keys, value)
    for each in recorded.values():
        each.submission.close()


def main():
    from grader.core.sandbox import pool

    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    found = {"random": collections.Counter(), "directed": collections.Counter()}
    for id, outcome, sentence, what in outcomes(count, seed, directed()):
        counts = found["random" if type(what) is int else "directed"]
        counts[outcome.value] += 1
        if OUR_FAULT in sentence or outcome is Outcome.GRADER_FAULT or must_not_pass(outcome, what):
            counts["our fault"] += 1
            print(f"{id} {outcome.value} {str(what)[:200]}: {sentence[:300]}", flush=True)
    print({how: dict(counts) for how, counts in found.items()})
    pool.close_all()


if __name__ == "__main__":
    main()
