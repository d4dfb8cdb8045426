"""x1's kind: the lists of its builders, and its kernel's output and loads on the grader's own lists."""

import math
import re
from dataclasses import dataclass, replace
from typing import Annotated

from msgspec import Meta, Struct, structs

from grader.core.protocol.messages import plain_bytes
from grader.core.sandbox.child import NO_REPLY, Died
from grader.core.sandbox.submission import Answer
from grader.course import tensors
from grader.engine import trying
from grader.engine.kind import Kind
from grader.kinds.attention import addresses, judging, picture, work
from grader.kinds.attention.contrasts import CONTRASTS
from grader.kinds.attention.tile_visits import Visit
from grader.kinds.block_sparse import check_lists, list_mistakes, tile_lists
from grader.kinds.block_sparse.cases import PROBLEM, BuilderCase, SparseCase, read_mask
from grader.kinds.block_sparse.patterns import PARTIAL
from grader.kinds.block_sparse.tile_lists import NAMES
from grader.result import Outcome, Verdict, Waste


class BlockSparse(Kind):
    """A call of x1's kernel, on the lists of the grader."""

    problems, contrasts = (PROBLEM,), CONTRASTS
    inputs, next_call, right, outputs = judging.make_inputs, judging.next_call, judging.right, judging.outputs
    warm, drawn, size, tables = judging.warm, judging.drawn, judging.size, judging.show_tables
    diagnose, beyond_values, right_picture = judging.diagnose, judging.beyond_values, judging.right_picture
    check_cases, look_closer, example_sizes = judging.check_cases, judging.look_closer, judging.sizes_shown
    known_mistakes, first_difference = staticmethod(list_mistakes.every), judging.first_difference

    def handler(self, case):
        return BUILDER if isinstance(case, BuilderCase) else self

    def request(self, problem, case, placed, device):
        call, files = judging.request(self, problem, case, placed, device)
        specs, data = describe_lists(case)
        return structs.replace(call, inputs=call.inputs + specs), {"inputs.bin": files["inputs.bin"] + data}

    def described(self, case):
        return super().described(case) + describe_lists(case)[0]

    def about(self, case):
        lists = tile_lists.cut(case)
        return plain_bytes({"shapes": {name: list(getattr(lists, name).shape) for name in NAMES}} | lists.plain)

    def beside(self, case):
        return {"lists.bin": describe_lists(case)[1]}

    def small_case(self, problem, sizes):
        """MASK, as text, is the mask of the grid of tiles of 32 x 32."""
        words = sizes.pop("mask", "documents 3 5")
        if not re.fullmatch(r"(full|causal|documents|interleaved)( [1-9]\d*)*", words):
            like = '"documents 3 5", "interleaved 4 4", "causal 4 1" or "full"'
            raise ValueError(f"MASK must be like {like}; got {words!r}")
        return trying.resize(SparseCase("try", N=8, D=16, dtype="float32", of=read_mask(words)), sizes)

    def objects(self, case, module):
        lists = tile_lists.cut(case)
        fields = {name: getattr(lists, name) for name in NAMES} | lists.plain
        try:
            return {"tiles": module["Tiles"](**fields)}
        except (KeyError, TypeError):
            raise ValueError(f"make try makes Tiles({', '.join(fields)}), by name, as the skeleton has it") from None

    def judge(self, problem, case, placed, answer, device):
        if names := ", ".join(name for name in answer.reply.changed if name in NAMES):
            sentence = f"Your code wrote into the Tiles that it was given: {names} must stay as they were."
            return Verdict(Outcome.UNSAFE, sentence)
        return super().judge(problem, case, placed, answer, device)

    def explain_fault(self, case, trace, fault):
        if middle := middle_of_a_row(trace):
            return middle
        if question := OUTSIDE.get(fault.argument):
            return f"{outside_list(fault)}{question}"
        return addresses.explain(case, trace, fault)

    def wasted(self, case, answer) -> Waste | None:
        """The Waste where a kernel did more than its lists name, else None."""
        return work.wasted(case, answer) or needless_bits(case, answer.reply.trace.costs)


class BuiltTiles(Struct):
    """What a builder returned: the name of its type, and its fields that are no tensors."""

    type: Annotated[str, Meta(max_length=200)]
    plain: dict[str, int | Annotated[str, Meta(max_length=1000)]]


@dataclass
class BuiltAnswer(Answer):
    found: BuiltTiles | None = None


class Builder(Kind):
    """A call of one of x1's builders: what it returns is data, judged by value."""

    def inputs(self, case, seed):
        return ()

    def reply(self, submission, case, placed):
        seen = case.visibility.mask(*case.positions)
        if case.builder == "tiles_of_mask" and seen.dim() == 4 and len(seen) == 1:
            seen = seen[0]  # (heads, Nq, Nk)
        about = {"builder": case.builder, "shape": list(seen.shape), "block": case.block}
        files = {"mask.bin": seen.contiguous().numpy().tobytes()}
        answer, found = submission.call_function("build", about, BuiltTiles, files)
        if found and len(answer.reply.outputs) != len(NAMES):
            raise Died(NO_REPLY)
        return BuiltAnswer(answer.reply, found=found)

    def judge(self, problem, case, placed, answer, device):
        outputs = answer.reply.outputs
        if answer.found.type == "NoneType":
            return Verdict(Outcome.WRONG, f"{case.builder} returned nothing; it must return Tiles.")
        if wrong := check_lists.wrong_fields(case, outputs, answer.found.plain):
            return wrong
        starts, columns, places, bits = tensors.read_outputs(answer.data, outputs)
        wrong = check_lists.wrong_kinds(case, starts, columns)
        if wrong and not wrong.facts.causes:  # nothing that can be drawn
            return wrong
        verdict = wrong or check_lists.wrong_bits(case, starts, columns, places, bits) or Verdict(Outcome.PASSED)
        return replace(verdict, facts=structs.replace(verdict.facts, picture=draw_lists(case, starts, columns)))


BUILDER, KIND = Builder(), BlockSparse()


def describe_lists(case):
    """([the lists described as inputs of a call], their bytes one after the other)."""
    lists = [(name, getattr(tile_lists.cut(case), name).contiguous()) for name in NAMES]
    specs = [tensors.describe_dense(name, "int32", tensor.shape, in_call=False) for name, tensor in lists]
    return specs, b"".join(tensor.numpy().tobytes() for _, tensor in lists)


def draw_lists(case, starts, columns):
    """The picture of a builder's lists: the tiles in them, as if a kernel had visited them."""
    (block_q, block_k), records = case.block, []
    for row, (first, *_, after) in enumerate(starts.flatten(0, 1).tolist()):
        this_map, i = divmod(row, starts.shape[1])
        starting = [column * block_k for column in columns[first:after].tolist()]
        tiles = [(start, min(start + block_k, case.num_keys) - 1) for start in starting]
        q = i * block_q, min((i + 1) * block_q, case.N) - 1
        records.append(Visit(case.builder, row, q, *divmod(this_map, case.maps[1]), tiles, block_k))
    made = picture.draw(case, records, complete=False)
    made.pop("need", None)  # nothing was loaded
    if "visits" in made:
        made["visits"]["did"] = "lists"
    return made


# A kernel's loads of its lists ---------------------------------------------------------------------------------------


# What is asked of whoever reads outside one of the lists, by the name that the skeleton's kernel gives it.
OUTSIDE = {
    "Starts": "Is it the row of this program's own map and query tile, and are there four numbers in each?",
    "Columns": "Do the entries go from one number of the row's `starts` to the next?",
    "Places": "Do the entries go from one number of the row's `starts` to the next?",
    "Bits": "Are they at the entry's place, in words of 32 columns, and has a tile of this kind bits at all?",
}


def outside_list(fault):
    """Which entry of a list was asked for, where there are so many."""
    shape = fault.shape
    entry = fault.at.first // max(1, math.prod(shape[1:])) if fault.at and shape else -1
    if entry < 0 or entry < shape[0]:
        return ""
    return f"its block begins at entry {entry}, and there are {shape[0] or 'none, for no tile is PARTIAL'}. "


def middle_of_a_row(trace):
    """Where a program begins to read Starts elsewhere than at a row: what it then loads is no fault of the pointers."""
    for table in trace.addresses:
        for program in table.programs:
            within = program.at.first % table.shape[-1] if table.argument == "Starts" else 0
            if within:
                return f"program {program.place} begins to read Starts at number {within} of a row. {OUTSIDE['Starts']}"
    return ""


def needless_bits(case, costs) -> Waste | None:
    """The Waste where more words of bits were loaded than the PARTIAL tiles of all heads have, else None.

    A kernel that takes a tile in parts narrower than a word loads that word for each part.
    """
    partial = (tile_lists.cut(case).kinds == PARTIAL).view(*case.maps, -1).sum(2).expand(case.B, case.Hq)
    needed = int(partial.sum()) * case.block[0] * (case.block[1] // tile_lists.WORD)
    narrowest = min((side for dots in costs.dots for side in dots.dims), default=tile_lists.WORD)
    loaded = costs.inputs.get("bits", 0)
    if loaded <= needed * max(1, tile_lists.WORD // narrowest):
        return None
    sentence = (
        f"The kernels load {loaded} words of bits where the PARTIAL tiles of all heads have {needed}: FULL and CAUSAL "
        "tiles need none."
    )
    return Waste(sentence, {"bits_loaded": loaded, "bits_needed": needed})
