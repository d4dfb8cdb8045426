"""Looking inside a kernel: one case of one submission under NVIDIA Nsight Compute, as one screen of figures."""
