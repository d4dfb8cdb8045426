"""solutions/ -> problems/: the gaps are cut out, each fails by its name; a file that a student edited is kept.

    python -m grader.commands.skeletons           write the skeletons
    python -m grader.commands.skeletons --check   exit 1 where problems/ is not what solutions/ gives

A gap in a solution begins with `# gap N: its name`, has details in further comment lines `#   ...`, and ends with
`# end gap`. In the skeleton it becomes `# TODO N: its name (about 3 lines)` and a failure that carries the same name.
"""

import ast
import hashlib
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from grader.kinds.registry import EVERY

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS, SKELETONS = ROOT / "solutions", ROOT / "problems"
MANIFEST = "generated.json"  # {module: hash of what was generated}: how an edited file is known

BEGIN = re.compile(r"^(?P<indent> *)# gap (?P<number>\d+): (?P<goal>.*)$")
MORE = re.compile(r"^ *#   (?P<goal>.*)$")
END = re.compile(r"^ *# end gap$")


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
        size = f"(about {self.size} line{'s' * (self.size != 1)})"
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
    inside = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(d) for d in node.decorator_list):
            inside.update(range(node.lineno, node.end_lineno + 1))
    return inside


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def generate():
    """{module: the text of its skeleton} for every problem and lab."""
    return {p.module: skeleton((SOLUTIONS / p.module).read_text(), p.module) for p in EVERY.values()}


def write(texts, folder):
    """Write what has not been edited since it was generated; returns the modules that were kept."""
    folder.mkdir(exist_ok=True)
    manifest = folder / MANIFEST
    known = json.loads(manifest.read_text()) if manifest.exists() else {}
    kept = []
    for module, text in texts.items():
        path = folder / module
        if path.exists() and digest(path.read_text()) not in (known.get(module), digest(text)):
            kept.append(module)
            continue
        path.write_text(text)
        known[module] = digest(text)
    manifest.write_text(json.dumps(known, indent=1) + "\n")
    return kept


def check(texts, folder):
    """The modules in `folder` that are not what the solutions give."""
    return [m for m, text in texts.items() if not (folder / m).exists() or (folder / m).read_text() != text]


def main(argv):
    try:
        texts = generate()
    except BadGap as error:
        print(f"skeletons: {error}", file=sys.stderr)
        return 2
    if argv == ["--check"]:
        drifted = check(texts, SKELETONS)
        for module in drifted:
            print(f"problems/{module} is not what solutions/{module} gives: `make skeletons` writes it anew")
        return 1 if drifted else 0
    for module in write(texts, SKELETONS):
        print(f"kept problems/{module}: it has been edited; move it away to get a fresh skeleton")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
