"""The gaps of an exercise: cut out of a solution, each leaves a failure by its name; whether one was filled since.

A gap in a solution begins with `# gap N: its name`, has details in further comment lines `#   ...`, and ends with
`# end gap`. In the skeleton it becomes `# TODO N: its name (about 3 lines; then delete the failing line)` and a failure
that carries the same name.
"""

import ast
import difflib
import functools
import re
from dataclasses import dataclass

from grader.course import course

BEGIN = re.compile(r"^(?P<indent> *)# gap (?P<number>\d+): (?P<goal>.*)$")
MORE = re.compile(r"^ *#   (?P<goal>.*)$")
END = re.compile(r"^ *# end gap$")
FAILURE = re.compile(r"(?:static_assert\(False, |NotImplementedError\()\"TODO (?P<number>\d+): ")
TODO = re.compile(r"(# TODO \d+).*")  # its words are ours to change


class BadGap(Exception):
    """A gap in a solution is not well formed; the text says where and why."""


@dataclass(frozen=True)
class Gap:
    """One gap of a solution: lines[start:end] of its file, markers included; words: its name, then the details."""

    start: int
    end: int
    number: int
    indent: str
    words: tuple[str, ...]
    size: int

    def todo(self, in_kernel):
        """The lines that stand for the gap in a skeleton: its words, its size, and a failure that carries its name."""
        name = f"TODO {self.number}: {self.words[0]}"
        size = f"(about {self.size} line{'s' * (self.size != 1)}; then delete the failing line)"
        failure = f'tl.static_assert(False, "{name}")' if in_kernel else f'raise NotImplementedError("{name}")'
        lines = [f"# {name} {size}", *(f"#   {detail}" for detail in self.words[1:]), failure]
        return [self.indent + line for line in lines]


def find_gaps(lines, name):
    """The gaps of a solution, in order; raises BadGap."""
    gaps = []
    for at, line in enumerate(lines):
        if END.match(line) and not (gaps and gaps[-1].end == at + 1):
            raise BadGap(f"{name}:{at + 1}: `# end gap` without a gap")
        if not (begin := BEGIN.match(line)):
            continue
        body = at + 1
        while MORE.match(lines[body]):
            body += 1
        end = next((i for i in range(body, len(lines)) if END.match(lines[i])), None)
        if end is None or any(BEGIN.match(inner) for inner in lines[body:end]):
            raise BadGap(f"{name}:{at + 1}: gap {begin['number']} has no `# end gap`")
        words = (begin["goal"], *(MORE.match(more)["goal"] for more in lines[at + 1 : body]))
        size = sum(bool(code.strip()) and not code.strip().startswith("#") for code in lines[body:end])
        gaps.append(Gap(at, end + 1, int(begin["number"]), begin["indent"], words, size))
    numbers = sorted(gap.number for gap in gaps)
    if numbers != list(range(1, len(gaps) + 1)):
        raise BadGap(f"{name}: gaps are numbered {numbers}; they must be 1 to {len(gaps)}")
    return gaps


def skeleton(source, name):
    """The skeleton of one solution, as text; raises BadGap."""
    lines, kernels = source.splitlines(), jit_lines(source)
    for gap in reversed(find_gaps(lines, name)):
        lines[gap.start : gap.end] = gap.todo(in_kernel=gap.start + 1 in kernels)
    return "\n".join(lines) + "\n"


def jit_lines(source):
    """The numbers of the lines that lie inside a @triton.jit function."""
    inside, nodes = set(), ast.parse(source).body
    for node in nodes:
        nodes += getattr(node, "body", [])  # statements alone: expressions are most of a tree
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(d) for d in node.decorator_list):
            inside.update(range(node.lineno, node.end_lineno + 1))
    return inside


@functools.lru_cache(32)  # all cases of a problem ask
def filled_but_failing(module, text):
    """[(number, line)] of a student's gaps with new code beside their failing line, in order; [] without a solution."""
    solution = course.current().solutions / module
    if not solution.is_file():
        return []
    given = [code for _, code in code_lines(skeleton(solution.read_text(encoding="utf-8"), module))]
    numbered = code_lines(text)
    matcher = difflib.SequenceMatcher(None, given, [code for _, code in numbered], autojunk=False)
    new = {at for tag, _, _, start, end in matcher.get_opcodes() if tag != "equal" for at in range(start, end)}
    return [
        (int(failing["number"]), line)
        for at, (line, code) in enumerate(numbered)
        if (failing := FAILURE.search(code)) and at not in new and new & {at - 1, at + 1}
    ]


def code_lines(text):
    """[(number, line)] of the lines that are neither blank nor a comment, and of `# TODO N`, where a gap begins."""
    lines = [TODO.sub(r"\1", line.strip()) for line in text.splitlines()]
    return [(number, line) for number, line in enumerate(lines, 1) if line and (line[0] != "#" or TODO.match(line))]
