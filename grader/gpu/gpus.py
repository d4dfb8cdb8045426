"""GPUs that kernels can be compiled for, whether they are here or not: their names and limits, as plain data."""

from grader.core.protocol.messages import Gpu

# Limits: CUDA C++ programming guide, table "Technical specifications per compute capability"; AMD's CDNA ISA guides.
GPUS = {
    gpu.target: gpu
    for gpu in (
        Gpu("sm_75", "NVIDIA T4", "cuda", 75, 32, 65536, 40),
        Gpu("sm_80", "NVIDIA A100", "cuda", 80, 32, 166912, 108),
        Gpu("sm_86", "NVIDIA A10", "cuda", 86, 32, 101376, 72),
        Gpu("sm_89", "NVIDIA L4", "cuda", 89, 32, 101376, 58),
        Gpu("sm_90", "NVIDIA H100", "cuda", 90, 32, 232448, 132),
        Gpu("sm_100", "NVIDIA B200", "cuda", 100, 32, 232448, 148),
        Gpu("sm_120", "NVIDIA RTX 5090", "cuda", 120, 32, 101376, 170),
        Gpu("gfx90a", "AMD Instinct MI250X", "hip", "gfx90a", 64, 65536, 110),
        Gpu("gfx942", "AMD Instinct MI300X", "hip", "gfx942", 64, 65536, 304),
        Gpu("gfx950", "AMD Instinct MI350X", "hip", "gfx950", 64, 163840, 256),
    )
}
DEFAULT = ("sm_80", "sm_90")
