"""Inside a child: what came back, described, and its raw bytes in a file."""

import os

import torch


def write(outputs, device):
    """Write the bytes of the outputs that are plain tensors on `device`; returns the descriptions."""
    described = [describe(output) for output in outputs]
    # A link that the submission left there is not followed: it may lead to a file that is not its own.
    with open("outputs.bin", "wb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o644)) as file:
        for output, words in zip(outputs, described, strict=True):
            if words["plain"] and words["device"] == device:
                file.write(raw_bytes(output.detach()))
    return described


def describe(tensor):
    if not isinstance(tensor, torch.Tensor):  # what a program returns that is no tensor is named by its type
        return {"plain": False, "type": tensor["type"] if isinstance(tensor, dict) else type(tensor).__name__}
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
    return {
        "plain": plain,
        "type": type(tensor).__name__,
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "device": tensor.device.type,
    }


def raw_bytes(tensor):
    # One row of stride 1, whatever the tensor's strides are; on the CPU, whatever the module set as default device.
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype, device="cpu")
    flat.copy_(tensor.reshape(-1))
    return flat.view(torch.uint8).numpy().tobytes()
