"""How the warm-ups w1 to w3 are asked and judged: kernels of a vector and of a matrix's rows."""

JUDGE_VERSION = 4
