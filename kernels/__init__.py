"""Kernels for Hopper GPUs, block-sparse and packed forms, and what puts them into a program: see README.md."""
