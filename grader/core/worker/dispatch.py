"""Inside a child: a dispatch mode of PyTorch's that starts fast."""

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):
    """A mode that does not import torch.compile, a second's worth, at the first operation."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
