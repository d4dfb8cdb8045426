"""Tests of the machine for Triton's IR, and what compares it with a GPU."""
