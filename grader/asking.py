"""How each kind of case is asked and judged: what the child is sent, and who reads its reply."""

import torch

from grader import inputs, labs, order_lab, sparse_lab, verdict
from grader.assignment import PROBLEMS


class Ladder:
    """A call of the entry point on q, k and v: all cases of P1 to P7; the labs change what they need."""

    def placed(self, case, seed):
        """The inputs that are compared afterwards with what the child returns."""
        return inputs.make(case, seed)

    def request(self, problem, path, case, placed, folder, device):
        """The request as plain data; the bytes of the tensors are written to the child's `folder`."""
        write_inputs(placed, folder / "inputs.bin")
        request = {"op": "run", "inputs": describe_inputs(placed, case), "arguments": case.arguments}
        request["trace"] = str(path) if problem.uses_triton and device == "cpu" else None
        request["count"] = bool(request["trace"]) or case in problem.memory_cases
        request["ledger"] = str(path) if problem.id in PROBLEMS else None
        request["launches"] = problem.uses_triton
        return request | self.beside(problem, path, case, folder)

    def beside(self, problem, path, case, folder):
        """What a call is given beside q, k and v and the arguments."""
        return {}

    def judged(self, problem, case, placed, reply, path, device):
        """(outcome, sentence, facts) of a reply; the bytes that came back are in the file `path`."""
        return verdict.of_reply(problem, case, placed, reply, path, device)


class Sparse(Ladder):
    """x1's kernel, on the lists of the grader."""

    def beside(self, problem, path, case, folder):
        return sparse_lab.handed_over(case, path, folder)

    def judged(self, problem, case, placed, reply, path, device):
        return sparse_lab.of_kernel(problem, case, placed, reply, path, device)


class Builder(Ladder):
    """One of x1's builders."""

    def placed(self, case, seed):
        return ()

    def request(self, problem, path, case, placed, folder, device):
        return sparse_lab.mask_handed_over(case, path, folder)

    def judged(self, problem, case, placed, reply, path, device):
        return sparse_lab.of_builder(case, reply, path, device)


class Order(Builder):
    """x2's program_order."""

    def placed(self, case, seed):
        return order_lab.sizes(case, seed)

    def request(self, problem, path, case, placed, folder, device):
        return {"op": "order", "module": str(path), "sizes": placed}

    def judged(self, problem, case, placed, reply, path, device):
        return order_lab.of_function(placed, reply)


class Ordered(Ladder):
    """x2's kernel."""

    def beside(self, problem, path, case, folder):
        like = {"like": case.like, "module": str(path), "entry_point": problem.entry_point}
        return like if case.like else {}

    def judged(self, problem, case, placed, reply, path, device):
        judged = super().judged(problem, case, placed, reply, path, device)
        return order_lab.of_kernel(case, reply, judged)


LADDER = Ladder()
OTHER = {
    labs.SparseCase: Sparse(), labs.BuilderCase: Builder(), labs.OrderCase: Order(), labs.OrderedCase: Ordered(),
}  # fmt: skip


def how(case):
    return OTHER.get(type(case), LADDER)


def write_inputs(placed, path):
    """The bytes of the Placed tensors, one after the other, as child/worker.py reads them."""
    with open(path, "wb") as file:
        for tensor in placed:
            file.write(tensor.base.view(torch.uint8).numpy().tobytes())


def describe_inputs(placed, case):
    """Where each Placed tensor lies in its buffer, as plain data."""
    return [
        {"dtype": case.dtype, "elements": t.base.numel(), "shape": t.shape, "strides": t.strides, "offset": t.offset}
        for t in placed
    ]
