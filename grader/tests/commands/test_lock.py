"""The locks hold what pyproject.toml asks for and what this needs, in the pinned versions, and name no index."""

import importlib.metadata
import re

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from grader.commands import environment
from grader.tests.support import ROOT
from locks import lock

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no reader of TOML; 3.11 says the same")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
PYTHONS = [f"3.{minor}" for minor in range(environment.PYTHONS[0][1], environment.PYTHONS[1][1] + 1)]


def locked(name, python, system="linux"):
    """{package: version} of a lock and of those that it includes, for a Python on x86_64."""
    here = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": system,
            "platform_machine": "x86_64", "os_name": "posix"}  # fmt: skip
    found = {}
    for line in (lock.LOCKS / f"{name}.txt").read_text("utf-8").splitlines():
        if line.startswith("-"):
            found |= locked(line.split()[1].removesuffix(".txt"), python, system)
        elif line[:1].isalnum():
            wanted = Requirement(line.removesuffix("\\"))
            if wanted.marker is None or wanted.marker.evaluate(here):
                version = str(wanted.specifier).removeprefix("==")
                assert found.setdefault(wanted.name, version) == version, f"{wanted.name} in two versions"
    return found


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", ["base", *EXTRAS])
def test_what_pyproject_asks_for_is_locked_in_the_version_that_it_pins(name, python):
    have = locked("torch", python) | locked(name, python)
    for direct in map(Requirement, [*PROJECT["dependencies"], *EXTRAS.get(name, [])]):
        if direct.marker is None or direct.marker.evaluate({"python_version": python, "sys_platform": "linux"}):
            assert f"=={have[canonicalize_name(direct.name)]}" == str(direct.specifier)


def test_what_is_locked_needs_nothing_that_is_not():
    """Of the packages that are installed here, in their locked versions."""
    have = {}
    for name in ("torch", "base", *EXTRAS):
        have |= locked(name, PYTHONS[1])
    for name, version in have.items():
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if package.version == version:
            needs = [need for need in map(Requirement, package.requires or []) if need.marker is None]
            assert [need.name for need in needs if canonicalize_name(need.name) not in have] == [], name


def test_all_but_torch_and_what_it_brings_has_hashes_and_no_lock_names_an_index():
    for path in lock.LOCKS.glob("*.txt"):
        text = path.read_text("utf-8")
        assert not re.search(r"index|://", text), path.name
        blocks = re.findall(r"^[a-z].*\n(?: .*\n)*", text, re.MULTILINE)
        hashed = [block for block in blocks if re.search(r"--hash=sha256:[0-9a-f]{64}$", block, re.MULTILINE)]
        assert blocks and hashed == ([] if path.stem in ("torch", "cuda") else blocks), path.name


def test_a_cpu_build_of_torch_finds_all_that_it_needs_in_the_lock_with_hashes():
    """So that nothing of Python's comes without a hash: torch is installed after it."""
    torch = importlib.metadata.distribution("torch")
    needs = [Requirement(need) for need in torch.requires or []]
    here = [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    brought = [name for name in here if not lock.WITHOUT_HASHES.match(f"{name}==")]
    base = locked("base", PYTHONS[1])
    assert brought and [name for name in brought if canonicalize_name(name) not in base] == []


def test_every_extra_has_a_lock():
    assert sorted(lock.EXTRAS) == sorted(EXTRAS)
