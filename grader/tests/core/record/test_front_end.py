"""A launch becomes IR by Triton's own front end, whatever form its arguments have; what it refuses is said in words."""

import re
import sys

import pytest

from grader.core.protocol import program as programs
from grader.core.protocol.messages import Call, FailedLaunch, Gpu, Raised, Record, RecorderSetup, Shortage, TensorSpec
from grader.core.protocol.program import Choice, Descriptor, Float, Launch, Malformed, Operation, Tensor

pytest.importorskip("triton")
import triton

from grader.core.record import launches, recorder  # noqa: F401

HEAD = """
import collections, os
import torch, triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor
Pair = collections.namedtuple("Pair", ["first", "second"])
SCALE = tl.constexpr(2.5)
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""
X = TensorSpec("x", "float32", 64 * 64, [64, 64], [64, 1])
SM_80 = Gpu("sm_80", "a GPU", "cuda", 80, 32, 166912, 8)
POINTER = "!tt.ptr<f32>"


@pytest.fixture
def record(tmp_path, monkeypatch):
    """record(text) -> (what the recorder replies, the program or None) of a module that ends in call(x)."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "breakpointhook", sys.breakpointhook)
    for name in ("TRITON_INTERPRET", "TORCHDYNAMO_DISABLE"):
        monkeypatch.setenv(name, "0")
    monkeypatch.delitem(sys.modules, "submission", raising=False)

    def record(text, folder="one", gap="TODO", failing=(), **setup):
        path = tmp_path / folder / "submission.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(HEAD + text, encoding="utf-8")
        monkeypatch.chdir(path.parent)
        begun = RecorderSetup(
            device="record", module=str(path), entry_point="call", tensors=["x"], arguments=[], gap=gap,
            sys_path=list(sys.path), **setup,
        )  # fmt: skip
        try:
            reply = recorder.record(recorder.begin(begun), Record(Call([X]), list(failing)))
        except Exception as error:
            return recorder.describe(error, begun), None
        return reply, programs.read((path.parent / "program.json").read_bytes())

    with triton.knobs.runtime.scope():
        yield record
    sys.modules.pop("submission", None)


def launching(parameters, arguments, body="tl.store(X, 1.0)", before="", decorator="@triton.jit", grid="(3,)"):
    """A module with one kernel and one launch."""
    return (
        f"{before}\n{decorator}\ndef kernel(X, {parameters}):\n    {body}\n\n"
        f"def call(x):\n    kernel[{grid}](x, {arguments})\n    return x\n"
    )


def launch_of(program):
    (step,) = [step for step in program.steps if isinstance(step, Launch)]
    return step, program.kernels[step.kernel]


def types_of(kernel):
    """The types of the entry function's parameters."""
    head = next(line for line in kernel.text.splitlines() if f"@{kernel.name}(" in line)
    return re.findall(r"%[\w.]+: (.+?)(?: loc\(|,|\))", head.split(" attributes")[0])


# Arguments ----------------------------------------------------------------------------------------------------------

FORMS = {
    "integers": ("a, b, c", "0, 7, -3", ["i32"] * 3, ["a", "b", "c"], [0, 7, -3]),
    "32 bits hold it not": ("a, b", "2**31, 2**31 - 1", ["i64", "i32"], ["a", "b"], [2**31, 2**31 - 1]),
    "one and None are constants": ("a, b, c", "1, None, 2", ["i32"], ["c"], [2]),
    "floats and bools": ("a, b", "0.5, True", ["f32", "i1"], ["a", "b"], [Float((0.5).hex()), True]),
    "a default": ("a, b=3", "5", ["i32", "i32"], ["a", "b"], [5, 3]),
    "by name": ("a, b", "b=4, a=5", ["i32", "i32"], ["a", "b"], [5, 4]),
    "an annotation": ("a: tl.int64, b: tl.float16", "5, 2.0", ["i64", "f16"], ["a", "b"], [5, Float((2.0).hex())]),
    "constexpr": ("a: tl.constexpr, b", "5, 7", ["i32"], ["b"], [7]),
    "wrapped constants": ("a, b: tl.constexpr", "tl.constexpr(5), tl.constexpr(6)", [], [], []),
    "a tuple": ("p, c", "(5, 1, (x, None)), 7", ["i32", POINTER, "i32"], ["p.0", "p.2.0", "c"], [5, "x", 7]),
    "a named tuple": ("p", "Pair(x, 5)", [POINTER, "i32"], ["p.0", "p.1"], ["x", 5]),
    "a function": ("f: tl.constexpr, g, c", "helper, helper, 2", ["i32"], ["c"], [2]),
    "a dtype": ("d: tl.constexpr", "tl.float16", [], [], []),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_arguments(name, record):
    parameters, arguments, types, names, values = FORMS[name]
    _, program = record(launching(parameters, arguments, before="@triton.jit\ndef helper(x):\n    return x\n"))
    step, kernel = launch_of(program)
    assert types_of(kernel) == [POINTER, *types]
    assert step.names == ["X", *names] and step.grid == (3, 1, 1) and step.number == 0
    assert all(isinstance(each, Tensor) if value == "x" else each == value and type(each) is type(value)
               for each, value in zip(step.args, ["x", *values], strict=True))  # fmt: skip
    assert (kernel.name, kernel.file, step.options) == ("kernel", "submission.py", {})


def test_a_descriptor_is_followed_by_its_sizes(record):
    text = launching("d", "TensorDescriptor.from_tensor(x, [16, 32])", "tl.store(X, tl.sum(d.load([0, 0])))")
    step, kernel = launch_of(record(text)[1])
    assert [re.sub(r"<.*", "", form) for form in types_of(kernel)[1:]] == ["!tt.tensordesc", *["i32"] * 2, *["i64"] * 2]
    assert step.names[1:] == ["d", "d.shape.0", "d.shape.1", "d.strides.0", "d.strides.1"]
    assert isinstance(step.args[1], Descriptor) and step.args[2:] == [64, 64, 64, 1]


# (body, parameters, arguments, before, what its text has)
USES = {
    "a global constant": ("tl.store(X, SCALE)", "", "", "", "2.500000e+00"),
    "a constant function": (
        "tl.store(X, four(N))", "N: tl.constexpr", "3",
        "@triton.constexpr_function\ndef four(n):\n    return 4.0 * n\n", "1.200000e+01",
    ),
    "a function as an argument": (
        "tl.store(X, f(5.0))", "f: tl.constexpr", "helper", "@triton.jit\ndef helper(x):\n    return x + 3.75\n",
        "8.750000e+00",
    ),
    "an aggregate": (
        "tl.store(X, State(tl.load(X), 3).doubled())", "", "",
        "from triton.language.core import _aggregate as aggregate\n@aggregate\nclass State:\n    value: tl.tensor\n"
        "    n: tl.constexpr\n    @triton.constexpr_function\n    def __init__(self, value, n):\n"
        "        self.value = value\n        self.n = tl.constexpr(n)\n    @triton.jit\n    def doubled(self):\n"
        "        return self.value * 2.25 * self.n\n", "2.250000e+00",
    ),
    "a named tuple made inside": ("tl.store(X, Pair(6.25, 2.0).first)", "", "", "", "6.250000e+00"),
}  # fmt: skip


@pytest.mark.parametrize("name", USES)
def test_what_a_kernel_uses(name, record):
    body, parameters, arguments, before, words = USES[name]
    _, kernel = launch_of(record(launching(parameters, arguments, body, before))[1])
    assert words in kernel.text and types_of(kernel) == [POINTER]


def test_closures_are_told_apart_by_what_they_hold(record):
    text = """
def make(number, dtype):
    @triton.jit
    def kernel(X):
        tl.store(X, tl.load(X).to(dtype) * number)
    return kernel

KERNELS = [make(tl.constexpr(n), dtype) for n in (2, 3) for dtype in (tl.float16, tl.int8)]

def call(x):
    for kernel in [*KERNELS, make(tl.constexpr(2), tl.int8)]:
        kernel[(1,)](x)
    return x
"""
    _, program = record(text)
    assert [step.kernel for step in program.steps] == [0, 1, 2, 3, 1]


def test_ir_is_made_once_for_types_and_constants(record):
    text = launching("n, N: tl.constexpr", "16, 4, num_stages=1").replace(
        "return x",
        """kernel[(1,)](x, 17, 4, num_warps=8)
    kernel[(1,)](x[1:], 5, 4)
    kernel[(1,)](x, 5, 8)
    return x""",
    )
    _, program = record(text)
    kernels, options = ([getattr(step, name) for step in program.steps] for name in ("kernel", "options"))
    assert kernels == [0, 0, 0, 0] and len(program.kernels) == 1  # N is in no line of the text
    assert options == [{"num_stages": 1}, {"num_warps": 8}, {}, {}]
    assert "divisibility" not in program.kernels[0].text


def test_parameters_that_are_not_to_be_specialised(record):
    decorator = '@triton.jit(do_not_specialize=["n"], do_not_specialize_on_alignment=["p", "m"])'
    step, kernel = launch_of(record(launching("n, p, m, q", "1, (x, 16), 1, 16", decorator=decorator))[1])
    assert types_of(kernel) == [POINTER, "i32", POINTER, "i32", "i32"]
    assert [step.names[place] for place in step.unspecialized] == ["n", "p.0", "p.1"]


def test_two_folders_give_the_same_text(record):
    text = launching("n", "16", "tl.store(X, tl.sum(tl.zeros([4], tl.float32)))")
    one, other = (record(text, folder)[1].kernels for folder in ("one", "other"))
    assert one == other and "/" not in "".join(re.findall(r'loc\("([^"]*)":', one[0].text))
    assert re.search(r'loc\("submission.py":\d+:\d+\)', one[0].text) and 'loc("standard.py":' in one[0].text


# Launches -----------------------------------------------------------------------------------------------------------

TUNED = """
def doubled(arguments):
    arguments["X"].mul_(2)

@triton.autotune([triton.Config({"N": n}, num_warps=w, pre_hook=hook) for n, w, hook in CONFIGS], key=["m"])
@triton.heuristics({"H": lambda arguments: arguments["m"] + 1})
@triton.jit
def kernel(X, m, N: tl.constexpr, H: tl.constexpr):
    tl.static_assert(N != 3, "three")
    tl.store(X + tl.arange(0, N), H * 1.0)

def call(x):
    kernel[lambda meta: (triton.cdiv(64, meta["N"]),)](x, 5)
    return x
"""


def test_every_configuration_is_a_branch(record):
    _, program = record("CONFIGS = [(16, 4, None), (3, 4, None), (32, 8, lambda a: doubled(a))]\n" + TUNED)
    (choice,) = program.steps
    assert isinstance(choice, Choice) and len(program.kernels) == 2
    (first,), (hook, second) = (branch.steps for branch in choice.branches)  # Triton passes over what asserts
    assert isinstance(hook, Operation) and (first.grid[0], second.grid[0]) == (4, 2)
    assert (first.options, second.options) == ({}, {"num_warps": 8}) and "6.000000e+00" in program.kernels[0].text


def test_where_no_configuration_is_left_the_assertion_is_raised(record):
    reply, _ = record("CONFIGS = [(3, 4, None), (3, 8, None)]\n" + TUNED)
    assert (reply.exception, reply.text) == ("CompileTimeAssertionFailure", "three")
    assert reply.source.startswith("tl.static_assert(N != 3")


def test_a_kernel_that_is_compiled_by_hand_can_be_launched(record):
    text = launching("n, N: tl.constexpr", "16, 4").replace(
        "kernel[(3,)](x, 16, 4)",
        """compiled = kernel.warmup(
        torch.float32, 16, N=4, grid=(1,))
    compiled._init_handles()
    assert compiled.n_regs and compiled.metadata.num_stages and "tt.func" in compiled.asm["ttir"]
    compiled[(7, 2)](x, 5, 4)""",
    )
    step, _ = launch_of(record(text)[1])
    assert step.grid == (7, 2, 1) and step.names == ["X", "n"] and step.args[1] == 5


def test_hooks_run_and_a_launch_that_failed_raises_again(record):
    text = """
@triton.jit
def kernel(X, N: tl.constexpr):
    tl.store(X, N)

kernel.add_pre_run_hook(lambda x, N, **options: x.add_(N))

def call(x):
    for tile in (64, 32):
        try:
            kernel[(tile,)](x, tile)
            break
        except triton.runtime.errors.OutOfResources as error:
            assert error.required == 9
    return x
"""
    _, program = record(text, failing=[FailedLaunch(0, "", Shortage(9, 8, "shared memory"))])
    *hooks, launch = program.steps
    assert [step.op for step in hooks] == ["add_", "add_"] and launch.grid == (32, 1, 1) and launch.number == 1


# What a file says of the interpreter ---------------------------------------------------------------------------------

TILES = launching("N: tl.constexpr", "16 if INTERPRETED else 128", "tl.store(X + tl.arange(0, N), 1.0)")


@pytest.mark.parametrize("says", ["", 'os.environ["TRITON_INTERPRET"] = "1"', 'os.environ["TRITON_INTERPRET"] = "0"',
    "triton.knobs.runtime.interpret = True", "del os.environ['TRITON_INTERPRET']"])  # fmt: skip
def test_small_tiles_and_kernels_that_compile(says, record):
    _, kernel = launch_of(record(f"{says}\n{TILES}")[1])
    assert "tensor<16x" in kernel.text


def test_for_a_gpu_the_tiles_are_the_gpus(record):
    _, kernel = launch_of(record(TILES, gpu=SM_80)[1])
    assert "tensor<128x" in kernel.text


# What is refused -----------------------------------------------------------------------------------------------------


def said(reply, exception, words, source):
    assert isinstance(reply, Raised) and (reply.exception, reply.ours) == (exception, False), reply
    assert words in reply.text and source in reply.source and (reply.line or not source), reply


GAP = """
@triton.jit
def helper(x):
    for i in range(0, 4):
        # TODO 7: what is written here is no gap
        tl.static_assert(False, "TODO 4: one step")
    return x
"""


def test_a_gap_keeps_its_name_and_its_line(record):
    reply, _ = record(launching("n", "7", "tl.store(X, helper(n) * 1.0)", GAP))
    said(reply, "CompileTimeAssertionFailure", "TODO 4: one step", "tl.static_assert(False")
    assert reply.unfinished and reply.todo == "TODO 4: one step"


def test_a_comment_beside_a_mistake_is_no_gap(record):
    gap = GAP.replace('tl.static_assert(False, "TODO 4: one step")', "x = x + tl.zeros([8], tl.float32)[0]")
    reply, _ = record(launching("n", "7", "tl.store(X, helper(n) * 1.0)", gap))
    said(reply, "DoesNotCompile", "a block cannot be indexed", "tl.zeros([8]")
    assert not reply.unfinished and reply.todo is None


A, B = "tl.zeros([16, 32], tl.float32)", "tl.zeros([16, 32], tl.float16)"
REFUSED = {
    "shapes": (f"tl.store(X, tl.sum(tl.sum({A} + tl.zeros([16], tl.float32), 0), 0))", "16 x 32 and 1 x 16 do not fit"),
    "a product": (f"tl.store(X, tl.sum(tl.sum(tl.dot({A}, {A}), 0), 0))", "given 16 x 32 and 16 x 32"),
    "dtypes": (f"tl.store(X, tl.sum(tl.sum(tl.dot({A}, tl.trans({B})), 0), 0))", "was given fp32 and fp16"),
    "a condition": (f"tl.store(X, 1.0 if tl.sum({A}, 0) > 0 else 0.0)", "needs one value, not a block of 32 int1"),
    "a global": ("tl.store(X, INTERPRETED)", "INTERPRETED = tl.constexpr(...)"),
    "Python's function": ("tl.store(X, abs(n))", "Python's `abs` does not exist"),
    "a function without a decorator": ("tl.store(X, plain(n))", "a kernel cannot call `plain`"),
    "syntax": ("f = lambda y: y", "`lambda` does not exist inside a kernel"),
    "PyTorch's name": (f"tl.store(X, {A}.t())", "tl.trans transposes"),
    "no name of tl": ("tl.store(X, tl.ones([4], tl.float32))", "tl.full makes a block"),
    "a size of the launch": ("tl.store(X, tl.sum(tl.zeros([n], tl.float32)))", "a `tl.constexpr` argument"),
    "in a helper": (f"tl.store(X, helper({A}))", "there are tl.maximum and tl.minimum"),
}
PLAIN = """
def plain(n):
    return n

@triton.jit
def helper(x):
    return tl.max(x, x)
"""


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_said_in_words_with_its_line(name, record, capfd):
    body, words = REFUSED[name]
    for _ in range(2):  # the second time as the first
        reply, _ = record(launching("n", "7", body, PLAIN))
        said(reply, "DoesNotCompile", words, "tl.max(x, x)" if name == "in a helper" else body)
    assert "tt.func" not in "".join(capfd.readouterr())  # Triton prints the IR that it does not take


# (parameters, arguments, grid, exception, words)
BOUND = {
    "a list": ("n", "[1, 2]", "(1,)", "CannotRecord", "Triton takes tuples"),
    "a list in a tuple": ("n: tl.constexpr", "(1, [2])", "(1,)", "CannotRecord", "Triton takes tuples"),
    "a grid of floats": ("n", "7", "(x.numel() / 64,)", "CannotRecord", "triton.cdiv"),
    "an argument that is missing": (
        "n, m",
        "7",
        "(1,)",
        "TypeError",
        "kernel() missing 1 required positional argument",
    ),
    "no option": ("n", "7, num_stagez=3", "(1,)", "KeyError", "num_stagez"),
    "another library": ("n", "7, extern_libs={'libdevice': '/etc/x'}", "(1,)", "CannotRecord", "extern_libs"),
    "no type of Triton's": ("n", "x.dtype", "(1,)", "TypeError", "of type"),
}


@pytest.mark.parametrize("name", BOUND)
def test_what_no_launch_may_be_given(name, record):
    parameters, arguments, grid, exception, words = BOUND[name]
    reply, _ = record(launching(parameters, arguments, grid=grid))
    said(reply, exception, words, "kernel[" if name != "a grid of floats" else "")


def test_gluon_is_refused_by_name(record):
    before = "from triton.experimental import gluon\n"
    reply, _ = record(launching("n", "7", "pass", before, "@gluon.jit"))
    said(reply, "Refused", "kernel is a kernel of Gluon's, and the machine runs none", "kernel[(3,)](x, 7)")


def test_a_wrapper_meets_tritons_own_exception(record):
    text = launching("N: tl.constexpr", "3", 'tl.static_assert(N != 3, "three")')
    text = text.replace(
        "    kernel[(3,)](x, 3)",
        """    try:
        kernel[(3,)](x, 3)
    except triton.compiler.errors.CompileTimeAssertionFailure:
        kernel[(4,)](x, 4)""",
    )
    assert launch_of(record(text)[1])[0].grid == (4, 1, 1)


CHANGES = {
    "a kernel that is not there": {"kernel": 1},
    "an argument has one name": {"names": ["X"]},
    "an argument that is not there": {"unspecialized": [2]},
    "a grid has three sizes": {"grid": [1]},
    "a launch has no option extern_libs": {"options": {"extern_libs": "x"}},
}


@pytest.mark.parametrize("words", CHANGES)
def test_a_launch_that_does_not_fit(words, record):
    import json

    record(launching("n", "7"))
    with open("program.json", "rb") as file:
        program = json.load(file)
    program["steps"][-1] |= CHANGES[words]
    with pytest.raises(Malformed, match=words):
        programs.read(json.dumps(program).encode())
