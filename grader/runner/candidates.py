"""In the runner, interpreted: a program with small changes in its kernels and launches, each seen by its output.

Nothing is traced. So that a wrong pointer harms nothing, every access must lie in a storage of the program; so that
nothing hangs, each candidate has its time. What a candidate does wrong is its failure, and the next one runs.
"""

import contextlib
import signal
import sys
import time

import msgspec
import numpy as np
import replies
import torch
import triton.language as tl
import triton.runtime.interpreter as interpreter
from allocations import INPUT_POISON, Allocations
from patches import Patches
from program import Argument, Branch, Choice, Launch, launches_in
from replay import Replay, place_inputs
from reuse import Results

SLOWEST = 10  # times as long as the program itself may a candidate take
LEAST_SECONDS = 0.2
FAILS = (Exception, SystemExit)  # whatever a kernel that makes no sense raises


class Outside(Exception):
    """A candidate touches what is not the program's."""


class TooSlow(Exception):
    """A candidate takes too long."""


# Jobs ----------------------------------------------------------------------------------------------------------------


def look(runner, request, program):
    """The checked program as plain data for who makes candidates: its kernels, its launches, and what ran.

    "ran": lines; "kinds": {kernel: {name: kind}}, where a kind is "int", "float" or the like for a scalar, or a letter
    (f, i, b, p for a pointer) with the number of dimensions. Both are empty where the request does not "watch".
    """
    watch = Watch({kernel.file for kernel in program.kernels})
    if request["watch"]:
        bench = Bench(runner, request, program)
        with bench.ready(), watch:
            bench.output({}, None)
    return {
        "status": "returned", "kernels": msgspec.to_builtins(program.kernels),
        "launches": msgspec.to_builtins(launches_in(program.steps)), "ran": sorted(watch.ran), "kinds": watch.kinds,
    }  # fmt: skip


def run(runner, request, program):
    """The outputs of candidates {"kernels": {number: text}, "launches": {number: {"args", "grid"}}, "programs"}.

    "programs" of a candidate, or of the request, are those of the grid that are interpreted; None for all. Only the
    rows that a candidate wrote come back: "distinct" has {"rows", "start"}, the numbers of the rows of the first output
    and where their bytes begin in outputs.bin; "results" has for each candidate [which of them, elements
    loaded], or why it failed. Where the seconds of a core are used up, "results" is shorter than the candidates;
    "spent": those that were. "loaded": what the program itself loads.
    """
    began = time.process_time()
    bench = Bench(runner, request, program)
    distinct, results, known, data = [], [], {}, bytearray()
    with bench.ready():
        slowest, loads = bench.time_itself(request["programs"])
        for candidate in request["candidates"]:
            if time.process_time() > began + request["seconds"]:
                break
            try:
                bench.reuse(candidate)
                with time_limit(slowest):
                    output, loaded = bench.output(candidate, candidate.get("programs", request["programs"]))
                rows, raw = bench.written(output)
            except FAILS as error:
                results.append(type(error).__name__)
                continue
            key = tuple(rows), raw
            if key not in known:
                known[key] = len(distinct)
                distinct.append({"rows": rows, "start": len(data)})
                data += raw
            results.append([known[key], loaded])
    with open("outputs.bin", "wb") as file:
        file.write(data)
    return {
        "status": "returned", "results": results, "distinct": distinct, "bytes": len(data), "loaded": loads,
        "spent": time.process_time() - began,
    }  # fmt: skip


@contextlib.contextmanager
def time_limit(seconds):
    """Raise TooSlow in here once so many seconds are over, again and again, since a handler may swallow one."""

    def late(*_):
        raise TooSlow

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds / 4)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# Running one ---------------------------------------------------------------------------------------------------------


class Bench:
    """Runs candidates of one program on one set of inputs, which none of them may change."""

    def __init__(self, runner, request, program):
        self.program, self.kernels = program, runner.make_kernels(program)
        with open("inputs.bin", "rb") as file:
            data = bytearray(file.read())
        self.inputs, _, self.kept = place_inputs(request["inputs"], data, "cpu", INPUT_POISON)
        self.replay = self.programs = self.blank = None
        self.memory, self.patches, self.results = Memory(interpreter._interpreter), Patches(), Results()
        self.arguments = {}

    @contextlib.contextmanager
    def ready(self):
        """The interpreter's language in place, and every access checked."""
        self.patches.replace(interpreter, "_interpreter", lambda old: self.memory)
        scope = interpreter._patch_lang(None)
        self.results.hook(scope, self.patches)
        try:
            with torch.no_grad():
                yield
        finally:
            scope.restore()
            self.patches.undo()

    def time_itself(self, programs):
        """(seconds that a candidate may take, elements that the program itself loads).

        Notes what the output holds where no program has written, and the results that candidates share.
        """
        self.blank = as_rows(self.output({}, [])[0]).clone()
        started = time.perf_counter()
        launches = len(launches_in(self.program.steps))
        self.results.record() if launches == 1 and programs and len(programs) == 1 else self.results.rest()
        with contextlib.suppress(FAILS), time_limit(60.0):
            self.output({}, programs)
        self.can_reuse, self.results.recording = self.results.recording, False
        return max(LEAST_SECONDS, SLOWEST * (time.perf_counter() - started)), self.memory.loaded

    def output(self, candidate, programs):
        """(the first tensor that is returned, how many elements were loaded)."""
        self.programs, self.memory.loaded = programs, 0
        self.memory.strict = bool(candidate.get("kernels") or candidate.get("launches"))
        texts = {int(number): text for number, text in candidate.get("kernels", {}).items()}
        kernels = self.kernels.changed(texts) if texts else self.kernels
        changed = change_launches(self.program, candidate.get("launches", {}))
        self.replay = Replay(changed, kernels, "cpu", self.launch, lambda choices, run: 0)
        with Allocations():
            returned = self.replay.run(self.inputs)
        return next(each for each in returned if isinstance(each, torch.Tensor)), self.memory.loaded

    def reuse(self, candidate):
        """Let the next run use the results of the program itself, where that is the same program of the same grid."""
        other = "programs" in candidate or any("grid" in change for change in candidate.get("launches", {}).values())
        self.results.use() if self.can_reuse and not other else self.results.rest()

    def written(self, output):
        """(numbers of the rows that were written, their bytes)."""
        now = as_rows(output)
        if now.shape != self.blank.shape:
            raise ValueError("another shape")
        rows = (now != self.blank).any(1).nonzero().flatten()
        return rows.tolist(), replies.raw_bytes(now[rows])

    def launch(self, kernel, grid, args, options):
        """One launch, of the programs that are asked for."""
        self.memory.allow(self.replay.places.values(), self.inputs.values())
        named = {n: v if kernel.fn.__annotations__.get(n) else self.argument(v) for n, v in args.items()}
        interpreter.interpreter_builder.set_grid_dim(*grid)
        for x, y, z in np.ndindex(*grid) if self.programs is None else self.programs:
            interpreter.interpreter_builder.set_grid_idx(x, y, z)
            kernel.fn(**named)

    def argument(self, value):
        """An argument as the kernel sees it: the same where it was there before."""
        if type(value) not in (int, float, torch.Tensor):
            return interpreter._implicit_cvt(value)
        key = (value.dtype, value.data_ptr()) if isinstance(value, torch.Tensor) else (type(value), value)
        if key not in self.arguments:
            self.arguments[key] = interpreter._implicit_cvt(value)
        return self.arguments[key]


def as_rows(tensor):
    """(rows, bytes of a row)."""
    return tensor.detach().contiguous().view(-1, tensor.shape[-1]).view(torch.uint8)


def change_launches(program, changes):
    """The program with other arguments or grids. changes: {number of a launch: {"args": {...}, "grid": [...]}}."""
    if not changes:
        return program

    def changed(step):
        if isinstance(step, Choice):
            branches = [Branch(branch.config, [*map(changed, branch.steps)]) for branch in step.branches]
            return Choice(branches, step.line)
        change = changes.get(str(step.number)) if isinstance(step, Launch) else None
        if change is None:
            return step
        args = step.args | msgspec.convert(change.get("args", {}), dict[str, Argument])
        return msgspec.structs.replace(step, args=args, grid=tuple(change.get("grid", step.grid)))

    return msgspec.structs.replace(program, steps=[*map(changed, program.steps)])


class Memory:
    """Stands for the interpreter's module in C++: every live lane must lie in a storage that the program has.

    strict: what lies outside is a failure; else such lanes are switched off, as for the program itself.
    """

    def __init__(self, original):
        self.original, self.loaded, self.readable, self.writable = original, 0, [], []
        self.strict = True

    def __getattr__(self, name):
        return getattr(self.__dict__["original"], name)

    def allow(self, places, inputs):
        given = {id(place) for place in inputs}
        self.readable, self.writable = [], []
        for place in places:
            first = place.storage.data_ptr() + place.start
            self.readable.append((first, first + place.bytes))
            if id(place) not in given:
                self.writable.append(self.readable[-1])

    def check(self, pointers, mask, itemsize, spans):
        """(how many lanes are live, the mask of those that may be)."""
        live = np.asarray(pointers)
        if not (lanes := np.asarray(mask, bool)).all():
            live = live[np.broadcast_to(lanes, live.shape)]
        if live.size:
            first, last = int(live.min()), int(live.max()) + itemsize
            if not any(start <= first and last <= end for start, end in spans):
                if self.strict:
                    raise Outside
                mask = mask & self.inside(np.asarray(pointers), itemsize, spans)
        return live.size, mask

    @staticmethod
    def inside(pointers, itemsize, spans):
        """Which lanes lie in one of the spans."""
        found = np.zeros(pointers.shape, bool)
        for start, end in spans:
            found |= (pointers >= start) & (pointers + np.uint64(itemsize) <= end)
        return found

    def load(self, pointers, mask, other, dtype):
        live, mask = self.check(pointers, mask, np.dtype(dtype).itemsize, self.readable)
        self.loaded += live
        return self.original.load(pointers, mask, other, dtype)

    def store(self, pointers, value, mask):
        _, mask = self.check(pointers, mask, value.dtype.itemsize, self.writable)
        return self.original.store(pointers, value, mask)

    def atomic_rmw(self, operation, pointers, value, mask, semantic):
        _, mask = self.check(pointers, mask, value.dtype.itemsize, self.writable)
        return self.original.atomic_rmw(operation, pointers, value, mask, semantic)

    def atomic_cas(self, pointers, compare, value, semantic):
        self.check(pointers, True, value.dtype.itemsize, self.writable)
        return self.original.atomic_cas(pointers, compare, value, semantic)


# What ran ------------------------------------------------------------------------------------------------------------


class Watch:
    """While open, notes which lines of these files run, and the kinds of names: {function: {name: kind}}."""

    def __init__(self, files):
        self.files, self.ran, self.kinds = files, set(), {}

    def __enter__(self):
        sys.settrace(self.called)

    def __exit__(self, *exc):
        sys.settrace(None)

    def called(self, frame, event, argument):
        return self.inside if frame.f_code.co_filename in self.files else None

    def inside(self, frame, event, argument):
        self.ran.add(frame.f_lineno)
        if event == "return":
            kinds = self.kinds.setdefault(frame.f_code.co_name, {})
            kinds |= {name: kind for name, value in frame.f_locals.items() if (kind := kind_of(value))}
        return self.inside


def kind_of(value):
    """ "int", "float", "f2" ... of a name's value, or None."""
    value = value.value if isinstance(value, tl.constexpr) else value
    if type(value) in (int, float):
        return type(value).__name__
    if not isinstance(value, tl.tensor):
        return None
    dtype, dims = value.dtype, len(value.shape)
    letter = "p" if dtype.is_ptr() else "b" if dtype.is_int1() else "i" if dtype.is_int() else "f"
    return f"{letter}{dims}" if dims or letter in "pb" else {"i": "int", "f": "float"}[letter]
