"""A product of matrices in tiles."""

JUDGE_VERSION = 1
