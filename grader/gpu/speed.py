"""Is a submission fast? Its program takes turns with naive PyTorch and the reference, each in its process."""

import random
import statistics
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

import torch
from msgspec import structs

from grader import unfinished
from grader.core.protocol.messages import HostTime, HostTimed, RunnerSetup, Time, Timed, TimeOurs
from grader.core.sandbox.child import CannotStart, ChildFailed
from grader.core.sandbox.sandboxed_child import SandboxedChild
from grader.core.sandbox.submission import Submission, recorder_setup
from grader.course import course
from grader.course.problem import SECONDS_PER_CASE, SPEED_BARS
from grader.gpu import machine, peaks, timing
from grader.gpu.timing import ArmFailed, Plan
from grader.result import Facts, Outcome, Speed, Verdict

DEVICE = "cuda"
CHECKED = 2  # parts of a timed call that are compared with what is right, in a round that is drawn
CALLS = 20  # of the wrapper, for its time on the host
ALONE = 2.0  # times: a call that began alone may take so much longer, two launches left out, than one that did not
PLAN = Plan(target=0.02, budget_s=2.0, min_rounds=6, max_rounds=40, samples=5, against="yours")
OLDEST_GPU = (8, 0)  # compute capability: before it tl.dot becomes multiply-adds
BIG_GPU = 40 << 30  # bytes; below it the naive matrix of batch 4 does not fit
LIMIT = SECONDS_PER_CASE["cuda"]


def judge(problem, kind, path, seed, host_ms):
    """The Verdict on the speed of the submission at `path`. host_ms: what `host_time` told, or None.

    Its facts have the Speed.
    """
    case = timed_case(problem)
    arms = {"yours": YourArm(problem, kind, path, case)}
    if ours := kind.timing:
        arms["naive PyTorch"] = OurArm(kind, ours.path, ours.naive, case, ours.prepares)
    if (solution := course.current().solutions / problem.module).is_file():
        arms["reference"] = OurArm(kind, solution, problem.entry_point, case)
    before = machine.clocks()
    try:
        with ThreadPoolExecutor(len(arms)) as pool:  # all compile at once; each warms up again in its turn
            wait([pool.submit(arm.ask, seed, 0, True) for arm in arms.values()])
        timings = timing.take_turns(arms, replace(PLAN, seed=seed))
        if any(straddles(timing.ratio(timings, "yours", name), bar) for name, bar in SPEED_BARS.items()):
            timings = timing.take_turns(arms, replace(PLAN, seed=seed), timings)
    finally:
        for arm in arms.values():
            arm.close()
    if timings["yours"].failure:
        return Verdict(Outcome.CRASHED, f"While it was timed: {timings['yours'].failure}")
    if arms["yours"].wrong:
        return Verdict(Outcome.WRONG, f"While it was timed: {arms['yours'].wrong}")
    here = machine.facts()
    found = Speed(
        shape=case.describe(seed), dtype=case.dtype, flops=case.flops,
        arms={name: summary(timed, arms[name]) for name, timed in timings.items() if timed.samples},
        failures={name: timed.failure for name, timed in timings.items() if timed.failure},
        oom=[name for name, timed in timings.items() if timed.oom],
        times_as_fast={name: timing.ratio(timings, "yours", name) for name in SPEED_BARS if name in timings},
        wrapper_host_ms=host_ms, least_ms=peaks.least_ms(case, here["gpu"]),
        machine=here | {"clocks": {"before": before, "after": machine.clocks()}},
    )  # fmt: skip
    return verdict(found, {"naive PyTorch": ours.words} if ours else {})


def summary(timed, arm):
    """The ArmTimes of an arm that was timed."""
    return structs.replace(timed.summary(), peak_bytes=arm.first.peak_bytes, host_ms=arm.first.host_ms)


class OurArm:
    """A module of ours in a runner of its own, as an arm of `timing.take_turns`; started when it is first needed.

    prepares: its function returns what is to be timed. first: the Timed of its warm-up, or None before it.
    """

    def __init__(self, kind, module, function, case, prepares=False):
        self.kind, self.module, self.function, self.case, self.prepares = kind, module, function, case, prepares
        self.child, self.first = None, None

    def warm_up(self, seed):
        self.first = self.first or self.ask(seed, samples=0, warm_up=True)

    def round(self, seed, samples):
        return self.ask(seed, samples, warm_up=False).ms

    def ask(self, seed, samples, warm_up):
        request = TimeOurs(time_request(self.kind, self.case, seed, samples, warm_up), self.function, self.prepares)
        try:
            if self.child is None:
                self.child = SandboxedChild(RunnerSetup(device=DEVICE), LIMIT)
                self.child.folder.put({"ours.py": Path(self.module).read_bytes()} | files(self.kind))
            reply = self.child.call(request, LIMIT)
        except ChildFailed as failure:  # that of ours is noted, and ends no other
            raise ArmFailed(str(failure)) from None
        if not isinstance(reply, Timed):
            raise ArmFailed(f"{reply.exception}: {reply.text[:200]}", reply.exception == "OutOfMemoryError")
        return reply

    def close(self):
        if self.child:
            self.child.close()


class YourArm(OurArm):
    """A submission's program, all of it: what its wrapper copies is timed too. wrong: what a timed output showed."""

    def __init__(self, problem, kind, path, case):
        super().__init__(kind, path, problem.entry_point, case)
        gpu = machine.first_gpu()
        self.problem, self.wrong, self.alone = problem, "", []
        self.submission = Submission(path, problem, DEVICE, LIMIT, gpu)
        self.parts, self.draw = kind.parts(problem, case), random.SystemRandom()

    def ask(self, seed, samples, warm_up):
        request, check = time_request(self.kind, self.case, seed, samples, warm_up), []
        if samples > 0 and self.draw.random() < 1 / 4:
            check = self.draw.sample(self.parts, min(CHECKED, len(self.parts)))
            request.checked, request.check = self.draw.randrange(samples), [ranges for _, ranges in check]
        again = self.first or self.submission.runner
        reply = (self.submission.run_again(request) if again else self.submission.run(request, files(self.kind))).reply
        if not isinstance(reply, Timed):
            raise ArmFailed(unfinished.explain_reply(reply, self.problem, self.module).sentence)
        if samples:
            # twice the launch: the host takes a cold one more slowly, by more than a short kernel takes
            self.alone.append((reply.synchronised_ms - 2 * reply.host_ms, min(reply.ms)))
        if check:
            self.wrong = self.wrong or self.check_output([case for case, _ in check], reply)
        return reply

    def check_output(self, cases, reply):
        """A sentence where the outputs of a call that was timed are not right, else an empty string."""
        data = self.submission.take_outputs(reply)
        if reply.broken_fences:
            return "it wrote past the end of a tensor that it allocated."
        return self.kind.fault_of_parts(self.problem, cases, reply.outputs, data, DEVICE)

    def close(self):
        if self.alone and statistics.median(late - ms * ALONE for late, ms in self.alone) > 0:
            self.wrong = (
                self.wrong or "begun alone, a call takes more than twice as long: what did another call do for it?"
            )
        self.submission.close()


def time_request(kind, case, seed, samples, warm_up):
    return Time(kind.unvalued_call(case), seed, samples, warm_up, kind.timing and kind.timing.derived)


def files(kind):
    """{name: bytes} of what a runner needs beside the program: how inputs that are not drawn are made."""
    return {"derived.py": kind.timing.path.read_bytes()} if kind.timing and kind.timing.derived else {}


def timed_case(problem):
    """The speed case, smaller where the naive matrix would not fit."""
    big = torch.cuda.get_device_properties(0).total_memory >= BIG_GPU
    return problem.speed_case if big else problem.speed_case.smaller


def host_time(problem, kind, path):
    """Milliseconds of the wrapper on the host, as the submission's own process measures them; None without."""
    case = timed_case(problem)
    setup = recorder_setup(path, problem, device="direct")
    try:
        with SandboxedChild(setup, LIMIT, Path(path).parent) as child:
            reply = child.failure or child.call(HostTime(kind.unvalued_call(case), CALLS), LIMIT)
    except (ChildFailed, CannotStart):
        return None
    return reply.milliseconds if isinstance(reply, HostTimed) else None


def straddles(ratio, bar):
    return ratio is not None and ratio.low < bar < ratio.high


def verdict(found, words):
    """The Verdict; a bar is compared with the end of the interval that favours the student.

    A bar whose arm could not be timed is no bar. words: {arm: what it is to a student}, where that is not its name.
    """
    ms, least = found.arms["yours"].median_ms, found.least_ms
    if least and ms < least:
        sentence = (
            f"not believed: {ms:.3f} ms, where this GPU needs {least:.3f} ms at its peak to move the "
            "bytes and do the FLOPs. Is the work done outside of the timed call, or not at all?"
        )
        return Verdict(Outcome.NOT_RUN, sentence, Facts(speed=found, earned=False))
    below = [n for n, bar in SPEED_BARS.items() if (r := found.times_as_fast.get(n)) and r.high < bar]
    facts, text = Facts(speed=found, share=1 - len(below) / len(SPEED_BARS)), in_words(found, words)
    if below:
        bars = " and ".join(f"{SPEED_BARS[name]:g} x {name}" for name in below)
        return Verdict(Outcome.SLOW, f"Right but slow: {text}. The bar that it misses is {bars}.", facts)
    return Verdict(Outcome.PASSED, text, facts)


def in_words(found, words):
    """`0.660 ms (p20 0.654, p80 0.685), 42% of this GPU's peak, peak memory 64 MiB; 40.4 x naive PyTorch (...)`

    The peak is that of FLOPs or of bandwidth, whichever the case needs for longer.
    """
    yours = found.arms["yours"]
    text = f"{yours.median_ms:.3f} ms (p20 {yours.p20_ms:.3f}, p80 {yours.p80_ms:.3f}), "
    if found.least_ms:
        text += f"{found.least_ms * peaks.MARGIN / yours.median_ms:.0%} of this GPU's peak, "
    text += f"peak memory {mebibytes(yours)}"
    for name, ratio in found.times_as_fast.items():
        if ratio:
            arm = found.arms[name]
            text += (
                f"; {ratio.median:.2f} x as fast as {words.get(name, name)} ({ratio.low:.2f} to {ratio.high:.2f}; "
                f"{arm.median_ms:.3f} ms, {mebibytes(arm)})"
            )
    if found.wrapper_host_ms is not None:
        text += f"; a call takes {found.wrapper_host_ms:.2f} ms on the host (its own word, no points)"
    for name, why in found.failures.items():
        text += f"; {name} " + ("ran out of memory (oom)" if name in found.oom else f"could not be timed ({why})")
    return text


def mebibytes(arm):
    return f"{arm.peak_bytes / 2**20:.0f} MiB" if arm.peak_bytes else "not known"
