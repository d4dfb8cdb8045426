"""Rows over the root of their mean square."""

JUDGE_VERSION = 1
