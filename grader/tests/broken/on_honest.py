"""Mistakes in kernels of other shapes: honest kernels with one idea wrong, read from on_honest.txt."""

from pathlib import Path

from grader.tests.broken.mistakes import Mistake


def read(text):
    """Mistakes, in the order of the text; a line break in words is written as \\n."""
    found = []
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        if lines:
            base, _, name = lines[0].partition(": ")
            case, _, because = lines[-1].removeprefix("? ").partition(": ")
            was, now = (tuple(words_of(lines, mark)) for mark in "-+")
            found.append(Mistake(base.split("_")[0], name, was, now, case, because=because, base=base))
    return tuple(found)


def words_of(lines, mark):
    return (line[2:].replace("\\n", "\n") for line in lines[1:-1] if line[0] == mark)


ON_HONEST = read(Path(__file__).with_suffix(".txt").read_text())
