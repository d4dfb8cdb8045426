"""IR that is changed at random: it is refused, it stops, or it is only another program. Nothing else may come of it."""

import random
import re
import subprocess
import sys

import pytest
import torch

from grader.core.machine import execution
from grader.core.machine.execution import Machine, Stopped
from grader.core.machine.legality import Legality
from grader.core.protocol.program import Refused
from grader.tests.core.machine import test_machine as texts
from grader.tests.core.machine.test_text import TEXT
from grader.tests.support import ROOT, thorough_but

ADDED = "0123456789%{}<>,:=-xfi "
NUMBERS = (0, 1, 2, -1, 16, 17, 1 << 31, (1 << 63) - 1, 1 << 64)


def bases():
    """(text, entry, grid, arguments) of kernels that are changed."""
    whole, floats = torch.zeros(24, dtype=torch.int32), torch.arange(24.0)
    for body, _ in texts.WAYS.values():
        yield texts.kernel(texts.HEAD + body), "k", (5, 1, 1), [whole, 0]
    yield texts.kernel(texts.HEAD + texts.ADD_ONE), "k", (5, 1, 1), [whole, 0]
    masked = (
        texts.BLOCK
        + texts.MASK
        + "%v = tt.load %p, %m : tensor<8x!tt.ptr<f32>>\ntt.store %p, %v, %m : tensor<8x!tt.ptr<f32>>"
    )
    yield texts.kernel(masked, texts.FLOATS), "k", (3, 1, 1), [floats, 20]
    yield TEXT, "kernel", (1, 1, 1), [floats, 16]


def changed(text, draw):
    """One to three changes: of a word, a number or a character; a line that goes, comes twice, or changes places."""
    lines = text.split("\n")
    words = sorted(set(re.findall(r"[%\w.]+", re.sub(r"#?loc.*", "", text))))
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        at, other, how = draw.randrange(len(lines)), draw.randrange(len(lines)), draw.randrange(6)
        line = lines[at]
        found = list(re.finditer(r"[%\w.]+" if how == 0 else r"\d+", line.split(" loc(")[0]))
        if how < 2 and found:
            one = draw.choice(found)
            word = draw.choice(words) if how == 0 else str(draw.choice(NUMBERS))
            lines[at] = line[: one.start()] + word + line[one.end() :]
        elif how == 2:
            lines[at] = ""
        elif how == 3:
            lines.insert(at, lines[other])
        elif how == 4:
            lines[at], lines[other] = lines[other], lines[at]
        elif line:
            place = draw.randrange(len(line))
            lines[at] = line[:place] + draw.choice(ADDED) + line[place + draw.randrange(2) :]
    return "\n".join(lines)


@pytest.mark.parametrize("seed", thorough_but([0, 8], list(range(45))))
def test_a_changed_text_is_refused_or_another_program(seed, monkeypatch):
    """200 changes of each seed."""
    monkeypatch.setattr(execution, "STEPS", 20_000)
    draw, known, ran = random.Random(seed), list(bases()), 0
    for _ in range(200):
        text, entry, grid, arguments = draw.choice(known)
        copies = [each.clone() if isinstance(each, torch.Tensor) else each for each in arguments]
        try:
            Machine(changed(text, draw), entry, [Legality()]).launch(grid, copies)
            ran += 1
        except (Refused, Stopped):
            continue
    assert 5 < ran < 195  # some are still programs, and some are none


ALONE = "drawn_kernels --count {} --alone"


@pytest.mark.parametrize(
    "command", thorough_but([ALONE.format(4)], [ALONE.format(4), ALONE.format(200), "compare_on_gpu --machine-alone"])
)
def test_kernels_of_the_whole_language_run(command):
    """Random ones alone and beside others; with what make test-all adds, each function of triton.language."""
    name, *options = command.split()
    run = [sys.executable, "-m", f"grader.tests.core.machine.{name}", "--processes", "2", *options]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
