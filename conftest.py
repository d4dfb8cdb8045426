"""What all tests of the repository share: which of them a machine can run, and what a run may leave out."""

import pytest

PASSED = "course/passed"  # in pytest's cache: the tests that passed in the last run


def pytest_addoption(parser):
    parser.addoption("--none-left-out", action="store_true", help="fail where a test was skipped that needs no GPU")
    parser.addoption("--not-again", action="store_true", help="leave out the tests that passed in the last run")


def pytest_configure(config):
    if hasattr(config, "workerinput"):  # one of several processes side by side: a core each
        import torch

        torch.set_num_threads(1)


def pytest_collection_modifyitems(config, items):
    import torch

    if config.option.not_again:
        passed = set(config.cache.get(PASSED, []))
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU"))


def reason(report):
    """Why a test, or a whole file of tests, was skipped."""
    return report.longrepr[2].removeprefix("Skipped: ")


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session):
    """`make test-all` promises that everything ran: a test that was skipped without need of a GPU fails the run."""
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:  # one of several processes
        return
    session.config.cache.set(PASSED, [report.nodeid for report in reporter.stats.get("passed", [])])
    if not session.config.option.none_left_out:
        return
    left_out = [report for report in reporter.stats.get("skipped", []) if "GPU" not in reason(report)]
    if left_out:
        reporter.write_line(f"\n{len(left_out)} tests were left out, and not for want of a GPU:", red=True)
        for report in left_out:
            reporter.write_line(f"  {report.nodeid}: {reason(report)}")
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
