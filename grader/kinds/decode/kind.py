"""x4's kind: attention of new tokens over a cache, its reads, and the same bits in every batch."""

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from msgspec import structs

from grader.core.protocol.messages import Derived, plain_bytes
from grader.engine import contrast, trying
from grader.engine.contrast import Contrast
from grader.engine.kind import Kind, Timing
from grader.kinds.attention.known_mistakes import HEADS, POINTERS
from grader.kinds.decode import addresses, inputs, mistakes, naive, reads, same_bits
from grader.kinds.decode.cases import LONG, PROBLEM, DecodeCase
from grader.kinds.decode.reference import REFERENCE

TOO_LARGE = "what can grow too large with the scores?"
NARROW = "which numbers are narrower than q's dtype?"


CONTRASTS = (
    replace(contrast.DTYPE, read=mistakes.MERGE),
    replace(contrast.LAYOUT, read=POINTERS),
    Contrast("with numbers of ordinary size", TOO_LARGE, mistakes.MERGE, {"values": "normal"}),
    Contrast("without sink logits", mistakes.SINK, mistakes.LOGIT, {"sink": ""}),
    Contrast("in a dense cache", mistakes.PAGE, mistakes.PAGES,
             {"page": None, "room": lambda case: case.room if case.page is None else None}),
    Contrast("without a window", mistakes.WHERE_WINDOW, mistakes.MASK, {"window": None}),
    Contrast("with one new token", mistakes.NEWEST, mistakes.MASK, {"Nq": 1}),
    Contrast("where each query head has its own K and V", mistakes.GROUP, HEADS, {"Hq": lambda case: case.Hkv}),
    Contrast("with the first sequence alone", mistakes.WHOSE, POINTERS, {"lengths": lambda case: case.lengths[:1]}),
    Contrast("with sequences of one piece", mistakes.ALL_PIECES, mistakes.MERGE,
             {"lengths": lambda case: tuple(min(length, case.piece) for length in case.lengths), "room": None}),
    Contrast("in float16", NARROW, mistakes.MERGE, {"dtype": "float16"}),
)  # fmt: skip


class Decode(Kind):
    """A call of x4's decode_attention."""

    problems, references, contrasts = (PROBLEM,), {"x4": REFERENCE}, CONTRASTS
    axes: ClassVar = {
        "o": ("sequence", "head", "new token"), "k_cache": ("sequence", "kv head", "key"),
        "v_cache": ("sequence", "kv head", "value"),
    }  # fmt: skip
    reads, by_torch = reads.READS, staticmethod(reads.by_torch)
    words_on_nan, rows_read, long_row = (mistakes.NONE_SEEN, mistakes.EMPTY), HEADS, LONG
    mistakes: ClassVar = {"x4": mistakes.EVERY}
    explain_fault = staticmethod(addresses.explain)

    def size(self, case):
        return case.B * case.Hq * case.Nq * case.tokens * case.D

    def inputs(self, case, seed):
        return inputs.make(case, seed)

    def shapes(self, case):
        q, dense = (case.B, case.Hq, case.Nq, case.D), (case.B, case.Hkv, case.tokens, case.D)
        pages = case.page and (case.B * (case.tokens // case.page) + inputs.UNUSED, case.page, case.Hkv, case.D)
        return [q, pages or dense, pages or dense]

    def beside_tensors(self, case):
        """[(TensorSpec, bytes)] of what the kind's own code in the recorder hands over."""
        found = inputs.placed_beside(case).items()
        return [(structs.replace(x.describe(name), in_call=False), x.raw()) for name, x in found]

    def request(self, problem, case, placed, device):
        call, files = super().request(problem, case, placed, device)
        more = self.beside_tensors(case)
        call = structs.replace(call, inputs=[*call.inputs, *(spec for spec, _ in more)])
        return call, {"inputs.bin": files["inputs.bin"] + b"".join(data for _, data in more)}

    def described(self, case):
        return super().described(case) + [spec for spec, _ in self.beside_tensors(case)]

    def about(self, case):
        legal = {"lengths": (1, case.tokens), "block_table": (0, self.shapes(case)[1][0] - 1)}
        placed = {name: x for name, x in inputs.placed_beside(case).items() if name in legal}
        ints = {name: (x.elements, x.shape, x.strides, *legal[name]) for name, x in placed.items()}
        return plain_bytes({"ints": ints, "sink_logits": case.Hq if case.sink else None})

    def next_call(self, problem, case, placed, answers):
        return same_bits.second(case, placed) if case.like and len(answers) == 1 else None

    def outputs(self, problem, case):
        return [("o", (case.B, case.Hq, case.Nq, case.D), case.dtype)]

    # What is timed ---------------------------------------------------------------------------------------------------

    timing = Timing(
        Path(naive.__file__), "naive_decode", "PyTorch's SDPA with K and V copied out to all query heads",
        derived=Derived("fill_caches", ["k_cache"], ["lengths"]),
    )  # fmt: skip

    def parts(self, problem, case):
        """Each kv head of each sequence as a case: q, k_cache, v_cache, lengths, then o."""
        found = []
        for b, length in enumerate(case.lengths):
            for head in range(case.Hkv):
                part = replace(case, lengths=(length,), Hq=case.group, Hkv=1, room=case.tokens)
                queries, keys = ([[b, b + 1], [head * n, (head + 1) * n]] for n in (case.group, 1))
                found.append((part, [queries, keys, keys, [[b, b + 1]], queries]))
        return found

    # What make try shows ---------------------------------------------------------------------------------------------

    def small_case(self, problem, sizes):
        """LENGTHS, as text, are those of the sequences."""
        sizes = dict(sizes)
        words = sizes.pop("lengths", "9 5")
        if not words.replace(" ", "").isdecimal() or not any(map(int, words.split())):
            raise ValueError(f'LENGTHS must be like "9 5"; got {words!r}')
        if sizes.get("sink", "normal") not in inputs.SINKS:
            raise ValueError(f"SINK must be one of {', '.join(inputs.SINKS)}; got {sizes['sink']!r}")
        small = DecodeCase("try", lengths=tuple(map(int, words.split())), Hq=2, Hkv=1, rest="NaN")
        return trying.resize(small, sizes)

    def objects(self, case, module):
        return inputs.beside(case)

    def example_sizes(self, problem):
        return {"lengths": "150", "page": "24", "window": "117", "Nq": "2", "sink": "normal"}

    def tables(self, call, problem, case, placed, returned, device):
        (right,) = self.right(problem, case, placed, device)
        axes = {"row": "token", "axes": ("sequence", "head")}
        return [trying.compare("o", right.expected, right.allowed, returned[0], **axes)]

    # What came back --------------------------------------------------------------------------------------------------

    def read_facts(self, case, reply, wrong):
        found = wrong["o"]
        measured = reads.unwritten(case, reply.trace, found)
        if any(fact.question == reads.NOBODY_WROTE for fact in measured):
            found = structs.replace(found, unwritten=0, nan=found.nan + found.unwritten)
        wrong = {"o": found}
        return (measured, wrong) if measured else super().read_facts(case, reply, wrong)

    def compare(self, problem, case, outputs, right):
        return same_bits.compare(case, *(each["o"] for each in outputs), right[0].allowed)


KIND = Decode()
