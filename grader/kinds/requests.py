"""How each kind of case is asked and judged: what is recorded, what is run, and who reads the reply."""

import zlib

import torch

from grader.course import inputs
from grader.kinds.attention import verdict
from grader.kinds.block_sparse import sparse_verdict
from grader.kinds.program_order import order_verdict
from grader.processes.submission import describe_input

LONGEST_MEASURED = 1100  # keys: the program runs twice more for it


class Ladder:
    """A call of the entry point on q, k and v: all cases of P1 to P7; the labs change what they need."""

    def placed(self, case, seed):
        """The inputs that the case is judged on."""
        return inputs.make(case, seed)

    def reply(self, submission, case, placed):
        """What came of the case: recorded, and run."""
        request, files = self.request(submission.problem, case, placed, submission.device)
        lists, more = self.beside(case)
        return submission.run(request | more, files, lists)

    def request(self, problem, case, placed, device):
        """(plain data, {file: bytes}) of a call; a GPU's kernels are not observed."""
        each = list(zip("qkv", placed, strict=True))
        interpreted = problem.uses_triton and device == "cpu"
        request = {
            "inputs": [describe_input(name, tensor, case.dtype) for name, tensor in each], "arguments": case.arguments,
            "trace": interpreted, "count": interpreted or case in problem.memory_cases,
            "spans": measures_rows(problem, case),
            "choice": zlib.crc32(case.name.encode()),
        }  # fmt: skip
        return request, {"inputs.bin": b"".join(raw(tensor.base) for _, tensor in each)}

    def beside(self, case):
        """({file: bytes} for both processes, what is added to the request)."""
        return {}, {}

    def judged(self, problem, case, placed, reply, path, device):
        """(outcome, sentence, facts) of a reply; the bytes that came back are in the file `path`."""
        return verdict.of_reply(problem, case, placed, reply, path, device)


class Sparse(Ladder):
    """x1's kernel, on the lists of the grader."""

    def request(self, problem, case, placed, device):
        request, files = super().request(problem, case, placed, device)
        lists, data = sparse_verdict.as_inputs(case)
        return request | {"inputs": request["inputs"] + lists}, {"inputs.bin": files["inputs.bin"] + data}

    def beside(self, case):
        _, data = sparse_verdict.as_inputs(case)
        return {"lists.bin": data}, {"lists": sparse_verdict.described(case)}

    def judged(self, problem, case, placed, reply, path, device):
        return sparse_verdict.of_kernel(problem, case, placed, reply, path, device)


class Builder(Ladder):
    """One of x1's builders: what it returns is data, judged by value."""

    def placed(self, case, seed):
        return ()

    def reply(self, submission, case, placed):
        return submission.call_function(*sparse_verdict.mask_handed_over(case))

    def judged(self, problem, case, placed, reply, path, device):
        return sparse_verdict.of_builder(case, reply, path, device)


class Order(Builder):
    """x2's program_order."""

    def placed(self, case, seed):
        return order_verdict.sizes(case, seed)

    def reply(self, submission, case, placed):
        return submission.call_function({"op": "order", "sizes": placed}, {})

    def judged(self, problem, case, placed, reply, path, device):
        return order_verdict.of_function(placed, reply)


class Ordered(Ladder):
    """x2's kernel, compared with program_order or with a call on a single die."""

    def reply(self, submission, case, placed):
        reply = super().reply(submission, case, placed)
        if reply["status"] != "returned":
            return reply
        if case.like == "program_order" and reply["trace"]:
            sizes = order_verdict.seen_sizes(case, placed, reply["trace"])
            told = submission.call_function({"op": "order", "sizes": [sizes["sizes"]]}, {}) if sizes else {}
            if told.get("status") == "raised":
                return told
            reply["order"] = sizes and sizes | {"places": (told["orders"] or [None])[0]}
        if case.like == "the plain order":
            first = submission.take_outputs(reply)
            request, files = self.request(submission.problem, case, placed, submission.device)
            request["arguments"] = request["arguments"] | {"num_dies": 1}
            other = submission.run(request, files)
            if other["status"] != "returned":
                return other
            reply["other_bits"] = order_verdict.other_bits(first, submission.take_outputs(other), placed[0].shape)
            reply["kept"] = first
        return reply

    def judged(self, problem, case, placed, reply, path, device):
        judged = super().judged(problem, case, placed, reply, path, device)
        return order_verdict.of_kernel(case, reply, judged)


LADDER = Ladder()
OTHER = {"SparseCase": Sparse(), "BuilderCase": Builder(), "OrderCase": Order(), "OrderedCase": Ordered()}


def how(case):
    return OTHER.get(type(case).__name__, LADDER)


def measures_rows(problem, case):
    """True where the scores of a row that are held at once are measured: in P2, on long rows of plain numbers."""
    long = verdict.KEYS_AT_ONCE < case.num_keys <= LONGEST_MEASURED
    return bool(problem.memory_cases) and long and case.values == "normal"


def raw(tensor):
    """The bytes of a tensor on the CPU."""
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
