"""A null pointer read: Python itself dies."""

import ctypes


def flash_attention_forward(q, k, v, is_causal=False):
    ctypes.string_at(0)
