"""Why a warp waits: the profiler's names for it, in words, and what a writer of Triton can try against each."""

from typing import NamedTuple


class Stall(NamedTuple):
    words: str
    advice: str


LOADS = "more num_stages, so that loads run further ahead, or tensor descriptors for K and V"
SHARED = "fewer tiles that change their layout between two operations: keep q and acc as tl.dot wants them"
OVERLAP = "more work beside it: a second program on the multiprocessor (smaller tiles), or more num_warps"
MASKS = "wider loads: contiguous rows, no mask where all rows exist, tensor descriptors"

# None: no wait worth a name, but part of a warp's time.
STALLS = {
    "selected": None,
    "not_selected": None,
    "barrier": Stall(
        "for the program's other warps, at a barrier",
        "fewer num_warps, or smaller tiles of which two programs fit a multiprocessor: one works while the other waits",
    ),
    "long_scoreboard": Stall("for data from L2 or memory", LOADS),
    "short_scoreboard": Stall("for results from shared memory or exp2", SHARED),
    "mio_throttle": Stall("for room in the queue of shared memory and exp2", SHARED),
    "lg_throttle": Stall("for room in the queue of loads and stores", MASKS),
    "tex_throttle": Stall("for room in the queue of tensor-descriptor and texture loads", "fewer, larger loads"),
    "gmma": Stall("for the tensor cores' product (wgmma)", OVERLAP),
    "wait": Stall("for the fixed time that an instruction before takes", OVERLAP),
    "math_pipe_throttle": Stall(
        "for a unit of arithmetic that is taken",
        "less arithmetic on each score: masks only where they cut a tile, the scale folded into exp2",
    ),
    "dispatch_stall": Stall("for the dispatcher, which holds the instruction back", OVERLAP),
    "no_instruction": Stall("for the next instruction to be fetched", "a shorter loop: less unrolling, one body"),
    "imc_miss": Stall("for a constant or argument that is not in its cache", "fewer arguments of the kernel"),
    "branch_resolving": Stall("for a branch's target", "fewer branches inside the loop over the keys"),
    "drain": Stall("for the last stores to leave", "whole rows in each store, with a contiguous last dimension"),
    "membar": Stall("for memory to be in order (a fence)", "no atomics between programs"),
    "sleeping": Stall("asleep, as the kernel asked", OVERLAP),
    "misc": Stall("for a reason that has no name", OVERLAP),
}
