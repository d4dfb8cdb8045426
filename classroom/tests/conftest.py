"""As the grader's own tests: warm processes that all share, answers that are kept, folders that a child can read."""

from grader.tests.conftest import answers_are_kept, one_warm_process, readable  # noqa: F401
