"""Triton's interpreter, patched to compute what compiled Triton computes."""
