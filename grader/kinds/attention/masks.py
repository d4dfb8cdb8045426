"""Who sees whom: the one definition of every mask in the course."""

import functools
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Visibility:
    """Which keys a query sees, by token position.

    causal: only keys at or before the query. window: of those, the last `window` tokens, the query's own included.
    sinks: the first `sinks` tokens stay visible beside the window. A window or sinks imply causal.
    Source: Beltagy et al., "Longformer", 2020, section 3.1; Xiao et al., "Attention Sinks", 2023, section 3.
    """

    causal: bool = False
    window: int | None = None
    sinks: int = 0

    def mask(self, q_pos: torch.Tensor, k_pos: torch.Tensor) -> torch.Tensor:
        """Booleans (len(q_pos), len(k_pos)): True where the query at that position sees the key at that position."""
        age = q_pos[:, None] - k_pos[None, :]
        if self.window is None:
            return age >= 0 if self.causal else torch.ones_like(age, dtype=torch.bool)
        return (age >= 0) & ((age < self.window) | (k_pos[None, :] < self.sinks))

    def __str__(self):
        if self.window is None:
            return "causal" if self.causal else "no mask"
        return f"window {self.window}" + (f", {self.sinks} sinks" if self.sinks else "")

    def pairs(self, queries: int, keys: int) -> int:
        """How many pairs of a query and a key that it sees there are: what attention's FLOPs are counted by."""
        if self.window is None and not self.causal:
            return queries * keys
        so_far = torch.arange(1, queries + 1)  # keys at or before each query
        if self.window is None:
            return int(so_far.clamp(max=keys).sum())
        return int((so_far.clamp(max=self.window) + (so_far - self.window).clamp(0, self.sinks)).sum())


@functools.lru_cache(64)
def whole_mask(visibility, queries: int, keys: int) -> torch.Tensor:
    """The mask of all positions, for reading only: one case asks for it many times."""
    return visibility.mask(torch.arange(queries), torch.arange(keys))
