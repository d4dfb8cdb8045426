"""The tests' submissions trust each other: one sandbox process for all of them, where a class has one for each."""

import pytest

from grader.processes import sandboxes


@pytest.fixture(autouse=True, scope="session")
def one_warm_process(tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    folder.chmod(0o755)
    sandboxes.TRUSTING[:] = [folder]
    yield
    sandboxes.close_all()


@pytest.fixture(autouse=True)
def readable(request):
    """A child is another user where the tests are run by root."""
    if "tmp_path" in request.fixturenames:
        request.getfixturevalue("tmp_path").chmod(0o755)
