"""What observers on the machine report is what those in Triton's interpreter report, or differs as it is said here.

Triton's interpreter runs programs with the grid's last axis fastest, the machine with its first; what no program uses,
Triton's front end leaves out; an operation of the interpreter is not one of the IR.
"""

import textwrap

import msgspec
import pytest
import torch

from grader.core.machine.execution import load
from grader.core.machine.held import most_held
from grader.tests.core.machine.lowering import lowered
from grader.tests.core.machine.observed import Job, load_file, report_of_machine, reports_of_interpreter
from grader.tests.support import solution

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
ONE = {"N": 65, "D": 16}  # one head: programs come in one order

# What is changed in a solution: each text must be there.
MISTAKES = {
    "the ragged end": ("p3", "full_end = N // BLOCK_K * BLOCK_K", "full_end = tl.cdiv(N, BLOCK_K) * BLOCK_K", ONE),
    "tiles too near": ("p3", "q_start = tl.program_id(0) * BLOCK_Q", "q_start = tl.program_id(0) * BLOCK_K", ONE),
    "undefined lanes": ("p3", "mask=in_bounds, other=0.0)", "mask=in_bounds)", ONE),
    "a number that the launch gives": ("p5", "N, Hq // k.shape[1], LOG2_E", "N, k.shape[1], LOG2_E",
                                       {"N": 40, "D": 16, "Hq": 8, "Hkv": 2, "causal": True}),
    "the query's head": ("p5", "stride_kb + kv_head * stride_kh", "stride_kb + head * stride_kh",
                         {"N": 40, "D": 16, "Hq": 4, "Hkv": 2, "causal": True}),
}  # fmt: skip

# A kernel that computes nothing of use; what it is asked here is what it touches.
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
TOUCHES = {
    "past the end": COPY.replace("row * D + d))", "row * D + d + 1))"),
    "before the start": COPY.replace("O + row * D", "O - row * D"),
    "nowhere": COPY.replace("Q + row", "Q + (1 << 33) + row"),
    "lanes that lie scattered": COPY.replace("row * D + d))", "row * D + (d % 2) * 4096))"),
    "one element twice": COPY.replace("O + row * D + d", "O + row * D + d // 2"),
    "one element by all": COPY.replace("O + row * D", "O"),
    "atomics": "tl.atomic_add(O + row * D + D + d, tl.load(Q + row * D + d))",
    "an overflow": "far = (row + 50000) * 50000\n" + COPY.replace("d))", "d), mask=d < tl.maximum(far, D))"),
    "no overflow": "far = (row + 5) * 50000\n" + COPY.replace("d))", "d), mask=d < tl.maximum(far, D))"),
    "a hint of a number": "row = tl.multiple_of(row, 2)\n" + COPY,
    "hints of blocks": "d = tl.max_contiguous(tl.multiple_of(d + row, 4), D) // 2\n"
    "d = tl.max_constancy(tl.multiple_of(d[:, None] + row + d[None, :], [1, 2]), [2, 4])\n"
    "x = tl.load(tl.multiple_of(Q + row * D + d, [8, 8]), mask=d < 0, other=0.0)\n"
    "tl.store(O + row * D + tl.arange(0, D), tl.sum(x, 1))",
    "a call of several lines": "tl.store(\n    O + row * D + d + 1,\n    tl.load(\n        Q + row * D + d,\n    ),\n)",
    "a number of the list": "tl.store(O + row * D + d, tl.load(Q + row * D) + d)",
}

# The keys come from tiles that were loaded a round before, by a condition, in either role of a product.
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
STEPS = {
    "the next tile loaded first": ("n", FIRST, NEXT.format("")),
    "and hidden": ("n", FIRST, NEXT.format(HIDDEN)),
    "rounds of different number": ("q_start + B", FIRST, NEXT.format(HIDDEN)),
    "a term that hides": ("n", FIRST, NEXT.format(TERM.format("at[None, :] <= at[:, None]"))),
    "a term that hides nothing": ("n", FIRST, NEXT.format(TERM.format("start + at[None, :] < n"))),
    "a guard of rows": ("n", FIRST, NEXT.format("scores = tl.where(tl.max(scores, 1)[:, None] > 0.0, scores, 0.0)")),
    "a tile chosen by a condition": ("n", FIRST, f"""
if start == q_start:
    k = {LOAD.format("start")}
acc += tl.dot(tl.dot(q, tl.trans(k)).to(k.dtype), k)
"""),
    "products without a dot": ("n", "", f"""
k = {LOAD.format("start")}
scores = tl.sum(k[:, None, :].to(tl.float32) * q[None, :, :], 2)
acc += tl.sum(scores[:, :, None] * k[:, None, :], 0)
"""),
    "keys transposed": ("n", "", f"""
k = {LOAD.format("start")}
acc += tl.trans(tl.dot(tl.trans(k), tl.dot(k, tl.trans(q)).to(k.dtype)))
"""),
    "q scaled in each round": ("n", "", f"""
k = {LOAD.format("start")}
q = (q * 0.5).to(k.dtype)
acc += tl.dot(tl.dot(q, tl.trans(k)).to(k.dtype), k)
"""),
}  # fmt: skip


# What no program uses is not in the IR.
UNUSED = {"keys that nothing uses": ("n", FIRST, STEPS["keys transposed"][2])}


def texts(steps=STEPS):
    """{name: (problem, text, fields of a case)}."""
    found = {f"the solution of {problem}": (problem, solution(problem), case) for problem, case in CASES.items()}
    for name, (problem, was, now, case) in MISTAKES.items():
        assert was in solution(problem), was
        found[name] = problem, solution(problem).replace(was, now), case
    for name, body in TOUCHES.items():
        found[name] = "p3", TOUCH.format(body=textwrap.indent(body, "    ").strip()), {"N": 5, "D": 16}
    for name, (end, first, body) in steps.items():
        body = textwrap.indent(body.strip(), "        ").strip()
        found[name] = "p3", STEP.format(end=end, first=first, body=body), {"N": 64, "D": 16}
    return found


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    folder, found = tmp_path_factory.mktemp("observed"), {}
    for number, (name, (problem, text, case)) in enumerate(texts(STEPS | UNUSED).items()):
        file = folder / f"{problem}_{number}.py"
        file.write_text(text, encoding="utf-8")
        found[name] = Job(str(file), case)
    return found


@pytest.fixture(scope="module")
def todays(jobs):
    return dict(zip(jobs, reports_of_interpreter([*jobs.values()]), strict=True))


def plain(report):
    """A report as data, each list of programs in the order of their places."""
    data = msgspec.json.decode(msgspec.json.encode(report))
    for table in data["addresses"]:
        table["programs"].sort(key=lambda each: each["place"])
    for fault in data["faults"]:
        if fault["kind"].startswith("hint"):  # the IR says where the number is made, and not where the hint is given
            fault["line"] = fault["source"] = None
    own = data["own"]
    if own and "tiles" in own[0]:
        own = sorted(({**each, "program": None} for each in own), key=str)
    return data | {"own": own}


SAME = ("faults", "undefined", "addresses", "inside_rows", "kernels", "own", "failed")
EQUAL = ("loaded", "stored", "inputs", "different")


@pytest.mark.parametrize("name", texts())
def test_reports_are_todays(name, jobs, todays):
    wanted, found = plain(todays[name]), plain(report_of_machine(jobs[name]))
    for field in SAME:
        assert found[field] == wanted[field], field
    costs, now = wanted["costs"], found["costs"]
    for field in EQUAL:
        assert now[field] == costs[field], field
    assert sorted(now["dots"], key=str) == sorted(costs["dots"], key=str)


@pytest.mark.parametrize("problem", CASES)
def test_counts_of_operations_differ_by_so_much(problem, jobs, todays):
    """Ranges, constants and what is spread cost nothing; pointers are canonicalised."""
    name = f"the solution of {problem}"
    today, now = todays[name].costs, report_of_machine(jobs[name]).costs
    assert 0.3 < now.computed / today.computed < 0.6
    assert 0.3 < now.held / today.held < 0.7
    whole = [sum(each.count for each in costs.multiplied) for costs in (now, today)]
    assert abs(whole[0] / whole[1] - 1) < 0.05


def test_a_load_that_nothing_uses_is_none(jobs, todays):
    name = "keys that nothing uses"
    loads = [report.kernels["kernel"].loads for report in (todays[name], report_of_machine(jobs[name]))]
    assert loads[0]["K"] == loads[1]["K"] + 4


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


@pytest.mark.parametrize("problem", CASES)
def test_nothing_depends_on_which_programs_run_together(problem, jobs):
    job = jobs[f"the solution of {problem}"]
    assert plain(report_of_machine(job, chunk=3)) == plain(report_of_machine(job))
