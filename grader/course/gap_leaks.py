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
DATA = (".csv", ".json", ".svg")
OWN = {*dir(builtins), *keyword.kwlist, "tl", "torch", "triton"}  # names that nobody changes


@dataclass(frozen=True)
class Tokens:
    """A text as tokens. shape: a letter for each, the same one for every name that may be another. starts: places."""

    words: tuple[str, ...]
    shape: str
    starts: tuple[int, ...]


@dataclass(frozen=True)
class Answer:
    """What fills one gap of a module."""

    module: str
    number: int
    tokens: Tokens


LETTERS: dict[str, str] = {}  # of each token but names that may be others


def read_tokens(text: str) -> Tokens:
    found = [token for token in TOKEN.finditer(text) if not token[0].startswith("#")]
    words = ["" if token["name"] and token["name"] not in OWN else token[0] for token in found]
    shape = "".join(LETTERS.setdefault(word, chr(len(LETTERS) + 0x10000)) for word in words)
    return Tokens(tuple(token[0] for token in found), shape, tuple(token.start() for token in found))


def read_answers(solution: Path) -> list[Answer]:
    """The Answers of a solution."""
    lines = solution.read_text(encoding="utf-8").splitlines()
    gaps = find_gaps(lines, solution.name)
    return [Answer(solution.name, gap.number, read_tokens("\n".join(lines[gap.start : gap.end]))) for gap in gaps]


def shown(name: str, data: bytes) -> str:
    """What a file shows: of a notebook its cells and what they printed; of data, and of what is no text, nothing."""
    if name.endswith(DATA):
        return ""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ""
    if not name.endswith(".ipynb"):
        return text
    parts = [part for cell in json.loads(text)["cells"] for part in (cell, *cell.get("outputs", ()))]
    return "\n".join("".join(part.get("source", part.get("text", ""))) for part in parts)


def find_answers(text: str, answers: list[Answer]) -> Iterator[tuple[Answer, int]]:
    """(Answer, line) of each that the text holds."""
    given = read_tokens(text)
    for answer in answers:
        wanted, at = answer.tokens, -1
        while (at := given.shape.find(wanted.shape, at + 1)) >= 0:
            words = given.words[at : at + len(wanted.words)]
            if words == wanted.words or (len(words) >= FEW and renamed(wanted, words)):
                yield answer, text.count("\n", 0, given.starts[at]) + 1
                break


def renamed(wanted: Tokens, words: tuple[str, ...]) -> bool:
    """Whether one way to rename makes the names of `wanted` those among `words`."""
    blank = LETTERS[""]
    pairs = {(old, new) for old, new, letter in zip(wanted.words, words, wanted.shape, strict=True) if letter == blank}
    return len(pairs) == len({old for old, _ in pairs}) == len({new for _, new in pairs})
