"""What every case is: a question to a kernel, as plain data."""

from dataclasses import dataclass, fields
from typing import ClassVar

DENSE, ORDINARY = "contiguous", "normal"  # the layout and the values of a case that says nothing of them


@dataclass(frozen=True)
class Question:
    """What every case has: its name; gpu: True for what only a GPU runs."""

    name: str
    gpu: bool = False

    arguments: ClassVar[dict] = {}  # the keyword arguments of the entry point, beside its tensors
    fits_gpu: ClassVar[bool] = True  # False where a GPU would need the memory between rows that lie far apart
    flops: ClassVar[int] = 0  # what a call needs at the least, where that is known
    least_bytes: ClassVar[int] = 0

    @property
    def smaller(self):
        """The same for a GPU with little memory."""
        return self

    def describe(self, seed):
        """`rows=5 columns=300, float16, odd rows, offset values, seed 3`: what a student reads beside the name."""
        known = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("name", "gpu")}
        sizes = " ".join(f"{name}={value}" for name, value in known.items() if value and not isinstance(value, str))
        layout, values = known.get("layout", DENSE), known.get("values", ORDINARY)
        unusual = layout * (layout != DENSE), f"{values} values" * (values != ORDINARY)
        return ", ".join(filter(None, [sizes, known.get("dtype"), *unusual, f"seed {seed}"]))
