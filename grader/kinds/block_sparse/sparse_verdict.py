"""x1's replies judged: a builder's lists, and a kernel's output and loads; and what its child is handed over."""

import math
from collections import defaultdict

import torch

from grader.course import tile_lists
from grader.diagnosis.diagnose import Cause
from grader.diagnosis.list_mistakes import LISTS
from grader.kinds.attention import picture, verdict, work
from grader.kinds.block_sparse import list_check
from grader.result import Outcome

# What its processes get ----------------------------------------------------------------------------------------------


def described(case):
    """The lists of a SparseCase as plain data, without their numbers."""
    lists = tile_lists.of(case)
    return {"shapes": {name: list(getattr(lists, name).shape) for name in tile_lists.NAMES}} | lists.plain


def as_inputs(case):
    """(the lists described as inputs of a call, their bytes one after the other)."""
    lists, inputs, data = tile_lists.of(case), [], b""
    for name in tile_lists.NAMES:
        tensor = getattr(lists, name).contiguous()
        inputs.append({
            "name": name, "dtype": "int32", "elements": tensor.numel(), "shape": list(tensor.shape),
            "strides": list(tensor.stride()), "offset": 0,
        })  # fmt: skip
        data += tensor.numpy().tobytes()
    return inputs, data


def mask_handed_over(case):
    """(request, {file: bytes}) of a BuilderCase."""
    seen = case.visibility.mask(torch.arange(case.N), torch.arange(case.num_keys))
    if case.builder == "tiles_of_mask" and seen.dim() == 4 and len(seen) == 1:
        seen = seen[0]  # (heads, Nq, Nk)
    request = {"op": "build", "builder": case.builder, "shape": list(seen.shape), "block": case.block}
    return request, {"mask.bin": seen.contiguous().numpy().tobytes()}


# A builder's lists ---------------------------------------------------------------------------------------------------


def of_builder(case, reply, path, device):
    """(outcome, sentence, facts) of what a builder returned."""
    if reply["type"] == "NoneType":
        return Outcome.WRONG, f"{case.builder} returned nothing; it must return Tiles.", {}
    if wrong := list_check.wrong_fields(case, reply["outputs"], reply["plain"]):
        return Outcome.WRONG, wrong.sentence, {}
    starts, columns, places, bits = verdict.read_outputs(path, reply)
    found = list_check.wrong_kinds(case, starts, columns)
    if found and not found.mistake:
        return Outcome.WRONG, found.sentence, {}
    facts = {"picture": drawn(case, starts, columns)}
    found = found or list_check.wrong_bits(case, starts, columns, places, bits)
    if not found:
        return Outcome.PASSED, "", facts
    facts |= {"question": found.question} if found.question else {}
    causes = [Cause(found.mistake, found.question, LISTS)] if found.mistake else []
    return Outcome.WRONG, found.sentence, facts | {"causes": causes}


def drawn(case, starts, columns):
    """The picture of lists: the tiles in them, as if they were visited."""
    made = picture.of(case, {"visits": listed(case, starts, columns)}, complete=False)
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


def of_kernel(problem, case, placed, reply, path, device):
    """(outcome, sentence, facts) of a call of the kernel."""
    if names := ", ".join(name for name in reply.get("changed", ()) if name in tile_lists.NAMES):
        return Outcome.UNSAFE, f"Your code wrote into the Tiles that it was given: {names} must stay as they were.", {}
    outcome, sentence, facts = verdict.of_reply(problem, case, placed, reply, path, device, wasted)
    return outcome, about_lists(sentence) if outcome is Outcome.UNSAFE else sentence, facts


# What is asked of whoever reads outside one of the lists, by the name that the skeleton's kernel gives it.
OUTSIDE = {
    "Starts": "is it the row of this program's own map and query tile, and are there four numbers in each?",
    "Columns": "do the entries go from one number of the row's `starts` to the next?",
    "Places": "do the entries go from one number of the row's `starts` to the next?",
    "Bits": "are they at the entry's place, and has the entry bits at all?",
}


def about_lists(sentence):
    """The sentence on a load outside a tensor, with a question of its own where that is a list."""
    said, outside, rest = sentence.partition(" elements outside ")
    name = next((name for name in OUTSIDE if rest.startswith(f"{name}:")), None)
    if not (outside and name and " reads " in said):
        return sentence
    _, found, place = rest.rpartition("? (")  # where it is, in the file
    return f"{said}{outside}{name}: {OUTSIDE[name]}{f' ({place}' * bool(found)}"


def wasted(case, reply):
    """(sentence, facts) where a kernel loaded more than its lists name, else None."""
    trace = reply["trace"]
    return (
        work.whole_matrix(case, reply) or work.copied_out(case, trace) or needless_tiles(case, trace)
        or needless_bits(case, reply)
    )  # fmt: skip


def needless_tiles(case, trace):
    """Tiles of keys that are not in the list of the queries' own row, or that are loaded again.

    Loaded is what the dots met or what the programs loaded, whichever is more, in keys; there is no slack: the lists
    say exactly what is needed. Programs that share a row of tiles may share its list.
    """
    lists, by_program = tile_lists.of(case), defaultdict(list)
    for record in trace["visits"]:
        by_program[record["kernel"], record["program"]].append(record)
    rows = {(entry["kernel"], entry["program"]): max(entry["k"], entry["v"]) for entry in trace["key_rows"]}
    loaded = needed = 0.0
    taken_up, worst = set(), None
    for program, records in by_program.items():
        names = [lists.tiles(record) for record in records]
        met = sum(last - first + 1 for record in records for first, last in record["tiles"])
        loads = max(met, rows.get(program, 0.0))
        needs = sum(size_of(case, columns) for columns in names)
        loaded += loads
        for record, columns in zip(records, names, strict=True):
            tile = (record["batch"], record["head"], *record["q"])
            needed += 0 if tile in taken_up else size_of(case, columns)
            taken_up.add(tile)
        if worst is None or loads - needs > worst[0]:
            worst = loads - needs, records, loads, names
    if loaded <= needed:
        return None
    _, records, loads, names = worst
    span, first = case.block[1], records[0]
    stranger = next((t for t in map(tuple, first["tiles"]) if t[0] // span not in names[0]), None)
    hint = f"; keys {stranger[0]}-{stranger[1]} are in no list of theirs" if stranger else ""
    sentence = (
        f"{first['kernel']} loads {tiles_in(case, loaded)} tiles of keys where the lists name "
        f"{tiles_in(case, needed)}: query rows {work.show_rows(records)} of batch {first['batch']}, head "
        f"{first['head']} load {tiles_in(case, loads)}, and their list names {len(names[0])}{hint}."
    )
    return sentence, {"tiles_loaded": math.ceil(loaded / span), "tiles_needed": math.ceil(needed / span)}


def size_of(case, columns):
    """Keys in these tiles."""
    return sum(last - first + 1 for first, last in (keys_of(case, column) for column in columns))


def tiles_in(case, keys):
    """Keys in tiles, up to a whole one: the last tile may be short."""
    return math.ceil(keys / case.block[1])


def needless_bits(case, reply):
    """Bits loaded of tiles that are not PARTIAL in the list of the program's rows."""
    lists, loaded, needed, where = tile_lists.of(case), 0, 0, None
    of_program = defaultdict(set)
    for record in reply["trace"]["visits"]:
        of_program[record["program"]] |= lists.bits_of(record)
    for program, places in reply["bits_loaded"]:
        own = of_program[program]
        loaded, needed = loaded + len(places), needed + len(own)
        where = where or next(
            iter(r for r in reply["trace"]["visits"] if r["program"] == program and set(places) - own), None
        )
    if where is None:
        return None
    rows = f"query rows {where['q'][0]}-{where['q'][1]} of batch {where['batch']}, head {where['head']}"
    if loaded <= needed:
        sentence = (
            f"{where['kernel']} loads bits of other tiles than those that its lists name, first for {rows}, though the "
            "values came out right: `places` says where the bits of an entry lie."
        )
    else:
        sentence = (
            f"{where['kernel']} loads the bits of {loaded} tiles where {needed} of the tiles listed are PARTIAL, first "
            f"for {rows}: FULL and CAUSAL tiles need none."
        )
    return sentence, {"bits_loaded": loaded, "bits_needed": needed}
