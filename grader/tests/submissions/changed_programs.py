"""Programs changed at random, and what the runner made of each.

python -m grader.tests.submissions.changed_programs 2000 changes that many.

Whoever writes a program by hand can write anything. Whatever it is, the runner must answer, and what is wrong must not
pass.
"""

import collections
import json
import random
import sys
import time
from dataclasses import replace

from grader.kinds.attention.cases import Case
from grader.kinds.registry import PROBLEMS, handler_of
from grader.processes import unfinished
from grader.processes.child import ChildFailed
from grader.processes.submission import Submission
from grader.result import Outcome
from grader.tests.support import SOLUTIONS

CASES = {"p2": Case("x", Hq=2, N=70, D=16), "p3": Case("x", Hq=2, N=70, D=16)}
CASES["p5"] = Case("x", Hq=4, Hkv=2, N=70, D=16, causal=True)
ODD = (None, True, -1, 0, 1, 7, 2**31, 2**62, 10**30, 0.5, "", "q", "float64", "__import__", [], {}, [[]], {"t": []})


def places(value, found):
    """Every (container, key) in plain data."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        found.append((value, key))
        places(value[key], found)
    return found


def changed(program, draw):
    """A copy with one to three random changes."""
    program = json.loads(json.dumps(program))
    for _ in range(draw.randint(1, 3)):
        container, key = draw.choice(places(program, []))
        how = draw.randrange(5)
        other, other_key = draw.choice(places(program, []))
        if how == 0:
            container[key] = draw.choice(ODD)
        elif how == 1 and type(container[key]) is int:
            container[key] += draw.choice((-1, 1, 8, 64, -container[key], 1 << 40))
        elif how == 2:
            container[key] = json.loads(json.dumps(other[other_key]))
        elif how == 3 and isinstance(container, list):
            container.insert(key, json.loads(json.dumps(container[key])))
        elif isinstance(container, list) or how == 4:
            del container[key]
        else:
            container[key] = draw.choice(ODD)
    return program


def outcomes(count, seed, seconds=20.0):
    """Yields (problem, outcome, sentence) of `count` changed programs; raises where the runner itself is lost."""
    draw = random.Random(seed)
    for id, case in CASES.items():
        problem = replace(PROBLEMS[id], cases=(case,))
        submission, how = Submission(SOLUTIONS / problem.module, problem, "cpu", seconds), handler_of(problem, case)
        placed = how.inputs(case, 0)
        request, files = how.request(problem, case, placed, "cpu")
        program = json.loads(submission.record(request)["program"])
        for _ in range(count // len(CASES)):
            data = json.dumps(changed(program, draw)).encode()
            try:
                given = {"program.json": data} | files
                reply = submission.ask_runner({"op": "run"} | request, given, time.monotonic() + seconds)
                if reply["status"] != "returned":
                    yield id, *unfinished.explain_reply(reply, problem, submission.path)[:2]
                    continue
                data = submission.take_outputs(reply)
                yield id, *how.judge(problem, case, placed, reply, data, "cpu")[:2]
            except ChildFailed as failure:  # that program's process is gone, and the next gets another
                submission.runner.close()
                submission.runner = None
                yield id, Outcome.CRASHED, str(failure)
        submission.close()


def main():
    from grader.processes import sandboxes

    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    found = collections.Counter()
    for number, (id, outcome, sentence) in enumerate(outcomes(count, seed)):
        found[outcome.value] += 1
        found["could not be run"] += "the program could not be run" in sentence
        if "the program could not be run" in sentence or outcome is Outcome.GRADER_FAULT:
            print(f"{id}: {sentence[:200]}")
        if number % 100 == 99:
            print(number + 1, dict(found), flush=True)
    print(dict(found))
    sandboxes.close_all()


if __name__ == "__main__":
    main()
