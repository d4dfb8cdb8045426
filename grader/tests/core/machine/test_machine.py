"""Programs that go other ways, together and alone; what ends them; what they may not do."""

import pytest
import torch

from grader.core.machine import arithmetic, bits_trial, execution
from grader.core.machine.execution import Endless, Machine
from grader.core.machine.legality import Legality
from grader.core.machine.text import NotIR


def kernel(body, arguments="%x: !tt.ptr<i32>, %n: i32", more=""):
    opening = f"  tt.func public @k({arguments}) attributes {{noinline = false}} {{"
    return f"module {{\n{opening}\n{body}\n  tt.return\n  }}\n{more}}}\n"


def test_a_number_below_the_smallest_of_a_smaller_dtype_rounds_to_zero_or_to_that():
    near = torch.tensor([0.49, 0.51, 1e-300, 1e-50], dtype=torch.float64)  # of the smallest, or far below
    for dtype in (torch.float16, torch.bfloat16):
        smallest = torch.tensor([1], dtype=torch.int16).view(dtype)
        for sign in (1.0, -1.0):
            made = arithmetic.narrowed(sign * torch.cat([near[:2] * smallest.double(), near[2:]]), dtype)
            assert made.tolist() == [0.0, sign * smallest.item(), 0.0, 0.0]


HEAD = """
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c3 = arith.constant 3 : i32
    %pid = tt.get_program_id x : i32
    %at = tt.addptr %x, %pid : !tt.ptr<i32>, i32
"""
SUM_TO_PID = """
    %s = scf.for %i = %c0 to %pid step %c1 iter_args(%a = %c0) -> (i32)  : i32 {
      %b = arith.addi %a, %i : i32
      scf.yield %b : i32
    }
    tt.store %at, %s : !tt.ptr<i32>
"""
ODD_OR_EVEN = """
    %r = arith.remsi %pid, %c3 : i32
    %e = arith.cmpi eq, %r, %c0 : i32
    %v = scf.if %e -> (i32) {
      %d = arith.muli %pid, %c3 : i32
      tt.store %at, %d : !tt.ptr<i32>
      scf.yield %d : i32
    } else {
      scf.yield %c1 : i32
    }
    %w = arith.addi %v, %c1 : i32
    tt.store %at, %w : !tt.ptr<i32>
"""
HALVE = """
    %f:2 = scf.while (%a = %pid, %k = %c0) : (i32, i32) -> (i32, i32) {
      %t = arith.cmpi sgt, %a, %c0 : i32
      scf.condition(%t) %a, %k : i32, i32
    } do {
    ^bb0(%a: i32, %k: i32):
      %h = arith.shrsi %a, %c1 : i32
      %j = arith.addi %k, %c1 : i32
      scf.yield %h, %j : i32, i32
    }
    tt.store %at, %f#1 : !tt.ptr<i32>
"""
LEAVE = """
    %t = arith.cmpi sgt, %pid, %c3 : i32
    cf.cond_br %t, ^bb1, ^bb2(%c1 : i32)
  ^bb1:  // pred: ^bb0
    tt.store %at, %c3 : !tt.ptr<i32>
    tt.return
  ^bb2(%one: i32):  // pred: ^bb0
    tt.store %at, %one : !tt.ptr<i32>
"""
WAYS = {
    "uneven loops": (SUM_TO_PID, lambda p: p * (p - 1) // 2),
    "a condition": (ODD_OR_EVEN, lambda p: (3 * p if p % 3 == 0 else 1) + 1),
    "a while": (HALVE, lambda p: p.bit_length()),
    "an early return": (LEAVE, lambda p: 3 if p > 3 else 1),
}


@pytest.mark.parametrize("chunk", [None, 1, 3])
@pytest.mark.parametrize("name", WAYS)
def test_programs_that_part_and_meet_again(name, chunk):
    body, wanted = WAYS[name]
    x = torch.full((11,), -1, dtype=torch.int32)
    Machine(kernel(HEAD + body), "k").launch((11, 1, 1), [x, 0], chunk)
    assert x.tolist() == [wanted(p) for p in range(11)]


def test_a_grid_of_three_axes():
    body = (
        HEAD
        + """
    %y = tt.get_program_id y : i32
    %z = tt.get_program_id z : i32
    %ny = tt.get_num_programs y : i32
    %a = arith.muli %z, %ny : i32
    %b = arith.addi %a, %y : i32
    %c = arith.muli %b, %c3 : i32
    %d = arith.addi %c, %pid : i32
    %p = tt.addptr %x, %d : !tt.ptr<i32>, i32
    tt.store %p, %d : !tt.ptr<i32>
"""
    )
    x = torch.zeros(24, dtype=torch.int32)
    Machine(kernel(body), "k").launch((3, 4, 2), [x, 0], 5)
    assert x.tolist() == list(range(24))


def test_a_function_that_returns_from_two_blocks_is_called():
    more = """  tt.func private @f(%a: i32) -> i32 attributes {noinline = true} {
    %c5 = arith.constant 5 : i32
    %t = arith.cmpi slt, %a, %c5 : i32
    cf.cond_br %t, ^bb1, ^bb2
  ^bb1:
    tt.return %a : i32
  ^bb2:
    tt.return %c5 : i32
  }
"""
    x = torch.zeros(9, dtype=torch.int32)
    body = HEAD + "    %s = tt.call @f(%pid) : (i32) -> i32\n    tt.store %at, %s : !tt.ptr<i32>"
    Machine(kernel(body, more=more), "k").launch((9, 1, 1), [x, 0])
    assert x.tolist() == [min(p, 5) for p in range(9)]


ADD_ONE = """
    %true = arith.constant true
    %o = tt.atomic_rmw add, acq_rel, gpu, %x, %c1, %true : (!tt.ptr<i32>, i32, i1) -> i32
    %to = tt.addptr %at, %c1 : !tt.ptr<i32>, i32
    tt.store %to, %o : !tt.ptr<i32>
"""


@pytest.mark.parametrize("chunk", [None, 4])
def test_atomics_come_in_the_order_of_the_programs(chunk):
    x = torch.zeros(13, dtype=torch.int32)
    Machine(kernel(HEAD + ADD_ONE), "k").launch((12, 1, 1), [x, 0], chunk)
    assert x.tolist() == [12, *range(12)]


ADD_BLOCK = """
    %all = arith.constant dense<true> : tensor<8xi1>
    %q = tt.addptr %b, %r : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
    %was = tt.atomic_rmw fadd, acq_rel, gpu, %q, %one, %all : (tensor<8x!tt.ptr<f32>>, tensor<8xf32>, tensor<8xi1>) -> tensor<8xf32>
    %c8s = arith.constant dense<8> : tensor<8xi32>
    %to = tt.addptr %p, %c8s : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
    tt.store %to, %was : tensor<8x!tt.ptr<f32>>
"""  # noqa: E501


@pytest.mark.parametrize("chunk", [None, 1])
def test_a_block_does_not_learn_which_programs_came_before(chunk):
    x = torch.zeros(32)
    Machine(kernel(BLOCK + ADD_BLOCK, FLOATS), "k").launch((3, 1, 1), [x, 0], chunk)
    assert x[:16].tolist() == [3.0] * 8 + [0.0] * 8 and x[16:].isnan().all()


LOCK = """
    %z = scf.while (%a = %c1) : (i32) -> i32 {
      %t = arith.cmpi eq, %a, %c1 : i32
      scf.condition(%t) %a : i32
    } do {
    ^bb0(%a: i32):
      %o = tt.atomic_cas acq_rel, gpu, %x, %c0, %c1 : (!tt.ptr<i32>, i32, i32) -> i32
      scf.yield %o : i32
    }
    %to = tt.addptr %x, %c1 : !tt.ptr<i32>, i32
    %was = tt.load %to : !tt.ptr<i32>
    %now = arith.addi %was, %c1 : i32
    tt.store %to, %now : !tt.ptr<i32>
"""
RELEASE = """
    %true = arith.constant true
    %o2 = tt.atomic_rmw exch, release, gpu, %x, %c0, %true : (!tt.ptr<i32>, i32, i1) -> i32
"""


def test_a_lock_lets_one_after_the_other_in(monkeypatch):
    monkeypatch.setattr(execution, "STEPS", 5000)
    x = torch.zeros(2, dtype=torch.int32)
    Machine(kernel(HEAD + LOCK + RELEASE), "k").launch((7, 1, 1), [x, 0])
    assert x.tolist() == [0, 7]


def test_a_lock_that_nobody_opens_ends_by_a_count(monkeypatch):
    monkeypatch.setattr(execution, "STEPS", 5000)
    made = Machine(kernel(HEAD + LOCK), "k")
    with pytest.raises(Endless, match="does not end"):
        made.launch((2, 1, 1), [torch.zeros(2, dtype=torch.int32), 0])


def test_arguments_that_are_not_those_of_the_function():
    made = Machine(kernel(HEAD + SUM_TO_PID), "k")
    for given in ([torch.zeros(3)], [3, 4], [torch.zeros(3), torch.zeros(3)], [torch.zeros(3), "three"]):
        with pytest.raises(NotIR):
            made.launch((1, 1, 1), given)


# What is not legal ----------------------------------------------------------------------------------------------------

FLOATS = "%x: !tt.ptr<f32>, %n: i32"
BLOCK = """
    %pid = tt.get_program_id x : i32
    %c8 = arith.constant 8 : i32
    %start = arith.muli %pid, %c8 : i32
    %r = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
    %s = tt.splat %start : i32 -> tensor<8xi32>
    %i = arith.addi %s, %r : tensor<8xi32>
    %b = tt.splat %x : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
    %p = tt.addptr %b, %i : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
    %one = arith.constant dense<1.000000e+00> : tensor<8xf32>
"""
MASK = """
    %nn = tt.splat %n : i32 -> tensor<8xi32>
    %m = arith.cmpi slt, %i, %nn : tensor<8xi32>
"""


def faults(body, given, grid=(3, 1, 1), chunk=None):
    seen = Legality()
    Machine(kernel(body, FLOATS), "k", [seen]).launch(grid, given, chunk)
    return {(kind, where): lanes for (kind, _, _, where), lanes in seen.faults.items()}, seen


@pytest.mark.parametrize("chunk", [None, 1])
def test_a_store_past_the_end(chunk):
    x = torch.zeros(20)
    found, seen = faults(BLOCK + "tt.store %p, %one : tensor<8x!tt.ptr<f32>>", [x, 0], chunk=chunk)
    assert found == {("out-of-bounds store", "end"): 4} and x.eq(1).all()
    assert next(iter(seen.first.values())).programs == [2]


def test_a_mask_makes_it_legal():
    x = torch.zeros(20)
    found, _ = faults(BLOCK + MASK + "tt.store %p, %one, %m : tensor<8x!tt.ptr<f32>>", [x, 20])
    assert not found and x.eq(1).all()


def test_an_input_may_be_read_where_its_elements_lie():
    whole = torch.arange(64.0)
    view = whole[:48].view(6, 8)[:, :4]  # every other group of four
    from grader.core.machine.buffers import Memory

    body = BLOCK + "%v = tt.load %p {isVolatile = true} : tensor<8x!tt.ptr<f32>>"
    seen = Legality()
    Machine(kernel(body, FLOATS), "k", [seen]).launch((3, 1, 1), [view, 0], memory=Memory({"q": view}, {}))
    assert {(kind, where): lanes for (kind, _, _, where), lanes in seen.faults.items()} == {
        ("out-of-bounds load", "end"): 12
    }


def test_an_element_that_begins_between_two_is_not_legal():
    body = (
        BLOCK
        + """
    %c2 = arith.constant 2 : i32
    %h = tt.bitcast %x : !tt.ptr<f32> -> !tt.ptr<i8>
    %g = tt.addptr %h, %c2 : !tt.ptr<i8>, i32
    %f = tt.bitcast %g : !tt.ptr<i8> -> !tt.ptr<f32>
    %v = tt.load %f {isVolatile = true} : !tt.ptr<f32>
"""
    )
    assert faults(body, [torch.zeros(24), 0], (1, 1, 1))[0] == {("out-of-bounds load", "whole"): 1}


SAME_PLACE = BLOCK + "%q = tt.addptr %b, %r : tensor<8x!tt.ptr<f32>>, tensor<8xi32>\n"


@pytest.mark.parametrize("chunk", [None, 1])
def test_two_programs_that_write_one_element(chunk):
    found, _ = faults(SAME_PLACE + "tt.store %q, %one : tensor<8x!tt.ptr<f32>>", [torch.zeros(24), 0], chunk=chunk)
    assert found == {("write of another program's element", ""): 16}


@pytest.mark.parametrize("chunk", [None, 1])
def test_a_read_of_what_another_program_writes(chunk):
    body = (
        SAME_PLACE
        + """
    tt.store %p, %one : tensor<8x!tt.ptr<f32>>
    %v = tt.load %q {isVolatile = true} : tensor<8x!tt.ptr<f32>>
"""
    )
    found, _ = faults(body, [torch.zeros(24), 0], chunk=chunk)
    assert found[("read of another program's write", "")] == 16


def test_one_element_twice_in_one_store():
    body = (
        BLOCK
        + """
    %z = arith.constant dense<0> : tensor<8xi32>
    %q = tt.addptr %b, %z : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
    tt.store %q, %one : tensor<8x!tt.ptr<f32>>
"""
    )
    assert faults(body, [torch.zeros(8), 0], (1, 1, 1))[0] == {("element written twice by one store", ""): 7}


ROLL = """
    tt.store %p, %one : tensor<8x!tt.ptr<f32>>
    BARRIER
    %c7 = arith.constant dense<7> : tensor<8xi32>
    %t = arith.xori %i, %c7 : tensor<8xi32>
    %q = tt.addptr %b, %t : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
    %v = tt.load %q {isVolatile = true} : tensor<8x!tt.ptr<f32>>
"""


@pytest.mark.parametrize(("barrier", "lanes"), [("", 8), ("gpu.barrier", 0)])
def test_another_lane_reads_what_one_wrote_after_a_barrier_alone(barrier, lanes):
    found, _ = faults(BLOCK + ROLL.replace("BARRIER", barrier), [torch.zeros(8), 0], (1, 1, 1))
    assert found.get(("read of another lane's write", ""), 0) == lanes


def test_lanes_that_nobody_defined_are_nan_in_one_program_and_large_in_the_next():
    body = (
        BLOCK
        + MASK
        + """
    %v = tt.load %p, %m : tensor<8x!tt.ptr<f32>>
    tt.store %p, %v : tensor<8x!tt.ptr<f32>>
"""
    )
    x = torch.zeros(24)
    _, seen = faults(body, [x, 1])
    assert sum(seen.hidden.values()) == 23
    assert x.isnan().sum() == 15 and (x == 16384).sum() == 8


def test_what_the_text_leaves_open_is_no_number():
    faults("%v = ub.poison : f32\n    tt.store %x, %v : !tt.ptr<f32>", [x := torch.zeros(24), 1], (1, 1, 1))
    assert x.isnan().tolist() == [True] + 23 * [False]


@pytest.mark.parametrize(
    ("used", "said"), [("%j = tt.addptr %x, %w : !tt.ptr<f32>, i32", 1), ("%j = arith.xori %w, %n : i32", 0)]
)
def test_a_number_past_2_to_the_31_counts_where_it_is_used(used, said):
    body = BLOCK + f"%w = arith.muli %n, %n : i32\n    {used}\n    %u = tt.load %x : !tt.ptr<f32>\n"
    found, _ = faults(body, [torch.zeros(24), 70_000], (1, 1, 1))
    assert found.get(("int32 overflow", ""), 0) == said


# Bits -----------------------------------------------------------------------------------------------------------------


def test_this_processor_gives_the_same_bits_alone_and_beside_others():
    assert bits_trial.check() is None


def test_the_trial_sees_products_that_depend_on_their_neighbours(monkeypatch):
    right = torch.bmm
    monkeypatch.setattr(torch, "bmm", lambda a, b: right(a, b) * (1 + 1e-6 * a.shape[0]))
    assert bits_trial.check() is None and bits_trial.block_operations.Products.one_by_one
    monkeypatch.undo()
    assert bits_trial.check() is None and not bits_trial.block_operations.Products.one_by_one


def test_the_trial_sees_a_broken_product(monkeypatch):
    right = torch.bmm
    monkeypatch.setattr(torch, "bmm", lambda a, b: right(a, b) + 0.01)
    assert "is wrong on this machine" in bits_trial.check()


def test_the_trial_sees_functions_whose_last_numbers_differ(monkeypatch):
    monkeypatch.setitem(bits_trial.FUNCTIONS, "exp2", lambda x: torch.exp2(x) + torch.arange(len(x)) * 1e-6)
    assert "exp2 has other bits" in bits_trial.check()
