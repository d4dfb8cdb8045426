"""Runs every kernel of language_kernels.py on the GPU and in the machine, and prints how far they lie apart.

    python -m grader.tests.core.machine.compare_on_gpu [--only TEXT ...] [--machine-alone] [--processes N]

Status 1 if a difference is over its entry's tolerance, or if the machine or the GPU does not run what it must.
"""

import argparse
import contextlib
import itertools
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from typing import Any

BROKEN = "the GPU's context of this process is broken"
FILLS = ("random", "special")
broken: list[str] = []


def start(folder: str, show: bool) -> None:
    """In each process: one thread, and what kernels and compilers print goes nowhere."""
    import torch

    torch.set_num_threads(1)
    os.environ["TRITON_CACHE_DIR"] = folder
    if not show:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)


def run(place: int, types: tuple[str, ...], alone: bool) -> list[tuple[str, bool, str]]:
    """One case of an entry: (fill, whether it is as it must be, what to print) of both fills."""
    from grader.tests.core.machine.language_kernels import KERNELS

    if broken:
        time.sleep(1.0)
        return [(fill, False, BROKEN) for fill in FILLS]
    return [(fill, *run_fill(KERNELS[place], types, fill == "special", alone)) for fill in FILLS]


def run_fill(entry: Any, types: tuple[str, ...], special: bool, alone: bool) -> tuple[bool, str]:
    from grader.core.protocol.program import Refused
    from grader.tests.core.machine import differences, entries, lowering

    arguments = entries.inputs(entry, types, special, lowering.described)
    launch = entry.kernel, entry.grid, arguments, entry.constants, entry.options
    try:
        mine = lowering.on_machine(*launch)
    except Refused as refusal:
        return entry.refused or entry.may_refuse, f"refused: {refusal}"
    except Exception as error:
        return False, f"the machine failed: {short(error)}"
    if entry.refused:
        return False, "the machine ran it, which it must refuse"
    if alone or not entry.gpu:
        return True, "ran in the machine"
    try:
        theirs = lowering.on_gpu(*launch)
    except Exception as error:
        if "CUDA" in str(error):
            broken.append(str(error))
        return False, f"the GPU failed: {short(error)}"
    difference = differences.difference(entry, *(list(lowering.tensors(each)) for each in (mine, theirs)))
    return not (difference.over and entry.judged), str(difference)


def short(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    sentence = " ".join(str(error).split())
    if len(sentence) > 200:
        sentence = f"{sentence[:110]} ... {sentence[-80:]}"
    return f"{type(error).__name__}: {sentence} ({os.path.basename(last.filename)}:{last.lineno})"


def chosen(only: list[str]) -> list[tuple[int, tuple[str, ...]]]:
    from grader.tests.core.machine.language_kernels import KERNELS
    from grader.tests.core.machine.lowering import VERSION

    wanted = (place for place, entry in enumerate(KERNELS) if not only or any(text in entry.name for text in only))
    return [(place, types) for place in wanted for types in KERNELS[place].cases(VERSION)]


def results_of(tasks: list, alone: bool, processes: int, seconds: float, show: bool) -> dict:
    """{task: results}, while printing how far it is. What is not done in time lacks."""
    done, began, told = {}, time.monotonic(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(processes, context, start, (folder, show))
        waiting: dict[Future, Any] = {pool.submit(run, *task, alone): task for task in tasks}
        tries = Counter[Any]()
        with contextlib.suppress(TimeoutError):
            while waiting:
                for future in as_completed(list(waiting), timeout=seconds - (time.monotonic() - began)):
                    task, results = waiting.pop(future), future.result()
                    tries[task] += 1
                    if results[0][2] == BROKEN and tries[task] < 50:
                        waiting[pool.submit(run, *task, alone)] = task
                        continue
                    done[task] = results
                    if time.monotonic() - told > 5 or len(done) == len(tasks):
                        told = time.monotonic()
                        wrong = sum(not all(fine for _, fine, _ in each) for each in done.values())
                        print(f"{told - began:5.0f} s: {len(done)} of {len(tasks)}, {wrong} wrong", flush=True)
        for process in (pool._processes or {}).values() if waiting else ():
            process.kill()
        pool.shutdown(wait=not waiting, cancel_futures=True)
    return done


def print_table(tasks: list, done: dict) -> int:
    """How many results are not as they must be. An entry takes a line for each result, with the types that have it."""
    from grader.tests.core.machine.language_kernels import KERNELS

    wrong = 0
    for place, group in itertools.groupby(tasks, key=lambda task: task[0]):
        lines: dict[tuple[bool, str], list[str]] = {}
        for task in group:
            for fill, fine, sentence in done.get(task, [("both", False, "not done in time")]):
                name = "->".join(task[1]) or "-"
                lines.setdefault((fine, sentence), []).append(name if fill == "random" else f"{name}*")
                wrong += not fine
        entry = KERNELS[place]
        for (fine, sentence), types in lines.items():
            both = [name for name in types if not name.endswith("*") and f"{name}*" in types]
            rest = [name for name in types if name.strip("*") not in both]
            note = "" if entry.judged else " (open)"
            print(f"{'    ' if fine else 'BAD '}{entry.name}{note} | {' '.join(both + rest)} | {sentence}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="names that contain one of these")
    parser.add_argument("--machine-alone", action="store_true", help="run all in the machine and compare nothing")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=170.0, help="stop then")
    parser.add_argument("--show", action="store_true", help="show what kernels and compilers print")
    given = parser.parse_args()
    if not given.machine_alone:
        import torch

        if not torch.cuda.is_available():
            print("no GPU: --machine-alone runs all in the machine", file=sys.stderr)
            return 2
    tasks = chosen(given.only)
    done = results_of(tasks, given.machine_alone, given.processes, given.seconds, given.show)
    wrong = print_table(tasks, done)
    print(f"{len(tasks)} cases, each with random and with special values (*); {wrong} results not as they must be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
