"""A kind of its own, for a test and as the example of docs/a-kind-of-your-own.md: out = x + alpha * y."""

JUDGE_VERSION = 1
