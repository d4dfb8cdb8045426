"""The problems of a request, so many at a time; what is timed comes when nothing else runs."""

import contextlib
import ctypes
import os
from concurrent.futures import ThreadPoolExecutor

import torch

from grader.core.sandbox import handed_in, pool
from grader.engine.problem_grader import ProblemGrader

# Options of glibc's mallopt: M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD, the latter two in bytes.
MALLOC = {-8: 1, -3: 16 << 20, -1: 16 << 20}


def grade(request, lanes, on_case=lambda problem, name: None, on_look=lambda problem, words: None):
    """Grade every problem of the request, `lanes` at a time; the results of each problem in the order of its cases.

    on_case(problem, name of the case) is called whenever one has been graded, on_look(problem, words) now and then
    while what is wrong is looked at more closely.
    What is timed is timed when nothing else runs any more, one after the other.
    """
    torch.set_num_threads(1)  # the lanes are the parallelism: small tensors, many questions
    give_memory_back()
    threads, cores = ThreadPoolExecutor(lanes), -(-(os.cpu_count() or 1) // min(lanes, len(request.problems)))
    with handed_in.readable(request.submission) as folder:
        try:
            graders = [ProblemGrader(request, p, on_case, folder, on_look, cores) for p in request.problems]
            longest_first = sorted(graders, key=lambda grader: -len(request.cases(grader.problem)))
            list(threads.map(ProblemGrader.run, longest_first))  # the last to end has little left to do alone
            for grader in graders:
                if grader.is_timed():
                    grader.speed()
            return [result for grader in graders for result in grader.results]
        except BaseException:  # Ctrl-C: the threads wait for children, so the children go first
            threads.shutdown(wait=False, cancel_futures=True)
            pool.close_all()
            raise
        finally:
            threads.shutdown(wait=False)


def give_memory_back():
    """Have glibc give the memory of freed tensors back at once: each lane, a thread, keeps a heap of it otherwise."""
    with contextlib.suppress(AttributeError, OSError):  # another C library
        set_option = ctypes.CDLL(None).mallopt
        for option, value in MALLOC.items():
            set_option(option, value)
