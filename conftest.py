"""What all tests of the repository share: which of them a machine can run, and what a run may leave out."""

import os
from collections import Counter

import pytest

# What a terminal or CI sets for people, and what is printed would follow: tests compare plain lines of the usual width.
for name in ("FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES"):
    os.environ.pop(name, None)
# What `make test PYTHON=...` hands on to any other make: a test that calls make gives it variables of its own.
for name in ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES"):
    os.environ.pop(name, None)

SLOWEST = 20  # tests that `--timings` lists
PASSED = "course/passed"  # in pytest's cache: the tests that passed in the last run
# What no package brings to a machine; a reason to skip that names one of these is fine in any run.
MACHINE = ("GPU", "control group")


def pytest_addoption(parser):
    words = "fail where a test was skipped that this machine could run"
    parser.addoption("--none-left-out", action="store_true", help=words)
    parser.addoption("--not-again", action="store_true", help="leave out the tests that passed in the last run")
    parser.addoption("--timings", action="store_true", help="list the slowest tests, and what each package takes")


def pytest_configure(config):
    if config.option.timings and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Timings())
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
    """`make test-all` promises that all ran that this machine can run: any other skipped test fails the run."""
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:  # one of several processes
        return
    if hasattr(session.config, "cache"):  # not with -p no:cacheprovider
        session.config.cache.set(PASSED, [report.nodeid for report in reporter.stats.get("passed", [])])
    if not session.config.option.none_left_out:
        return
    skipped = reporter.stats.get("skipped", [])
    left_out = [report for report in skipped if not any(word in reason(report) for word in MACHINE)]
    if left_out:
        reporter.write_line(f"\n{len(left_out)} tests were left out that this machine could run:", red=True)
        for report in left_out:
            reporter.write_line(f"  {report.nodeid}: {reason(report)}")
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


class Timings:
    """Adds up what each test takes, and says it at the end."""

    def __init__(self):
        self.seconds = Counter()

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] += report.duration

    def pytest_terminal_summary(self, terminalreporter):
        whole, packages = sum(self.seconds.values()), Counter()
        for test, seconds in self.seconds.items():
            folders = test.partition("::")[0].split("/")[:-1]
            for depth in range(1, len(folders) + 1):
                packages[tuple(folders[:depth])] += seconds
        terminalreporter.section("seconds of all processes together, by package")
        for folders, seconds in sorted(packages.items()):
            indent = "  " * (len(folders) - 1)
            terminalreporter.write_line(f"{seconds:8.1f} {seconds / max(whole, 1e-9):5.1%}  {indent}{folders[-1]}")
        terminalreporter.section(f"the {SLOWEST} slowest tests")
        for test, seconds in self.seconds.most_common(SLOWEST):
            terminalreporter.write_line(f"{seconds:8.1f}  {test}")
