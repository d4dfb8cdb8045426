"""Random kernels in the machine, against the GPU (--gpu), or one program at a time against all together (--alone).

    python -m grader.tests.core.machine.drawn_kernels --count 2000 --gpu
    python -m grader.tests.core.machine.drawn_kernels --count 200 --alone
    python -m grader.tests.core.machine.drawn_kernels --first 17 --count 1 --show

Kernel number i has seed i. Status 1 if any two results differ in a bit, or if a kernel does not run.
"""

import argparse
import importlib.util
import multiprocessing
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from grader.tests.core.machine.drawing import Drawing

READ = 256  # numbers that a kernel may read of each input
CELLS = 32  # that its atomics reach


def start(folder: str) -> None:
    import torch

    torch.set_num_threads(1)
    os.environ["TRITON_CACHE_DIR"] = f"{folder}/cache"


def written(seed: int, folder: str) -> Any:
    """The module of a drawn kernel: Triton reads a kernel's source from its file."""
    path = Path(folder) / f"drawn_{seed}.py"
    path.write_text(Drawing(seed).text(), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def arguments_of(module: Any, seed: int) -> list[Any]:
    import torch

    generator = torch.Generator().manual_seed(seed)
    size = 8 * module.SLOTS * module.M * module.N
    x = torch.randint(-(2**31), 2**31 - 1, (READ,), generator=generator, dtype=torch.int64)
    small = torch.rand(READ, generator=generator) < 0.5
    x = torch.where(small, x % 100, x).to(torch.int32)
    f = torch.randint(-9, 10, (READ,), generator=generator).float()
    outs = [torch.full((size,), -77, dtype=dtype) for dtype in (torch.int32, torch.int64, torch.float32)]
    cells = [torch.randint(-50, 50, (CELLS,), generator=generator, dtype=torch.int32) for _ in range(3)]
    return [x, f, *outs, *cells, torch.zeros(CELLS), 9, 5]


def run(seed: int, folder: str, way: str) -> tuple[int, str]:
    """(seed, what is wrong, or "")"""
    from grader.tests.core.machine import lowering
    from grader.tests.core.machine.compare_on_gpu import short
    from grader.tests.core.machine.differences import difference
    from grader.tests.core.machine.entries import Entry

    try:
        module = written(seed, folder)
        constants = {"M": module.M, "N": module.N, "SLOTS": module.SLOTS}
        launch = module.drawn, module.GRID, arguments_of(module, seed), constants, {}
        results = [lowering.on_machine(*launch)]
        if way == "alone":
            results += [lowering.on_machine(*launch, chunk=chunk) for chunk in (1, 3)]
        if way == "gpu":
            results += [lowering.on_gpu(*launch)]
    except Exception as error:
        return seed, short(error)
    exact = Entry(str(seed), None, ())
    for other in results[1:]:
        found = difference(exact, *(list(lowering.tensors(each)) for each in (results[0], other)))
        if found.elements:
            return seed, str(found)
    return seed, ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=500.0, help="stop then")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--gpu", action="store_const", dest="way", const="gpu", default="")
    ways.add_argument("--alone", action="store_const", dest="way", const="alone")
    parser.add_argument("--show", action="store_true", help="print the kernels and run nothing")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.count)
    if given.show:
        print("\n\n".join(Drawing(seed).text() for seed in seeds))
        return 0
    wrong, done, began, told = [], 0, time.monotonic(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(given.processes, context, start, (folder,)) as pool:
            waiting = [pool.submit(run, seed, folder, given.way) for seed in seeds]
            try:
                for future in as_completed(waiting, timeout=given.seconds):
                    seed, sentence = future.result()
                    done += 1
                    if sentence:
                        wrong.append(seed)
                        print(f"seed {seed}: {sentence}", flush=True)
                    if time.monotonic() - told > 5 or done == len(seeds):
                        told = time.monotonic()
                        print(f"{told - began:5.0f} s: {done} of {len(seeds)}, {len(wrong)} differ", flush=True)
            except TimeoutError:
                print("not done in time")
                for process in pool._processes.values():
                    process.kill()
    print(f"{done} of {len(seeds)} kernels, {len(wrong)} wrong: {' '.join(map(str, sorted(wrong)[:50]))}")
    return 1 if wrong or done < len(seeds) else 0


if __name__ == "__main__":
    sys.exit(main())
