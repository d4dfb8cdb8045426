"""x1's kind: the lists of its builders, and its kernel's output and loads on the grader's own lists."""

import math

import torch

from grader.course import tensors
from grader.diagnosis.cause import Cause
from grader.kinds.attention import picture, work
from grader.kinds.attention.kind import Attention
from grader.kinds.block_sparse import check_lists, list_mistakes, tile_lists
from grader.kinds.block_sparse.cases import PROBLEM, BuilderCase
from grader.kinds.block_sparse.patterns import PARTIAL
from grader.kinds.kind import Kind
from grader.result import Outcome, Verdict


class BlockSparse(Attention):
    """A call of x1's kernel, on the lists of the grader."""

    problems = (PROBLEM,)

    def handler(self, case):
        return BUILDER if isinstance(case, BuilderCase) else self

    def cases(self, problem, seed):
        return problem.cases

    def case_by_name(self, problem, name):
        return None

    def request(self, problem, case, placed, device):
        request, files = super().request(problem, case, placed, device)
        lists, data = describe_as_inputs(case)
        return request | {"inputs": request["inputs"] + lists}, {"inputs.bin": files["inputs.bin"] + data}

    def described(self, case):
        return super().described(case) + describe_as_inputs(case)[0]

    def beside(self, case):
        _, data = describe_as_inputs(case)
        return {"lists.bin": data}, {"lists": describe_lists(case)}

    def judge(self, problem, case, placed, reply, data, device):
        if names := ", ".join(name for name in reply.get("changed", ()) if name in tile_lists.NAMES):
            sentence = f"Your code wrote into the Tiles that it was given: {names} must stay as they were."
            return Verdict(Outcome.UNSAFE, sentence)
        return super().judge(problem, case, placed, reply, data, device)

    def explain_fault(self, case, trace, fault):
        if middle := middle_of_a_row(trace):
            return middle
        if question := OUTSIDE.get(fault["argument"]):
            return f"{outside_list(fault)}{question}"
        return super().explain_fault(case, trace, fault)

    def known_mistakes(self, problem, case, placed, spec, records, sizes, order=None):
        return list_mistakes.every(problem, case, placed, spec, records, sizes)

    def wasted(self, case, reply):
        """(sentence, facts) where a kernel did more than its lists name, else None."""
        return work.wasted(case, reply) or needless_bits(case, reply["trace"]["costs"])


class Builder(Kind):
    """A call of one of x1's builders: what it returns is data, judged by value."""

    def inputs(self, case, seed):
        return ()

    def reply(self, submission, case, placed):
        return submission.call_function(*describe_mask(case), are_lists)

    def judge(self, problem, case, placed, reply, data, device):
        return judge_lists(case, reply, data)


DTYPES = {"bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"}
BUILDER, KIND = Builder(), BlockSparse()


# What its processes get ----------------------------------------------------------------------------------------------


def describe_lists(case):
    """The lists of a SparseCase as plain data, without their numbers."""
    lists = tile_lists.cut(case)
    return {"shapes": {name: list(getattr(lists, name).shape) for name in tile_lists.NAMES}} | lists.plain


def describe_as_inputs(case):
    """(the lists described as inputs of a call, their bytes one after the other)."""
    lists, inputs, data = tile_lists.cut(case), [], b""
    for name in tile_lists.NAMES:
        tensor = getattr(lists, name).contiguous()
        inputs.append(tensors.describe(name, "int32", tensor.numel(), tensor.shape, tensor.stride()) | {"lists": True})
        data += tensor.numpy().tobytes()
    return inputs, data


def describe_mask(case):
    """(request, {file: bytes}) of a BuilderCase."""
    seen = case.visibility.mask(torch.arange(case.N), torch.arange(case.num_keys))
    if case.builder == "tiles_of_mask" and seen.dim() == 4 and len(seen) == 1:
        seen = seen[0]  # (heads, Nq, Nk)
    request = {"op": "build", "builder": case.builder, "shape": list(seen.shape), "block": case.block}
    return request, {"mask.bin": seen.contiguous().numpy().tobytes()}


def are_lists(reply):
    """True for the parts of a builder's Tiles, described: {"type", "outputs", "plain"}."""
    outputs, plain = reply.get("outputs"), reply.get("plain")
    if type(reply.get("type")) is not str or type(outputs) is not list or type(plain) is not dict:
        return False
    for words in outputs:
        if type(words) is not dict or type(words.get("plain")) is not bool or type(words.get("type")) is not str:
            return False
        shape, dtype = words.get("shape"), words.get("dtype")
        sizes = type(shape) is list and all(type(n) is int and 0 <= n < 1 << 32 for n in shape)
        if words["plain"] and not (sizes and dtype in DTYPES and type(words.get("device")) is str):
            return False
    return len(outputs) == 4 and all(type(value) in (int, str) for value in plain.values())


# A builder's lists ---------------------------------------------------------------------------------------------------


def judge_lists(case, reply, data):
    """The Verdict on what a builder returned."""
    if reply["type"] == "NoneType":
        return Verdict(Outcome.WRONG, f"{case.builder} returned nothing; it must return Tiles.")
    if wrong := check_lists.wrong_fields(case, reply["outputs"], reply["plain"]):
        return Verdict(Outcome.WRONG, wrong.sentence)
    starts, columns, places, bits = tensors.read_outputs(data, reply)
    found = check_lists.wrong_kinds(case, starts, columns)
    if found and not found.mistake:
        return Verdict(Outcome.WRONG, found.sentence)
    facts = {"picture": draw_lists(case, starts, columns)}
    found = found or check_lists.wrong_bits(case, starts, columns, places, bits)
    if not found:
        return Verdict(Outcome.PASSED, "", facts)
    facts |= {"question": found.question} if found.question else {}
    causes = [Cause(found.mistake, found.question, list_mistakes.LISTS)] if found.mistake else []
    return Verdict(Outcome.WRONG, found.sentence, facts | {"causes": causes})


def draw_lists(case, starts, columns):
    """The picture of lists: the tiles in them, as if they were visited."""
    made = picture.draw(case, {"visits": listed(case, starts, columns)}, complete=False)
    made.pop("need", None)  # nothing was loaded
    if "visits" in made:
        made["visits"]["did"] = "lists"
    return made


def listed(case, starts, columns):
    """What a kernel that walks these lists would visit, as the trace would have it."""
    records, heads = [], case.maps[1]
    for this_map, rows in enumerate(starts.tolist()):
        for i, (first, *_, after) in enumerate(rows):
            q = [i * case.block[0], min((i + 1) * case.block[0], case.N) - 1]
            tiles = [keys_of(case, column) for column in columns[first:after].tolist()]
            records.append({
                "kernel": case.builder, "program": len(records), "q": q, "tiles": tiles, "span": case.block[1],
                "batch": this_map // heads, "head": this_map % heads, "key_heads": 1,
            })  # fmt: skip
    return records


def keys_of(case, column):
    return [column * case.block[1], min((column + 1) * case.block[1], case.num_keys) - 1]


# A kernel's output and loads -----------------------------------------------------------------------------------------


# What is asked of whoever reads outside one of the lists, by the name that the skeleton's kernel gives it.
OUTSIDE = {
    "Starts": "Is it the row of this program's own map and query tile, and are there four numbers in each?",
    "Columns": "Do the entries go from one number of the row's `starts` to the next?",
    "Places": "Do the entries go from one number of the row's `starts` to the next?",
    "Bits": "Are they at the entry's place, in words of 32 columns, and has a tile of this kind bits at all?",
}


def outside_list(fault):
    """Which entry of a list was asked for, where there are so many."""
    at, shape = fault.get("at"), fault.get("shape")
    entry = at["first"] // max(1, math.prod(shape[1:])) if at and shape else -1
    if entry < 0 or entry < shape[0]:
        return ""
    return f"its block begins at entry {entry}, and there are {shape[0] or 'none, for no tile is PARTIAL'}. "


def middle_of_a_row(trace):
    """Where a program begins to read Starts elsewhere than at a row: what it then loads is no fault of the pointers."""
    for table in trace["addresses"]:
        for program in table["programs"]:
            within = program["first"] % table["shape"][-1] if table["argument"] == "Starts" else 0
            if within:
                return (
                    f"program {tuple(program['place'])} begins to read Starts at number {within} of a row. "
                    f"{OUTSIDE['Starts']}"
                )
    return ""


def needless_bits(case, costs):
    """(sentence, facts) where more words of bits were loaded than the PARTIAL tiles of all heads have, else None.

    A kernel that takes a tile in parts narrower than a word loads that word for each part.
    """
    lists, (batches, heads) = tile_lists.cut(case), case.maps
    partial = (lists.kinds == PARTIAL).flatten(1).sum(1).view(batches, heads).expand(case.B, case.Hq)
    needed = int(partial.sum()) * case.block[0] * (case.block[1] // tile_lists.WORD)
    narrowest = min((side for *sides, _ in costs["dots"] for side in sides), default=tile_lists.WORD)
    loaded = costs["inputs"].get("bits", 0)
    if loaded <= needed * max(1, tile_lists.WORD // narrowest):
        return None
    sentence = (
        f"The kernels load {loaded} words of bits where the PARTIAL tiles of all heads have {needed}: FULL and CAUSAL "
        "tiles need none."
    )
    return sentence, {"bits_loaded": loaded, "bits_needed": needed}
