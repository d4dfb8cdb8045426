"""The right answer in float64, in named steps; the answer with steps replaced; how far off a careful kernel may be."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from grader.engine import careful
from grader.engine.careful import FLOAT32_STEPS

Changes = Mapping[str, Callable[[Any], Any]]


@dataclass(frozen=True)
class Reference:
    """What a kernel computes, as steps.

    prepare(case, tensors): {name: value} of the inputs of the steps; floating-point tensors in float64.
    steps: {name: function of x}, in their order; x has the case, the inputs and the steps before. outputs: the names of
    the steps that are returned.
    careful: what careful kernels do otherwise, each as the steps and inputs that it replaces. They run in float32,
    where x.rounded(t) rounds t as a kernel does before a dot, to the dtype of the first tensor or tf32, and x.stored(t)
    as it does where it stores t; in float64 both return t. Without any the output must be exact.
    size(x): {output: what its error grows with}, by default its absolute value. beside(x): {output: what it may be off
    by beside that}. steps_of_float32: roundings that every kernel has. roundings: of float32, by which large numbers
    of a mistake may differ from what a kernel has.
    """

    prepare: Callable[[Any, list[torch.Tensor]], dict[str, Any]]
    steps: Changes
    outputs: tuple[str, ...]
    careful: tuple[Changes, ...] = ({},)
    size: Callable[[Any], dict[str, torch.Tensor]] = lambda x: {}
    beside: Callable[[Any], dict[str, torch.Tensor]] = lambda x: {}
    roundings: int = 64
    steps_of_float32: int = FLOAT32_STEPS

    def expect(self, case, tensors, dtypes, tf32=False):
        """The Expected of a call on these tensors. dtypes: {output: torch.dtype}.

        tf32: float32 is rounded to tf32's 10 bits, as Triton's dots on a GPU do by default.
        """
        given = SimpleNamespace(case=case, rounded=same, stored=same, **self.prepare(case, tensors))
        x, narrow = self.run(given), in_float32(given, tensors[0].dtype, tf32)
        forms = [self.run(narrow, changes) for changes in self.careful]
        sizes, beside, allowed = self.size(x), self.beside(x), {}
        if unknown := (sizes.keys() | beside.keys()) - set(self.outputs):
            raise ValueError(
                f"{min(unknown)!r} has a size, and is no output; the outputs are {', '.join(self.outputs)}"
            )
        for name in self.outputs:
            value, made = getattr(x, name), [getattr(form, name) for form in forms]
            made = [form for form in made if form.isfinite().all()] or made  # what is rounded early may overflow
            about = value, made, dtypes[name], sizes.get(name), self.steps_of_float32
            allowed[name] = (careful.allow(*about) if made else torch.zeros_like(value)) + beside.get(name, 0.0)
        return Expected(self, {name: getattr(x, name) for name in self.outputs}, allowed, given)

    def run(self, given, changes: Changes | None = None, known=None):
        """The inputs and every step, where `changes` {step or input: function of x} stand in the place of the steps.

        known: what `run` gave for the same inputs without changes; the steps before the first change are taken from it.
        """
        changes, order = changes or {}, list(self.steps)
        inputs = [name for name in changes if name not in self.steps]
        if unknown := [name for name in inputs if not hasattr(given, name)]:
            raise ValueError(f"there is no step or input {unknown[0]!r}; the steps are {', '.join(order)}")
        first = min(map(order.index, changes), default=len(order)) if known and not inputs else 0
        x = SimpleNamespace(**vars(known or given))
        for name in inputs:
            setattr(x, name, changes[name](x))
        for name in order[first:]:
            setattr(x, name, changes.get(name, self.steps[name])(x))
        return x


@dataclass(frozen=True)
class Expected:
    """{output: float64} of the right values and of how far off each may be; given: the inputs of the steps."""

    reference: Reference
    values: dict[str, torch.Tensor]
    allowed: dict[str, torch.Tensor]
    given: SimpleNamespace

    def answers(self, changes: Changes, varied: Iterable[dict[str, Any]], known: dict):
        """{output: float64} with these changes, for each of the varied inputs {name: value}.

        known: {varied inputs: all steps without the changes}, filled here.
        """
        for inputs in varied:
            key = tuple(sorted(inputs.items()))
            if key not in known:
                known[key] = self.reference.run(SimpleNamespace(**vars(self.given) | inputs))
            x = self.reference.run(known[key], changes, known[key])
            yield {name: getattr(x, name) for name in self.reference.outputs}

    def on_cpu(self):
        """The same, on the CPU."""
        values, allowed, given = (
            {name: each.cpu() if torch.is_tensor(each) else each for name, each in part.items()}
            for part in (self.values, self.allowed, vars(self.given))
        )
        return Expected(self.reference, values, allowed, SimpleNamespace(**given))


def same(tensor):
    return tensor


def in_float32(given, dtype, tf32):
    """The inputs of the steps with float32 for float64, and with x.rounded and x.stored that round."""
    drop = careful.drop_to_tf32 if tf32 and dtype == torch.float32 else same
    narrow = {
        name: each.float() if torch.is_tensor(each) and each.dtype == torch.float64 else each
        for name, each in vars(given).items()
    }
    rounding = {"rounded": lambda t: drop(t.to(dtype).float()), "stored": lambda t: t.to(dtype).float()}
    return SimpleNamespace(**narrow | rounding)
