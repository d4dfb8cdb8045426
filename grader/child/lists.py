"""Inside the child, for the lab of block-sparse attention: lists of tiles for its kernel, and its builders called.

The kernel gets the grader's lists, whatever the submission's builders do: a fault in one says nothing of the other.
"""

import math
import sys
from pathlib import Path

import outputs
import torch
from allocations import GUARD, POISON, Allocations, fenced

NAMES = ("starts", "columns", "places", "bits")
PLAIN = ("block_q", "block_k", "queries", "keys", "batches", "heads")


def module_of(request):
    return sys.modules[Path(request["module"]).stem]


class Given:
    """The submission's own Tiles of the lists in lists.bin, in fenced memory."""

    def __init__(self, request, allocations, device):
        described, self.tensors, self.loaded = request["lists"], {}, {}
        with open("lists.bin", "rb") as file:
            for name in NAMES:
                shape = described["shapes"][name]
                size = 4 * math.prod(shape)
                strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
                buffer, tensor = fenced(shape, strides, torch.int32, device, POISON)
                if size:
                    tensor.copy_(torch.frombuffer(bytearray(file.read(size)), dtype=torch.int32).view(shape))
                allocations.buffers.append((buffer, size, tuple(shape)))
                self.tensors[name] = tensor
        self.before = {name: tensor.clone() for name, tensor in self.tensors.items()}
        plain = {name: described[name] for name in PLAIN}
        try:
            tiles = module_of(request).Tiles(**self.tensors, **plain)
        except (AttributeError, TypeError) as error:
            fields = ", ".join((*NAMES, *PLAIN))
            raise TypeError(f"the grader makes Tiles({fields}), by name, as the skeleton has it: {error}") from None
        self.arguments = {"tiles": tiles}
        self.tile_bytes = 4 * math.prod(described["shapes"]["bits"][1:])
        self.watchers = {self.tensors["bits"].untyped_storage().data_ptr(): self.load}

    def load(self, program, offsets):
        """Note whose bits a program loaded: their places."""
        self.loaded.setdefault(program, set()).update(((offsets - GUARD) // self.tile_bytes).tolist())

    def report(self, out, trace):
        changed = [name for name in NAMES if not torch.equal(self.tensors[name], self.before[name])]
        return {"lists_changed": changed, "bits_loaded": [[p, sorted(places)] for p, places in self.loaded.items()]}


def build(function, request, device):
    """Call a builder on the mask in mask.bin; returns the parts of its Tiles, described, their bytes in a file."""
    with open("mask.bin", "rb") as file:
        seen = torch.frombuffer(bytearray(file.read()), dtype=torch.bool).view(request["shape"]).to(device)
    block_q, block_k = request["block"]
    builder, watch = getattr(module_of(request), request["builder"]), Allocations()
    with watch, torch.no_grad():
        if request["builder"] == "tiles_of_mask":
            tiles = builder(seen, block_q, block_k)
        else:
            queries, keys = seen.shape
            tiles = builder(lambda q_pos, k_pos: seen[q_pos][:, k_pos], queries, keys, block_q, block_k, device=device)
    parts = [getattr(tiles, name, None) for name in NAMES]
    plain = {name: getattr(tiles, name, None) for name in PLAIN}
    return {
        "type": type(tiles).__name__,
        "outputs": outputs.write(parts, device),
        "plain": {name: value if isinstance(value, int) else str(value) for name, value in plain.items()},
        "broken_fences": watch.broken_fences(),
    }
