"""Is a submission fast? Its program takes turns with naive PyTorch attention and the reference, each in its process."""

import random
import statistics
from dataclasses import replace
from pathlib import Path

import torch

from grader.course import tensors
from grader.course.problem import SECONDS_PER_CASE, SPEED_BARS
from grader.gpu import machine, peaks, timing
from grader.gpu.timing import ArmFailed, Plan
from grader.processes import unfinished
from grader.processes.child import CannotStart, ChildFailed
from grader.processes.confined import ConfinedChild
from grader.processes.submission import Submission
from grader.reference import compare, oracle
from grader.result import Outcome

CHECKED = 2  # heads whose timed output is compared with the oracle, in a round that is drawn
CALLS = 20  # of the wrapper, for its time on the host
ALONE = 2.0  # times: a call that began alone may take so much longer, its launch left out, than one that did not
PLAN = Plan(target=0.02, budget_s=2.0, min_rounds=6, max_rounds=40, samples=5, against="yours")
OLDEST_GPU = (8, 0)  # compute capability: before it tl.dot becomes multiply-adds
BIG_GPU = 40 << 30  # bytes; below it the naive matrix of batch 4 does not fit

LIMIT = SECONDS_PER_CASE["cuda"]
GRADER = Path(__file__).parents[1]
SOLUTIONS = GRADER.parent / "solutions"
NAIVE = GRADER / "reference" / "naive.py"


def judge(problem, path, seed, host_ms, described):
    """(outcome, sentence, facts) for the speed of the submission at `path`. host_ms: what `host_time` told, or None.
    described(case): its inputs as plain data.

    facts: of each arm its milliseconds, peak bytes and the milliseconds that its launch takes on the host; the ratios
    with their intervals; the fraction of the GPU's peak where that is known; the machine, its clocks, the versions.
    """
    case = timed_case(problem)
    yours, naive = YourArm(problem, path, case, described(case)), OurArm(NAIVE, "naive_attention", case)
    arms = {"yours": yours, "naive PyTorch": naive}
    if (SOLUTIONS / problem.module).is_file():
        arms["reference"] = OurArm(SOLUTIONS / problem.module, problem.entry_point, case)
    before = machine.clocks()
    try:
        timings = timing.take_turns(arms, replace(PLAN, seed=seed))
        if any(straddles(timing.ratio(timings, "yours", name), bar) for name, bar in SPEED_BARS.items()):
            timings = timing.take_turns(arms, replace(PLAN, seed=seed), timings)
    finally:
        for arm in arms.values():
            arm.close()
    if timings["yours"].failure:
        return Outcome.CRASHED, f"While it was timed: {timings['yours'].failure}", {}
    if arms["yours"].wrong:
        return Outcome.WRONG, f"While it was timed: {arms['yours'].wrong}", {}
    facts = {
        "shape": case.describe(seed),
        "arms": {n: t.summary() | arms[n].facts for n, t in timings.items() if t.samples},
        "failures": {name: t.failure for name, t in timings.items() if t.failure},
        "oom": [name for name, t in timings.items() if t.oom],
        "times_as_fast": {n: timing.ratio(timings, "yours", n) for n in SPEED_BARS if n in timings},
        "wrapper_host_ms": host_ms,
        "least_ms": peaks.least_ms(case, machine.facts()["gpu"]),
        "flops": case.flops,
        "dtype": case.dtype,
        "machine": machine.facts() | {"clocks": {"before": before, "after": machine.clocks()}},
    }
    return *verdict(facts), facts


class OurArm:
    """A module of ours in a runner of its own, as an arm of `timing.take_turns`; started when it is first needed."""

    def __init__(self, module, entry_point, case):
        self.module, self.entry_point, self.case, self.child, self.facts = module, entry_point, case, None, {}

    def warm_up(self, seed):
        if not self.facts:
            reply = self.ask(seed, samples=0, warm_up=True)
            self.facts = {"peak_bytes": reply["peak_bytes"], "host_ms": reply["host_ms"]}

    def round(self, seed, samples):
        return self.ask(seed, samples, warm_up=False)["ms"]

    def ask(self, seed, samples, warm_up):
        request = {"op": "time ours", "ours": self.entry_point} | asked(self.case, seed, samples, warm_up)
        try:
            if self.child is None:
                self.child = ConfinedChild("cuda", LIMIT)
                self.child.put({"ours.py": Path(self.module).read_bytes()})
            reply = self.child.call(request, LIMIT)
        except ChildFailed as failure:  # that of ours is noted, and ends no other
            raise ArmFailed(str(failure)) from None
        if reply["status"] != "returned":
            raise ArmFailed(f"{reply['exception']}: {reply['text'][:200]}", reply["exception"] == "OutOfMemoryError")
        return reply

    def close(self):
        if self.child:
            self.child.close()


class YourArm(OurArm):
    """A submission's program, all of it: what its wrapper copies is timed too. wrong: what a timed output showed."""

    def __init__(self, problem, path, case, described):
        super().__init__(path, problem.entry_point, case)
        gpu = machine.gpu_as_data()
        self.problem, self.described, self.wrong, self.alone = problem, described, "", []
        self.submission = Submission(path, problem, "cuda", LIMIT, gpu)
        self.draw = random.SystemRandom()

    def ask(self, seed, samples, warm_up):
        request = asked(self.case, seed, samples, warm_up)
        check = samples > 0 and self.draw.random() < 1 / 4
        if check:
            heads = [(b, h) for b in range(self.case.B) for h in range(self.case.Hq)]
            request["check"] = self.draw.sample(heads, min(CHECKED, len(heads)))
        if self.facts or self.submission.runner:
            reply = self.submission.run_again({"op": "time"} | request)
        else:
            request |= {"inputs": self.described, "arguments": self.case.arguments}
            reply = self.submission.run(request, op="time")
        if reply["status"] != "returned":
            raise ArmFailed(unfinished.explain_reply(reply, self.problem, self.module)[1])
        if samples:
            self.alone.append((reply["synchronised_ms"] - reply["host_ms"], min(reply["ms"])))
        if check:
            self.wrong = self.wrong or self.check_output(reply)
        return reply

    def check_output(self, reply):
        """A sentence where the output of a call that was timed is not right, else an empty string."""
        parts = tensors.read_outputs(self.submission.take_outputs(reply), reply)
        if reply["broken_fences"]:
            return "it wrote past the end of a tensor that it allocated."
        for i in range(0, len(parts), 4):
            q, k, v = (part[None, None].to("cuda") for part in parts[i : i + 3])
            answer = oracle.expect(q, k, v, self.case.visibility, True, self.case.scale)
            if facts := compare.mismatch(parts[i + 3][None, None], answer.o.cpu(), answer.allowed_o.cpu()):
                return f"an output of a timed call is wrong: {facts['wrong']} elements of one head."
        return ""

    def close(self):
        if self.alone and statistics.median(late - ms * ALONE for late, ms in self.alone) > 0:
            self.wrong = (
                self.wrong or "begun alone, a call takes more than twice as long: what did another call do for it?"
            )
        self.submission.close()


def asked(case, seed, samples, warm_up):
    shapes = {"q": (case.B, case.Hq, case.N, case.D)} | dict.fromkeys("kv", (case.B, case.kv_heads, case.N, case.D))
    return {
        "shapes": shapes, "dtype": case.dtype, "arguments": case.arguments, "seed": seed, "samples": samples,
        "warm_up": warm_up,
    }  # fmt: skip


def timed_case(problem):
    """The speed case, smaller where the naive matrix would not fit."""
    big = torch.cuda.get_device_properties(0).total_memory >= BIG_GPU
    return problem.speed_case if big else replace(problem.speed_case, B=1)


def host_time(problem, path):
    """Milliseconds of the wrapper on the host, as the submission's own process measures them; None without."""
    case = timed_case(problem)
    setup = {"module": str(path), "entry_point": problem.entry_point, "arguments": list(problem.keywords), "gpu": None}
    setup["tensors"] = list(problem.tensors)
    try:
        with ConfinedChild("direct", LIMIT, Path(path).parent, **setup) as child:
            reply = child.loading or child.call({"op": "direct", "calls": CALLS} | asked(case, 0, 0, False), LIMIT)
    except (ChildFailed, CannotStart):
        return None
    told = reply.get("host_ms")
    return float(told) if type(told) in (int, float) and 0 <= told < 1e6 else None


def straddles(ratio, bar):
    return ratio is not None and ratio.low < bar < ratio.high


def verdict(facts):
    """(outcome, sentence); a bar is compared with the end of the interval that favours the student.

    A bar whose arm could not be timed is no bar. `share` of facts is set to the part of the points that is earned.
    """
    yours, least = facts["arms"]["yours"], facts["least_ms"]
    if least and yours["median_ms"] < least:
        facts["earned"] = False
        return Outcome.NOT_RUN, (
            f"not believed: {yours['median_ms']:.3f} ms, where this GPU needs {least:.3f} ms at its peak to move the "
            "bytes and do the FLOPs. Is the work done outside of the timed call, or not at all?"
        )
    below = [n for n, bar in SPEED_BARS.items() if (r := facts["times_as_fast"].get(n)) and r.high < bar]
    facts["share"] = 1 - len(below) / len(SPEED_BARS)
    text = in_words(facts)
    if below:
        bars = " and ".join(f"{SPEED_BARS[name]:g} x {name}" for name in below)
        return Outcome.SLOW, f"Right but slow: {text}. The bar that it misses is {bars}."
    return Outcome.PASSED, text


def in_words(facts):
    """`0.660 ms (p20 0.654, p80 0.685), 42 % of the GPU's peak, peak memory 64 MiB; 40.4 x naive PyTorch (...)`"""
    yours, peak = facts["arms"]["yours"], peaks.peak(facts["machine"]["gpu"])
    text = f"{yours['median_ms']:.3f} ms (p20 {yours['p20_ms']:.3f}, p80 {yours['p80_ms']:.3f}), "
    if peak:
        fraction = facts["flops"] / yours["median_ms"] / 1e9 / peak.of(facts["dtype"])
        text += f"{fraction:.0%} of this GPU's peak, "
    text += f"peak memory {mebibytes(yours)}"
    for name, ratio in facts["times_as_fast"].items():
        if ratio:
            arm = facts["arms"][name]
            text += (
                f"; {ratio.median:.2f} x as fast as {name} ({ratio.low:.2f} to {ratio.high:.2f}; "
                f"{arm['median_ms']:.3f} ms, {mebibytes(arm)})"
            )
    if facts.get("wrapper_host_ms") is not None:
        text += f"; a call takes {facts['wrapper_host_ms']:.2f} ms on the host (its own word, no points)"
    for name, why in facts["failures"].items():
        text += f"; {name} " + ("ran out of memory (oom)" if name in facts["oom"] else f"could not be timed ({why})")
    return text


def mebibytes(arm):
    return f"{arm['peak_bytes'] / 2**20:.0f} MiB" if arm["peak_bytes"] else "not known"
