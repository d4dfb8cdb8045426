"""What the reference makes in one run of each gap, kept beside the skeletons for `make hint`.

    python -m grader.commands.gap_examples      as JSON: {module: {number of a gap: Example}}

A skeleton's reader may have no solution. So the numbers, the shapes and the names of the operations are written here,
by `make skeletons`, from a call that `make try` repeats.
"""

import ast
import contextlib
import io
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import msgspec

from grader.commands.arguments import BadArguments
from grader.course import course
from grader.course.gaps import find_gaps, skeleton

FILE = "gap_examples.json"  # in problems/
CORNER = 4  # rows and columns that are shown of a tile
MOST_RUNS = 500  # of a gap
TAKES, MAKES = 0, 1
CALLED = re.compile(r"(?:\b(?:tl|torch|math)|(?<=[\w)\]]))\.\w+(?=\()")  # `torch.exp`, and `.log` of a tensor


class Example(msgspec.Struct, omit_defaults=True):
    """numbers: lines; shapes: `scores (64, 32)` of what the gap makes and of what it takes; operations: their names."""

    command: str = ""
    numbers: list[str] = []
    makes: list[str] = []
    takes: list[str] = []
    operations: list[str] = []


def load() -> dict[str, dict[str, Example]]:
    """The Examples of the course's skeletons; empty where they were never written."""
    path = course.current().students / FILE
    return msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, Example]]) if path.is_file() else {}


def make() -> bytes:
    """What FILE is to hold, computed in a process of its own, which changes Triton. Raises BadArguments."""
    made = subprocess.run([sys.executable, "-m", __name__], capture_output=True)
    if made.returncode:
        *_, last = made.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        raise BadArguments(f"the solutions cannot be run for the examples of `make hint`: {last}")
    return written(msgspec.json.decode(made.stdout))


def written(examples: dict) -> bytes:
    return msgspec.json.format(msgspec.json.encode(examples), indent=1) + b"\n"


# In the process of its own --------------------------------------------------------------------------------------------


def main() -> None:
    from grader.kinds.registry import EVERY

    found = {problem.module: make_examples(problem) for problem in EVERY.values()}
    sys.stdout.buffer.write(msgspec.json.encode(found))


def make_examples(problem):
    """{number of a gap: Example}."""
    from grader.commands import try_module
    from grader.core import in_process
    from grader.kinds.registry import kind_of

    kind, examples = kind_of(problem), {}
    source = (course.current().solutions / problem.module).read_text(encoding="utf-8")
    lines, left = source.splitlines(), set(re.findall(r"\w+", skeleton(source, problem.module)))
    for gap in reversed(find_gaps(lines, problem.module)):
        body = [line for line in lines[gap.start + 1 : gap.end - 1] if not line.strip().startswith("#")]
        made, taken = names_of("\n".join(body))
        made = [name for name in made if name in left]  # others are the reference's own
        examples[str(gap.number)] = Example(operations=list(dict.fromkeys(CALLED.findall("\n".join(body)))))
        for at, which, names in (gap.end - 1, MAKES, made), (gap.start + len(gap.words), TAKES, taken):
            told = "".join(f", {name}={name}" for name in names)
            lines.insert(at, f"{gap.indent}record_gap({gap.number}, {which}{told})")
    case, command = sized(kind, problem)
    runs = {int(number): ([], []) for number in examples}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, problem.module)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        record_gap, prints = recorder(runs)
        with try_module.loaded(problem, path, "cpu") as function, in_process.machine([prints], one_by_one=True):
            function.__globals__["record_gap"], more = record_gap, kind.objects(case, function.__globals__)
            with contextlib.redirect_stdout(io.StringIO()):
                function(*(each.tensor for each in kind.inputs(case, 0)), **case.arguments, **more)
    for number, example in examples.items():
        taken, made = choose(*runs[int(number)])
        example.command = command
        example.takes = [described(name, value) for name, value in taken.items()]
        example.makes = [described(name, value) for name, value in made.items()]
        example.numbers = [line for name, value in made.items() for line in shown(name, value)]
    return dict(sorted(examples.items()))


def sized(kind, problem):
    """(the case, the command of `make try` that calls the same)."""
    sizes = kind.example_sizes(problem)
    words = "".join(f" {name.upper()}={text}" for name, text in sizes.items())
    return kind.small_case(problem, sizes), f"make try P={problem.id.removeprefix('p')}{words}"


def names_of(code):
    """(the names that the lines assign, the names of values that they read before)."""
    made, taken = {}, {}
    tree = ast.parse(textwrap.dedent(code))
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    modules = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for statement in always_run(tree.body):
        nodes = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
        stored = [node.id for node in nodes if isinstance(node.ctx, ast.Store)]
        read = [node.id for node in nodes if isinstance(node.ctx, ast.Load) and id(node) not in called | modules]
        read += stored if isinstance(statement, ast.AugAssign) else []
        taken |= {name: True for name in read if not (name in made or name.isupper() or "stride" in name)}
        made |= {name: True for name in stored}
    return list(made), list(taken)


def always_run(statements):
    """The statements that run in each call, as they run: not what stands below an `if` that has no `else`."""
    for statement in statements:
        if isinstance(statement, ast.If | ast.For | ast.While):
            yield statement.iter if isinstance(statement, ast.For) else statement.test
            yield from always_run(statement.body if statement.orelse else ())
        else:
            yield statement


def recorder(runs):
    """(what `record_gap` calls, the observer that hears of it in a kernel, where Triton's front end makes a print)."""
    import torch
    import triton.language as tl

    from grader.core.machine.observer import Observer

    def keep(number, which, values):
        """Keep what a gap takes, or has made, in one of its runs; a copy, of tensors and numbers alone."""
        if len(runs[number][which]) < MOST_RUNS:
            kept = {name: x for name, x in values.items() if isinstance(x, torch.Tensor | bool | int | float)}
            runs[number][which].append({name: torch.as_tensor(x).detach().clone().numpy() for name, x in kept.items()})

    def record_gap(number, which, _semantic=None, **values):
        if _semantic is None:
            return keep(number, which, values)
        blocks = [name for name, x in values.items() if hasattr(x, "handle") and not x.dtype.is_ptr()]
        names = (*blocks, *(name for name, x in values.items() if isinstance(x, tl.constexpr)))
        tl.device_print(f"{number.value} {which.value} {' '.join(names)}", *map(values.get, names), _semantic=_semantic)

    def after(observer, operation, frame):
        number, which, *names = operation.attributes["text"].strip('": ').split()
        made = zip(names, operation.operands, operation.types, strict=True)
        keep(int(number), int(which), {name: frame[value].whole(1, kind.shape)[0] for name, value, kind in made})

    record_gap.__triton_builtin__ = True  # Triton's front end calls it
    return record_gap, type("Prints", (Observer,), {"operations": ("tt.print",), "after": after})()


def choose(taken, made):
    """(taken, made) of the first run, or of one that makes more different numbers where these are single ones."""

    def told(values):
        single = [value.item() for value in values.values() if not value.ndim]
        return len({*single} - {0}) if len(single) == len(values) else 0

    if not made:
        return taken[0] if taken else {}, {}
    best = max(range(len(made)), key=lambda at: told(made[at]))
    return taken[best], made[best]


def described(name, value):
    return f"{name} {tuple(value.shape)}" if value.ndim else f"{name} = {number(value)}"


def shown(name, value):
    """Lines: the first CORNER rows and columns of the first matrix."""
    if value.ndim == 0:
        return [f"{name} = {number(value)}"]
    corner = value[(0,) * (value.ndim - 2)] if value.ndim > 2 else value
    rows = corner[:CORNER, :CORNER] if corner.ndim == 2 else corner[None, :CORNER]
    return [f"{name}:" if corner.ndim == 2 else f"{name}, the first {rows.shape[1]}:"] + [
        "  ".join(f"{number(each):>9}" for each in row) for row in rows
    ]


def number(value):
    return str(value.item()) if value.dtype.kind in "biu" else f"{float(value):.4f}"


if __name__ == "__main__":
    main()
