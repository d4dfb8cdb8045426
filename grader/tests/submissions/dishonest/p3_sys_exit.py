"""sys.exit in a call."""

import sys


def flash_attention_forward(q, k, v, is_causal=False):
    sys.exit(0)
