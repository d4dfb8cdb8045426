"""Does a text hold what fills a gap of a solution, under whatever names?

Both are read as tokens, without comments and line ends. Two pieces are the same if their tokens are, and if one way to
rename variables makes their names the same; a gap of few tokens must have the same names.
"""

import builtins
import json
import keyword
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grader.course.gaps import find_gaps

FEW = 20  # tokens: a shorter gap with other names looks like much that is no answer
TOKEN = re.compile(r"#[^\n]*|\"[^\"\n]*\"|'[^'\n]*'|(?P<name>(?<!\.)\b[A-Za-z_]\w*)|\w[\w.]*|[^\s\w]")
OWN = {*dir(builtins), *keyword.kwlist, "tl", "torch", "triton"}  # names that nobody changes


@dataclass(frozen=True)
class Tokens:
    """A text as tokens. shape: the same with a blank for each name that may be another. starts: where each begins."""

    words: tuple[str, ...]
    shape: tuple[str, ...]
    starts: tuple[int, ...]


@dataclass(frozen=True)
class Answer:
    """What fills one gap of a module."""

    module: str
    number: int
    tokens: Tokens


def read_tokens(text: str) -> Tokens:
    found = [token for token in TOKEN.finditer(text) if not token[0].startswith("#")]
    shape = ["" if token["name"] and token["name"] not in OWN else token[0] for token in found]
    return Tokens(tuple(token[0] for token in found), tuple(shape), tuple(token.start() for token in found))


def read_answers(solution: Path) -> list[Answer]:
    """The Answers of a solution."""
    lines = solution.read_text().splitlines()
    gaps = find_gaps(lines, solution.name)
    return [Answer(solution.name, gap.number, read_tokens("\n".join(lines[gap.start : gap.end]))) for gap in gaps]


def read_text(path: Path) -> str:
    """What a file shows: of a notebook its cells and what they printed; of what is no text, nothing."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""
    if path.suffix != ".ipynb":
        return text
    shown = [part for cell in json.loads(text)["cells"] for part in (cell, *cell.get("outputs", ()))]
    return "\n".join("".join(part.get("source", part.get("text", ""))) for part in shown)


def find_answers(text: str, answers: list[Answer]) -> Iterator[tuple[Answer, int]]:
    """(Answer, line) of each that the text holds."""
    given = read_tokens(text)
    for answer in answers:
        wanted = answer.tokens
        size, renamed = len(wanted.shape), len(wanted.shape) >= FEW
        for at in range(len(given.shape) - size + 1):
            if given.shape[at] != wanted.shape[0] or given.shape[at : at + size] != wanted.shape:
                continue
            words = given.words[at : at + size]
            pairs = {(new, old) for new, old, blank in zip(words, wanted.words, wanted.shape, strict=True) if not blank}
            if words == wanted.words or (renamed and len(pairs) == len(dict(pairs)) == len({old for _, old in pairs})):
                yield answer, text.count("\n", 0, given.starts[at]) + 1
                break
