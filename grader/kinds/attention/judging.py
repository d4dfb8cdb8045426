"""What kinds that ask about attention share: what is right, what a wrong output equals, what is drawn.

A kind sets those that it wants as its methods; make_inputs, show_tables and sizes_shown are its `inputs`, `tables` and
`example_sizes`. It says itself: `known_mistakes`, with the arguments of catalogue.every, `wasted`, `contrasts`, and
`judge_work` if its problems count work.
"""

import functools
import math
import secrets
import zlib
from collections import defaultdict
from dataclasses import replace

from msgspec import structs

from grader import failures
from grader.core.protocol.messages import Row
from grader.course.problem import LONG_ROW
from grader.engine import cross_case, locate, trying, wrong_rows
from grader.engine.cause import Diagnosis
from grader.engine.kind import AXES, Kind, Right
from grader.kinds.attention import (
    addresses,
    advice,
    answer_cache,
    causes,
    closer,
    defaults,
    inputs,
    p2_memory,
    picture,
    tables,
    tile_visits,
    work,
)
from grader.kinds.attention.case import Case, example_sizes
from grader.kinds.attention.known_mistakes import DIAGONAL, IN_FLOAT32, POINTERS, TAILS
from grader.kinds.attention.mask_mistakes import PHASES, SINKS, WINDOW
from grader.kinds.attention.weights import masks
from grader.result import Facts, Outcome, Verdict, mistake_pattern

CLEARLY = 8  # times the allowance: how far off a mistake must be for a passing case to refute it
ABOUT_TILES = (DIAGONAL, PHASES, SINKS, TAILS, WINDOW)  # sections: what they explain, the tiles that were met show

# Functions of other modules, which take no kind.
size, show_tables, sizes_shown = staticmethod(closer.order), staticmethod(tables.measure), staticmethod(example_sizes)
right_picture, explain_fault = staticmethod(picture.draw_right), staticmethod(addresses.explain)


# What is asked, and what is right ------------------------------------------------------------------------------------


def make_inputs(kind, case, seed):
    return inputs.make(case, seed)


def request(kind, problem, case, placed, device):
    call, files = Kind.request(kind, problem, case, placed, device)
    query = None  # any, and none that a wrapper could treat in another way
    if case.name == LONG_ROW and not problem.uses_triton:
        query = Row("q", [*map(secrets.randbelow, (case.B, case.Hq, case.N))])
    return structs.replace(call, choice=zlib.crc32(case.name.encode()), row=query), files


def next_call(kind, problem, case, placed, answers):
    return work.other_length(case, answers, lambda of: kind.inputs(of, 0))


def right(kind, problem, case, placed, device):
    answer = answer_cache.expect(problem, case, placed, device)
    lse = [Right("lse", "float32", answer.lse, answer.allowed_lse)] if problem.returns_lse else []
    return [Right("o", case.dtype, answer.o, answer.allowed_o, answer), *lse]


def outputs(kind, problem, case):
    shape = (case.B, case.Hq, case.N, case.D)
    return [("o", shape, case.dtype), *[("lse", shape[:3], "float32")] * problem.returns_lse]


def warm(kind, problem, seed):
    cases = [case for case in kind.cases(problem, seed) if case.attends and not case.gpu]
    answer_cache.keep(cases, seed)
    for case in cases:
        picture.mask_outlines(case, case.seen_at(0, 0))


# What came back ------------------------------------------------------------------------------------------------------


def drawn(kind, case, reply, got=None, right=None):
    compared = () if got is None else (right.name, got, right.expected, right.allowed)
    visits = tile_visits.read(reply.trace)
    if reply.trace and reply.trace.faults:  # what lies before a head's first row is read as the head before
        visits = [visit for visit in visits if visit.key_heads == 1]
    return picture.draw(case, visits, reply.trace, compared)


def diagnose(kind, problem, case, placed, reply, got, right, wrong):
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
        wrong = problem, case, placed, got, right.answer, kind.known_mistakes, records
        evidence["search"] = functools.cache(functools.partial(causes.find, *wrong))
        about = got, right.expected, right.allowed, "o", AXES, POINTERS
        evidence["moved"] = functools.partial(wrong_rows.moved, *about)
    met = tile_visits.in_words(records, found.first[:3])
    told = []
    with failures.harmless("the words on what an output shows"):
        told = addresses.of_a_wrong_output(case, reply.trace, found.unwritten) if reply.trace else []
    return Diagnosis("output", where, [], evidence, told, met=met, met_for=ABOUT_TILES)


def beyond_values(kind, problem, case, answer):
    reply, drawn = answer.reply, Facts(picture=kind.drawn(case, answer.reply))
    if not problem.uses_triton:
        return replace(p2_memory.judge(problem, case, answer), facts=drawn)
    if by_torch := work.by_torch(problem, case, reply):
        return Verdict(Outcome.WASTEFUL, by_torch, drawn)
    waste = kind.wasted(case, answer) if reply.trace else None
    if waste:
        drawn = structs.replace(drawn, waste=waste)
        if problem.counts_work:  # judged for the problem as a whole
            return Verdict(Outcome.PASSED, "", drawn)
        return Verdict(Outcome.WASTEFUL, waste.sentence, drawn)
    said = advice.on_tiles(case, tile_visits.read(reply.trace)) if reply.trace and case.name == LONG_ROW else ""
    return Verdict(Outcome.PASSED, said, drawn)


# What make try shows -------------------------------------------------------------------------------------------------


def small_case(kind, problem, sizes):
    window, sinks, causal = (getattr(problem.cases[0], name) for name in ("window", "sinks", "causal"))
    for name, has in ("window", window), ("sinks", sinks):
        if name in sizes and has is None:
            raise ValueError(f"{problem.id} has no {name}")
    given = {"window": window and 3, "sinks": None if sinks is None else 1}
    small = Case("try", Hq=1, N=8, D=16, dtype="float32", causal=causal, **given)
    return trying.resize(small, {"Hkv": sizes.get("Hq", "1")} | sizes, may_be_0=("sinks",))


def first_difference(kind, case, shown):
    found = trying.first_difference(shown)
    return found and trying.in_words(*found, tables.advise(*found, shown, masks(case)))


# The cases of a problem together -------------------------------------------------------------------------------------


def check_cases(kind, problem, cases, seed, results):
    cross_case.find_all(results, cases, kind.order)
    closer.drop_chance([result for result in results if result.diagnosis and result.diagnosis.what == "lse"])

    def refutes(case, kinds, diagnosis, failing):
        if case.tiles != failing.tiles:  # with other tiles a mistake may show nothing
            return set()
        return would_show(kind, problem, case, seed, kinds, diagnosis.evidence, failing.dtype)

    def explains_all(words):  # NaN tells little: where that is all that shows, it must be the cause of every failure
        return mistake_pattern(IN_FLOAT32) in words

    cross_case.check(results, cases, refutes, explains_all)
    if not any(result.diagnosis.causes for result in results if result.diagnosis):  # passing cases refute them
        cross_case.find_all(results, cases, kind.order, whole=True)
        cross_case.check(results, cases, refutes, explains_all)
    defaults.look(cases, results)


def look_closer(kind, problem, cases, seed, results, submission, show):
    show("measuring the weights")
    closer.look(kind, problem, cases, seed, results, submission)


def would_show(kind, problem, case, seed, kinds, evidence, dtype):
    """Those of the kinds of mistake that would make this case fail, whatever their variant.

    evidence: of a failing case, its tiles and their order. dtype: of the failing cases; a mistake of rounding says
    nothing about another.
    """
    placed = inputs.make(case, seed)
    right, spec = answer_cache.to(case, placed), causes.spec_of(case, placed)
    guesses = [[(tile, tile)] for tile in tile_visits.GUESSED_TILES]
    for sizes in guesses if problem.tiled and not evidence["tiles"] else [evidence["tiles"]]:
        shows = defaultdict(bool)  # all variants of a kind
        for mistake in kind.known_mistakes(problem, case, placed, spec, (), sizes, evidence["order"]):
            words = mistake_pattern(mistake.equals)
            if words in kinds and not mistake.general and not (mistake.rounding and case.dtype != dtype):
                o, _ = mistake.spec.answer(causes.every_pair(case))
                error = (o - right.o.flatten(0, 1)).abs()
                error = error.nan_to_num(0.0 if mistake.spec.only_masks else math.inf)  # sees nothing: anything
                seen = bool((error > CLEARLY * right.allowed_o.flatten(0, 1)).any())
                shows[words] = seen and shows.get(words, True)
        kinds = {words for words in kinds if shows[words]}
    return kinds
