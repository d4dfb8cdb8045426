"""The ladder's kind: attention of q, k and v under a mask; its work is counted in tiles of keys."""

import functools
import math
import secrets
import zlib
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from grader import failures
from grader.core.protocol.messages import Row
from grader.course.problem import LONG_ROW
from grader.engine import cross_case, locate, trying, wrong_rows
from grader.engine.cause import Diagnosis
from grader.engine.kind import AXES, Kind, Right, Timing
from grader.kinds.attention import (
    addresses,
    advice,
    answer_cache,
    catalogue,
    causes,
    closer,
    defaults,
    inputs,
    kv_heads,
    naive,
    p2_memory,
    picture,
    seeded_cases,
    tables,
    tile_visits,
    work,
)
from grader.kinds.attention.case import Case, example_sizes
from grader.kinds.attention.cases import PROBLEMS
from grader.kinds.attention.contrasts import CONTRASTS
from grader.kinds.attention.known_mistakes import DIAGONAL, IN_FLOAT32, POINTERS, TAILS
from grader.kinds.attention.mask_mistakes import PHASES, SINKS, WINDOW
from grader.kinds.attention.weights import masks
from grader.result import Facts, Outcome, Verdict, mistake_pattern

COMPILED = {"B": 2, "N": 2048}  # the rest is the problem's speed case: sizes that no argument's value of 1 specialises
CLEARLY = 8  # times the allowance: how far off a mistake must be for a passing case to refute it
ABOUT_TILES = (DIAGONAL, PHASES, SINKS, TAILS, WINDOW)  # sections: what they explain, the tiles that were met show


class Attention(Kind):
    size, contrasts = staticmethod(closer.order), CONTRASTS
    example_sizes = staticmethod(example_sizes)
    tables = staticmethod(tables.measure)
    right_picture = staticmethod(picture.draw_right)
    explain_fault = staticmethod(addresses.explain)
    wasted = staticmethod(work.wasted)
    judge_work = staticmethod(work.judge)

    # What is asked ---------------------------------------------------------------------------------------------------

    def inputs(self, case, seed):
        return inputs.make(case, seed)

    def shapes(self, case):
        keys = (case.B, case.kv_heads, case.num_keys, case.D)
        return [(case.B, case.Hq, case.N, case.D), keys, keys]

    def compiled_case(self, problem, name):
        return replace(problem.compile_case or problem.speed_case, name=name, **COMPILED)

    def request(self, problem, case, placed, device):
        call, files = super().request(problem, case, placed, device)
        query = None  # any, and none that a wrapper could treat in another way
        if case.name == LONG_ROW and not problem.uses_triton:
            query = Row("q", [*map(secrets.randbelow, (case.B, case.Hq, case.N))])
        choice = zlib.crc32(case.name.encode())
        return structs.replace(call, choice=choice, row=query), files

    def next_call(self, problem, case, placed, answers):
        return work.other_length(case, answers, lambda of: self.inputs(of, 0))

    # What is timed ---------------------------------------------------------------------------------------------------

    timing = Timing(Path(naive.__file__), "naive_attention", "naive PyTorch")
    parts = kv_heads.parts

    # What is right ---------------------------------------------------------------------------------------------------

    def right(self, problem, case, placed, device):
        answer = answer_cache.expect(problem, case, placed, device)
        lse = [Right("lse", "float32", answer.lse, answer.allowed_lse)] if problem.returns_lse else []
        return [Right("o", case.dtype, answer.o, answer.allowed_o, answer), *lse]

    def outputs(self, problem, case):
        shape = (case.B, case.Hq, case.N, case.D)
        return [("o", shape, case.dtype), *[("lse", shape[:3], "float32")] * problem.returns_lse]

    def warm(self, problem, seed):
        cases = [case for case in self.cases(problem, seed) if case.attends and not case.gpu]
        answer_cache.keep(cases, seed)
        for case in cases:
            picture.mask_outlines(case, case.seen_at(0, 0))

    # What came back --------------------------------------------------------------------------------------------------

    def drawn(self, case, reply, got=None, right=None):
        compared = () if got is None else (right.name, got, right.expected, right.allowed)
        visits = tile_visits.read(reply.trace)
        if reply.trace and reply.trace.faults:  # what lies before a head's first row is read as the head before
            visits = [visit for visit in visits if visit.key_heads == 1]
        return picture.draw(case, visits, reply.trace, compared)

    def small_case(self, problem, sizes):
        window, sinks, causal = (getattr(problem.cases[0], name) for name in ("window", "sinks", "causal"))
        for name, has in ("window", window), ("sinks", sinks):
            if name in sizes and has is None:
                raise ValueError(f"{problem.id} has no {name}")
        given = {"window": window and 3, "sinks": None if sinks is None else 1}
        small = Case("try", Hq=1, N=8, D=16, dtype="float32", causal=causal, **given)
        return trying.resize(small, {"Hkv": sizes.get("Hq", "1")} | sizes, may_be_0=("sinks",))

    def first_difference(self, case, shown):
        found = trying.first_difference(shown)
        return found and trying.in_words(*found, tables.advise(*found, shown, masks(case)))

    def diagnose(self, problem, case, placed, reply, got, right, wrong):
        right = next(each for each in right if each.name in wrong)
        got, found = got[right.name], wrong[right.name]
        where = locate.where(found)
        if right.name == "lse":
            known = causes.find_lse_causes(case, placed, got, right.expected)
            return Diagnosis("lse", f"o is right, lse is not. {where}", known)
        records = tile_visits.read(reply.trace)
        tiles = tile_visits.tile_sizes(records)
        evidence = {"tiles": tiles, "order": tile_visits.order_of(records, tiles), "records": records}
        evidence["asked"] = max(case.N, case.num_keys) <= causes.MAX_TOKENS
        if found.unwritten < found.wrong:  # what was never written equals nothing
            wrong = problem, case, placed, got, right.answer, self.known_mistakes, records
            evidence["search"] = functools.cache(functools.partial(causes.find, *wrong))
            evidence["moved"] = functools.partial(
                wrong_rows.moved, got, right.expected, right.allowed, "o", AXES, POINTERS
            )
        met = tile_visits.in_words(records, found.first[:3])
        told = []
        with failures.harmless("the words on what an output shows"):
            told = addresses.of_a_wrong_output(case, reply.trace, found.unwritten) if reply.trace else []
        return Diagnosis("output", where, [], evidence, told, met=met, met_for=ABOUT_TILES)

    def known_mistakes(self, problem, case, placed, spec, records, sizes, order=tile_visits.FORWARD):
        """The catalogue for one case."""
        return catalogue.every(problem, case, placed, spec, records, sizes, order)

    def beyond_values(self, problem, case, answer):
        reply, drawn = answer.reply, Facts(picture=self.drawn(case, answer.reply))
        if not problem.uses_triton:
            return replace(p2_memory.judge(problem, case, answer), facts=drawn)
        if by_torch := work.by_torch(problem, case, reply):
            return Verdict(Outcome.WASTEFUL, by_torch, drawn)
        waste = self.wasted(case, answer) if reply.trace else None
        if waste:
            drawn = structs.replace(drawn, waste=waste)
            if problem.counts_work:  # judged for the problem as a whole
                return Verdict(Outcome.PASSED, "", drawn)
            return Verdict(Outcome.WASTEFUL, waste.sentence, drawn)
        said = advice.on_tiles(case, tile_visits.read(reply.trace)) if reply.trace and case.name == LONG_ROW else ""
        return Verdict(Outcome.PASSED, said, drawn)

    # The cases of a problem together ---------------------------------------------------------------------------------

    def find_causes(self, cases, results):
        return cross_case.find_all(results, cases, closer.order)

    def check_cases(self, problem, cases, seed, results):
        self.find_causes(cases, results)
        closer.drop_chance([result for result in results if result.diagnosis and result.diagnosis.what == "lse"])

        def refutes(case, kinds, diagnosis, failing):
            if case.tiles != failing.tiles:  # with other tiles a mistake may show nothing
                return set()
            return self.would_show(problem, case, seed, kinds, diagnosis.evidence, failing.dtype)

        def explains_all(kind):  # NaN tells little: where that is all that shows, it must be the cause of every failure
            return mistake_pattern(IN_FLOAT32) in kind

        cross_case.check(results, cases, refutes, explains_all)
        if not any(result.diagnosis.causes for result in results if result.diagnosis):  # passing cases refute them
            cross_case.find_all(results, cases, closer.order, whole=True)
            cross_case.check(results, cases, refutes, explains_all)
        defaults.look(cases, results)

    def look_closer(self, problem, cases, seed, results, submission, show):
        show("measuring the weights")
        closer.look(self, problem, cases, seed, results, submission)

    def would_show(self, problem, case, seed, kinds, evidence, dtype):
        """Those of the kinds of mistake that would make this case fail, whatever their variant.

        evidence: of a failing case, its tiles and their order. dtype: of the failing cases; a mistake of rounding says
        nothing about another.
        """
        placed = inputs.make(case, seed)
        right, spec = answer_cache.to(case, placed), causes.spec_of(case, placed)
        guesses = [[(tile, tile)] for tile in tile_visits.GUESSED_TILES]
        for sizes in guesses if problem.tiled and not evidence["tiles"] else [evidence["tiles"]]:
            shows = defaultdict(bool)  # all variants of a kind
            for mistake in self.known_mistakes(problem, case, placed, spec, (), sizes, evidence["order"]):
                kind = mistake_pattern(mistake.equals)
                if kind in kinds and not mistake.general and not (mistake.rounding and case.dtype != dtype):
                    o, _ = mistake.spec.answer(causes.every_pair(case))
                    error = (o - right.o.flatten(0, 1)).abs()
                    error = error.nan_to_num(0.0 if mistake.spec.only_masks else math.inf)  # sees nothing: anything
                    seen = bool((error > CLEARLY * right.allowed_o.flatten(0, 1)).any())
                    shows[kind] = seen and shows.get(kind, True)
            kinds = {kind for kind in kinds if shows[kind]}
        return kinds


class Ladder(Attention):
    """P1 to P7, which have cases of a seed, too."""

    problems = PROBLEMS

    def cases(self, problem, seed):
        return seeded_cases.every(problem, seed)

    def case_by_name(self, problem, name):
        return seeded_cases.from_name(name, problem)


KIND = Ladder()
