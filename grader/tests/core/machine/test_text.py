"""The text of IR: every line is matched whole, what is printed is what was parsed, and the rest is refused by name."""

import pytest

from grader.core.machine import type_check
from grader.core.machine.lines import Lines
from grader.core.machine.parser import LARGEST, parse
from grader.core.machine.text import parse_type, print_module
from grader.core.protocol.program import Refused

TEXT = """#loc = loc("/home/ada/p3.py":10:0)
#loc1 = loc("/home/ada/p3.py":12:8)
#loc2 = loc("row_sum"(#loc1))
#loc3 = loc("/home/ada/p3.py":30:4)
#loc4 = loc(callsite(#loc2 at #loc3))
#loc5 = loc("/lib/triton/language/standard.py":290:12)
#loc6 = loc(callsite(#loc5 at #loc4))
#loc7 = loc("of_triton"(#loc5))
#loc8 = loc(callsite(#loc7 at #loc4))
module {
  tt.func public @kernel(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc("x"(#loc)), %n: i32 loc("n"(#loc))) attributes {noinline = false} {
    %cst = arith.constant dense<0xFF800000> : tensor<16xf32> loc(#loc1)
    %r = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32> loc(#loc1)
    %b = tt.splat %n : i32 -> tensor<16xi32> loc(#loc1)
    %m = arith.cmpi slt, %r, %b : tensor<16xi32> loc(#loc1)
    %p = tt.splat %x : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>> loc(#loc1)
    %q = tt.addptr %p, %r : tensor<16x!tt.ptr<f32>>, tensor<16xi32> loc(#loc1)
    %v = tt.load %q, %m, %cst : tensor<16x!tt.ptr<f32>> loc(#loc1)
    %s = "tt.reduce"(%v) <{axis = 0 : i32}> ({
    ^bb0(%a: f32 loc(unknown), %c: f32 loc(unknown)):
      %t = arith.maxnumf %a, %c : f32 loc(#loc6)
      tt.reduce.return %t : f32 loc(#loc6)
    }) : (tensor<16xf32>) -> f32 loc(#loc6)
    tt.store %x, %s : !tt.ptr<f32> loc(#loc1)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
"""  # noqa: E501


def checked(text):
    module = parse(text, type_check.FORMS)
    type_check.check(module, "kernel")
    return module


def test_what_is_printed_is_what_was_parsed():
    start = TEXT.index('    %s = "tt.reduce"')
    again = TEXT[start : TEXT.index("    tt.store")].replace("%s =", "%u =")  # names of a region stand in another, too
    printed = print_module(checked(TEXT[:start] + again + TEXT[start:]))
    assert "loc" not in printed and print_module(checked(printed)) == printed
    lines = [line.strip() for line in printed.split("\n")]
    assert '%s = "tt.reduce"(%v) <{axis = 0 : i32}> ({' in lines and lines.count("^bb0(%a: f32, %c: f32):") == 2


def test_lines_and_names_come_from_locations():
    module = checked(TEXT)
    reduce = next(op for op in module.functions["kernel"].body.entry.operations if op.name == "tt.reduce")
    lines = Lines(module.locations, "p3.py")
    assert [line for line, _ in lines.places(reduce.where)] == [12, 30] and lines.kernel_line(reduce.where) == 30
    assert lines.variable("#loc4") == lines.variable("#loc8") == "row_sum" and lines.variable("#loc7") is None
    assert Lines(module.locations, "p4.py").line(reduce.where) is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("%v = tt.load", "%v = tt.loads", "no operation `tt.loads`"),
        ("arith.cmpi slt, %r, %b", "arith.cmpi slt, %r, %v", "nothing has made: `%v`"),
        ("arith.cmpi slt, %r, %b", "arith.cmpi slt, %r, %n", "do not fit"),
        ("arith.cmpi slt,", "arith.cmpi near,", "no predicate `near`"),
        ("{end = 16 : i32, start = 0 : i32}", "{end = 17 : i32, start = 0 : i32}", "do not fit"),
        (": tensor<16xi32> loc(#loc1)\n    %b", ": tensor<12xi32> loc(#loc1)\n    %b", "power of 2"),
        ("axis = 0", "axis = 1", "do not fit"),
        ("tt.reduce.return %t : f32", "tt.reduce.return %t : f64", "do not fit"),
        ("tt.return loc", "tt.return %s : f32 loc", "returns other values"),
        ("dense<0xFF800000>", "dense<[1.0, 2.0]>", "form that the machine does not know"),
        ("dense<0xFF800000>", 'dense<"0xFF80">', "no single number"),
        ("    tt.return loc(#loc)\n", "", "wrong place"),
        ("  } loc(#loc)\n} loc(#loc)\n", "", "ends inside a region"),
        ("tt.store %x, %s", "evil() tt.store %x, %s", "no operation"),
        ("tt.store %x, %s : !tt.ptr<f32>", "tt.store %x, %s : !tt.ptr<f32> // loc", "form that the machine does not"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(old, new, said):
    assert old in TEXT
    with pytest.raises(Refused, match=said):
        checked(TEXT.replace(old, new))


def test_inline_assembly_is_refused_by_name():
    line = '%t = tt.elementwise_inline_asm "bar.sync 0;" {constraints = "=r"} %a : f32 -> f32'
    with pytest.raises(Refused, match="inline assembly means nothing"):
        checked(TEXT.replace("%t = arith.maxnumf %a, %c : f32", line))


def test_a_text_that_is_too_long_is_refused():
    with pytest.raises(Refused, match="unroll less"):
        parse(" " * (LARGEST + 1), type_check.FORMS)


@pytest.mark.parametrize("text", ["tensor<3xf32>", "tensor<2097152xi8>", "tensor<16xf7>", "!tt.ptr<>", "memref<4xf32>"])
def test_types_that_are_none(text):
    with pytest.raises(Refused):
        parse_type(text)


def test_a_function_that_calls_itself_is_refused():
    call = "tt.call @kernel(%x, %n) : (!tt.ptr<f32>, i32) -> ()"
    with pytest.raises(Refused, match="calls itself"):
        checked(TEXT.replace("tt.store %x, %s : !tt.ptr<f32>", call))
