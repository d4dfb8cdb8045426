"""Every kernel of the sweep by name: the plain PyTorch forms, ours, and the peers."""

from functools import partial

from report.arms import flash_attention_4, pytorch
from report.measuring.arms import INTERPRETER, Arms, Built, NotRun
from report.places import load
from report.studies.sweep import BASELINES


def p2(point, device):
    forward = load("p2_online_softmax.py").flash_attention_forward
    return Built(lambda q, k, v: forward(q, k, v, is_causal=point.causal)[0])


def ours(module, arguments, point, device):
    """A kernel of solutions/ or kernels/; arguments: which of the mask's numbers its entry point takes."""
    if device == "cpu":
        raise NotRun(INTERPRETER)
    forward = load(module).flash_attention_forward
    values = {"is_causal": point.causal, "window_size": point.window, "sink_size": point.sinks or 0}
    return Built(partial(forward, **{name: values[name] for name in arguments}))


BUILDERS = {
    "naive per head": pytorch.per_head,
    "vectorised": pytorch.vectorised,
    "vectorised compiled": pytorch.vectorised_compiled,
    "P2": p2,
    "P3": partial(ours, "p3_flash_attention.py", ("is_causal",)),
    "P4": partial(ours, "p4_causal.py", ("is_causal",)),
    "P6": partial(ours, "p6_sliding_window.py", ("is_causal", "window_size")),
    "P7": partial(ours, "p7_sinks_and_window.py", ("is_causal", "window_size", "sink_size")),
    "fast": partial(ours, "fast_attention.py", ("is_causal", "window_size", "sink_size")),
    "SDPA flash": partial(pytorch.sdpa, "FLASH_ATTENTION"),
    "SDPA efficient": partial(pytorch.sdpa, "EFFICIENT_ATTENTION"),
    "SDPA cuDNN": partial(pytorch.sdpa, "CUDNN_ATTENTION"),
    "FlexAttention": pytorch.flex,
    "FlashAttention-4": flash_attention_4.attend,
}
# Kept on the disk.
COMPILED = frozenset(("vectorised compiled", "P3", "P4", "P6", "P7", "fast", "FlexAttention", "FlashAttention-4"))


class StudyArms(Arms):
    rounds_scores = frozenset(BASELINES)

    def build(self, name):
        return BUILDERS[name](self.point, self.device)

    def compiles(self, name):
        return name in COMPILED
