"""Writers, each with its own attention, that are given the same tokens; and where one is wrong.

The tokens are those of SDPA by one backend, the likeliest at each step ("greedy"). Another backend rounds in other
places: how far its logits are from the first one's is measured at each step, and the largest so far is what rounding
does. A student's token may differ where SDPA's two best logits lie closer than that: a tie.
"""

from dataclasses import dataclass

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from model import sdpa
from model.transformer import Cache

DTYPE = torch.float16
# The one whose tokens are taken, and the one that it is held beside: a GPU's flash kernels take no mask.
BACKENDS = {"cpu": ("MATH", "FLASH_ATTENTION"), "cuda": ("MATH", "EFFICIENT_ATTENTION")}
SUSPECT = 4.0  # times as far from SDPA as another backend, and no two of right kernels were


class Writer:
    """One model's logits of the next token of each prompt, with one attention.

    attend, decode: as the model takes them; without `decode` every step computes the whole text again.
    """

    def __init__(self, model, attend, decode, room):
        self.model, self.attend, self.decode, self.room = model, attend, decode, room
        self.texts, self.cache = [], None

    def begin(self, prompts):
        """Logits (B, 256), float32, after prompts, (N,) int64 each."""
        self.texts = list(prompts)
        device = prompts[0].device
        self.cache = Cache.empty(self.model.shape, len(prompts), self.room, DTYPE, device)
        return self.whole()

    def whole(self):
        rows = [self.model.prefill(text, self.attend, self.cache, row)[-1] for row, text in enumerate(self.texts)]
        return torch.stack(rows).float()

    def add(self, tokens):
        """The same after one more token of each, (B,)."""
        self.texts = [torch.cat([text, new[None]]) for text, new in zip(self.texts, tokens, strict=True)]
        if self.decode is None:
            return self.whole()
        return self.model.step(tokens[:, None], self.decode, self.cache)[:, -1].float()


class ByBackend(Writer):
    """A Writer whose attention is one backend of SDPA."""

    def __init__(self, model, backend, room):
        super().__init__(model, sdpa.attend, sdpa.decode, room)
        self.backend = getattr(SDPBackend, backend)

    def begin(self, prompts):
        with sdpa_kernel(self.backend):
            return super().begin(prompts)

    def add(self, tokens):
        with sdpa_kernel(self.backend):
            return super().add(tokens)


@dataclass
class Wrong:
    """The first token that is not SDPA's: in which row, after how many; the two tokens; how far SDPA's two best logits
    are apart; by how much the logits differ."""

    row: int
    step: int
    token: int
    wanted: int
    gap: float
    far: float


@dataclass
class Found:
    """What is known after some steps. far, apart: the largest differences of logits so far, of the student's kernels
    and of another backend, both from SDPA's. ties: tokens that differ for rounding."""

    steps: int = 0
    far: float = 0.0
    apart: float = 0.0
    ties: int = 0
    wrong: Wrong | None = None

    @property
    def suspect(self):
        return self.far > SUSPECT * self.apart


def compare(theirs, one, other, prompts, steps):
    """Yields (tokens (B,), Found) of each step, until one is wrong.

    theirs: the student's Writer. one, other: SDPA's, by two backends.
    """
    found, writers = Found(), (theirs, one, other)
    logits = [writer.begin(prompts) for writer in writers]
    for step in range(steps):
        mine, right, beside = logits
        found.apart = max(found.apart, float((right - beside).abs().max()))
        far = (mine - right).abs().amax(1)  # (B,)
        found.far = max(found.far, float(far.nan_to_num(float("inf")).max()))
        best, tokens = right.topk(2, 1).values, right.argmax(1)
        gaps = best[:, 0] - best[:, 1]
        differs = (mine.argmax(1) != tokens) | ~mine.isfinite().all(1)
        tied = differs & (gaps <= found.apart) & mine.isfinite().all(1)
        found.ties += int(tied.sum())
        found.steps = step + 1
        if (differs & ~tied).any():
            row = int((differs & ~tied).nonzero()[0])
            found.wrong = Wrong(row, step, int(mine[row].argmax()), int(tokens[row]), float(gaps[row]), float(far[row]))
        yield tokens, found
        if found.wrong:
            return
        if step + 1 < steps:
            logits = [writer.add(tokens) for writer in writers]
