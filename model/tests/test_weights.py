"""Files of weights: what is written is read, and a file that is none is one sentence."""

import json

import pytest
import torch

from model import sdpa, weights
from model.tests.test_transformer import make, tokens_of
from model.transformer import Whole


def test_what_is_written_is_read(tmp_path):
    model = make(learned_sinks=True)
    weights.save(tmp_path / "some.safetensors", model)
    read = weights.load(tmp_path / "some.safetensors")
    assert read.shape == model.shape
    one, other = (each(tokens_of(1, 8), Whole(sdpa.attend), torch.float32) for each in (model, read))
    assert torch.allclose(one, other, atol=0.05) and not torch.equal(one, other)  # float16 rounds
    assert torch.equal(read.layers[1].sink_logits, model.layers[1].sink_logits)  # vectors stay float32


@pytest.mark.parametrize("window", [5, 55])  # headers of two lengths
def test_the_file_is_one_of_safetensors(tmp_path, window):
    path = tmp_path / "some.safetensors"
    weights.save(path, make(window_size=window))
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    del header["__metadata__"]
    ends = [about["data_offsets"] for about in header.values()]
    assert size % 8 == 0  # the tensors begin at a multiple of 8
    assert [start for start, _ in ends] == [0, *(end for _, end in ends[:-1])] and 8 + size + ends[-1][1] == len(data)


@pytest.mark.parametrize(
    "spoil", [lambda data: b"", lambda data: data[:300], lambda data: data[:-9], lambda data: b"9" * 99]
)
def test_a_spoilt_file_is_a_sentence(tmp_path, spoil):
    path = tmp_path / "some.safetensors"
    weights.save(path, make())
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(weights.BadWeights, match=r"some\.safetensors"):
        weights.load(path)


def test_the_weights_of_the_repository_are_small():
    assert sum(path.stat().st_size for path in weights.FOLDER.glob("*.safetensors")) <= 6_000_000
