"""Weights and the model's shape in a file of the format safetensors, read as data alone.

The file is 8 bytes with the header's length, the header in JSON ({name: dtype, shape, data_offsets}), then the bytes of
the tensors. Source: the format's description in github.com/huggingface/safetensors.
"""

import json
import math
from dataclasses import asdict
from pathlib import Path

import torch

from model.transformer import Shape, Transformer

DTYPES = {"F16": torch.float16, "F32": torch.float32}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
FOLDER = Path(__file__).with_name("weights")
VARIANTS = {"full": Shape(), "learned_sinks": Shape(learned_sinks=True)}


class BadWeights(Exception):
    """A file of weights that cannot be used; the text is one sentence."""


def save(path, model):
    """Write a model's weights, float16 but for vectors, and its shape."""
    header, parts, end = {"__metadata__": {"shape": json.dumps(asdict(model.shape))}}, [], 0
    for name, weight in model.state_dict().items():
        kept = weight.detach().cpu().to(torch.float16 if weight.dim() > 1 else torch.float32).contiguous()
        parts.append(kept.view(torch.uint8).numpy().tobytes())
        start, end = end, end + len(parts[-1])
        header[name] = {"dtype": NAMES[kept.dtype], "shape": list(kept.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


def read(path):
    """({name: tensor}, Shape) of a file; raises BadWeights."""
    try:
        data = bytearray(Path(path).read_bytes())
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:start])
        shape = Shape(**json.loads(header.pop("__metadata__")["shape"]))
        return {name: tensor(data, start, **about) for name, about in header.items()}, shape
    except FileNotFoundError:
        raise BadWeights(f"{path} is not there: python -m model.train writes it") from None
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise BadWeights(f"{path} has no weights of this model: {error}") from None


def tensor(data, start, dtype, shape, data_offsets):
    """One tensor of the file's bytes, as a copy."""
    first, end = data_offsets
    count = math.prod(shape)
    if end - first != count * DTYPES[dtype].itemsize:
        raise ValueError(f"{end - first} bytes for {count} elements of {dtype}")
    return torch.frombuffer(data, dtype=DTYPES[dtype], count=count, offset=start + first).reshape(shape).clone()


def load(name="full", device="cpu"):
    """A trained model, ready to answer: its name, or the path of a file; raises BadWeights."""
    path = FOLDER / f"{name}.safetensors" if name in VARIANTS else Path(name)
    state, shape = read(path)
    model = Transformer(shape)
    try:
        model.load_state_dict({name: weight.float() for name, weight in state.items()})
    except RuntimeError as error:
        raise BadWeights(f"{path} has no weights of this model: {error}") from None
    return model.to(device).eval().requires_grad_(False)
