"""A class of made-up students with real kernels: python -m classroom.tests.synthetic FOLDER --size 60 --seed 0.

Each student solves some problems: as the solutions do, in the unusual ways of submissions/honest, with a mistake of
submissions/broken, or not at all; a few hang, crash or print without end, and some hand in what nobody asked for. The
same seed gives the same class, byte for byte.
"""

import argparse
import random
import sys
import zipfile
from pathlib import Path

from grader.registry import PROBLEMS
from grader.tests.submissions.broken.mistakes import MISTAKES
from grader.tests.support import ROOT, SUBMISSIONS, solution

HONEST = SUBMISSIONS / "honest"
FIRST = ("Ada", "Bo", "Chen", "Dana", "Emre", "Fatima", "Goran", "Hana", "Igor", "Jo", "Kim", "Lena", "Mio", "Nils",
         "Oya", "Per", "Quinn", "Rosa", "Sam", "Tomás", "Uma", "Vera", "Wei", "Xenia", "Yuki", "Zoë")  # fmt: skip
LAST = ("Abe", "Berg", "Cruz", "Diaz", "Evans", "Fischer", "García", "Huang", "Ivanov", "Jensen", "Kaya", "Lee",
        "Müller", "Novak", "O'Brien", "Park", "Rossi", "Silva", "Tanaka", "Weber")  # fmt: skip

# How many of a hundred students are of each kind, and which of their problems are solved in which way.
KINDS = (
    ("all right", 14), ("right in other ways", 12), ("a mistake in some", 34), ("half done", 14), ("the skeletons", 6),
    ("one hangs", 4), ("one crashes", 4), ("one floods", 2), ("one cannot be imported", 3), ("some missing", 4),
    ("a notebook", 1), ("an empty file", 1), ("not a file at all", 1),
)  # fmt: skip
HANGS = "\n\ndef {name}(*args, **kwargs):\n    while True:\n        pass\n"
CRASHES = "\n\ndef {name}(*args, **kwargs):\n    import ctypes\n\n    ctypes.string_at(0)\n"
FLOODS = "\n\ndef {name}(*args, **kwargs):\n    for _ in range(300_000):\n        print('x' * 100)\n"
BROKEN = "import numpy_of_mine\n\n"


def modules_of(kind, draw):
    """{module: its text} of a student of this kind."""
    texts = {problem.module: solution(id) for id, problem in PROBLEMS.items()}
    ids = list(PROBLEMS)
    some = draw.sample(ids, draw.randrange(1, 4))
    if kind == "right in other ways":
        texts |= {PROBLEMS[id].module: other_way(id, draw) for id in some}
    elif kind == "a mistake in some":
        texts |= {PROBLEMS[id].module: with_mistake(id, draw) for id in some}
    elif kind == "half done":
        texts |= {PROBLEMS[id].module: skeleton(id) for id in ids[draw.randrange(2, 6) :]}
    elif kind == "the skeletons":
        texts = {PROBLEMS[id].module: skeleton(id) for id in ids}
    elif kind == "some missing":
        for id in some:
            del texts[PROBLEMS[id].module]
    elif kind == "an empty file":
        texts[PROBLEMS[some[0]].module] = ""
    elif kind in ("a notebook", "not a file at all"):
        texts = {"attention.ipynb": '{"cells": [], "metadata": {}, "nbformat": 4}'} if "book" in kind else {}
    else:
        spoil(texts, PROBLEMS[some[0]], kind)
    return texts


def spoil(texts, problem, kind):
    """Make one problem hang, crash, flood or fail at its import, where `kind` says so."""
    ends = {"one hangs": HANGS, "one crashes": CRASHES, "one floods": FLOODS}
    if kind in ends:
        signature = "q, k, v, " + ", ".join(f"{name}=None" for name in problem.keywords)
        end = ends[kind].replace("*args, **kwargs", signature)
        texts[problem.module] += end.format(name=problem.entry_point)
    elif kind == "one cannot be imported":
        texts[problem.module] = BROKEN + texts[problem.module]


def other_way(id, draw):
    ways = sorted(path for path in HONEST.glob(f"{id}_*.py") if path.stem != "p3_block_pointers")
    return draw.choice(ways).read_text("utf-8") if ways else solution(id)


def with_mistake(id, draw):
    return draw.choice([m for m in MISTAKES if m.problem == id and not m.base]).apply(solution(id))


def skeleton(id):
    from grader.course import gaps

    return gaps.skeleton(solution(id), PROBLEMS[id].module)


# The folder -----------------------------------------------------------------------------------------------------------


def make(folder, size, seed=0):
    """Write `size` submissions and the roster beside them; returns [(name of the entry, kind)]."""
    draw = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    kinds, weights = zip(*KINDS, strict=True)
    # Every kind in its share, so that a small class has them too; only the order is drawn.
    dealt = [kind for kind, weight in KINDS for _ in range(round(weight * size / 100))][:size]
    dealt += draw.choices(kinds, weights, k=size - len(dealt))
    draw.shuffle(dealt)
    made, roster = [], ["id,name,email"]
    for number, kind in enumerate(dealt):
        name, id = f"{draw.choice(FIRST)} {draw.choice(LAST)}", f"s{10_000 + number}"
        roster.append(f'{id},"{name}",{id}@university.example')
        texts = modules_of(kind, draw)
        if number % 11 == 3:
            texts = {module: text.replace("\n", "\r\n") for module, text in texts.items()}
        made.append((put(folder, id, texts, number), kind))
    folder.with_name(folder.name + "-roster.csv").write_text("\n".join([*roster, "s99999,Nobody,-"]) + "\n", "utf-8")
    return made


def put(folder, name, texts, number):
    """Write one submission as a folder, a zip, or folders in a folder; returns the entry's name."""
    if number % 3 == 1:
        with zipfile.ZipFile(folder / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for module, text in texts.items():
                member = zipfile.ZipInfo(f"homework/{module}" if number % 2 else module, (2026, 5, 1, 12, 0, 0))
                archive.writestr(member, text)
        return f"{name}.zip"
    inside = folder / name / "src" / "attention" if number % 7 == 5 else folder / name
    inside.mkdir(parents=True, exist_ok=True)
    for module, text in texts.items():
        (inside / module).write_bytes(text.encode())
    return name


def main(argv=None):
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description=__doc__.split(":")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    made = make(options.folder, options.size, options.seed)
    for kind, _ in KINDS:
        print(f"{sum(of == kind for _, of in made):4}  {kind}")
    given = options.folder.resolve()
    print(f"make class SUBMISSIONS={given} ROSTER={given}-roster.csv  (in {ROOT})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
