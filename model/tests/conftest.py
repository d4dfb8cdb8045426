"""Modules that these tests run lie where those of the grader's own tests do: one sandbox process serves."""

from grader.tests.conftest import one_warm_process, readable  # noqa: F401
