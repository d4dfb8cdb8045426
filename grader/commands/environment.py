"""The virtual environment behind `make`: made, checked in a blink, and mended when it is broken.

Runs under any Python 3.10+ with the standard library alone, by the Makefile: `python3 grader/commands/environment.py
[EXTRA]`. What to install is read from pyproject.toml; pip does the installing. An extra is added when it is first asked
for.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
STAMP = VENV / "complete"  # written last: its absence means a half-finished environment

PROBE = """
import importlib.metadata, importlib.util, sys
for pin in sys.argv[1:]:
    name, version = pin.split("==")
    try:
        found = importlib.metadata.version(name).split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        sys.exit(f"{name} is missing")
    if found != version:
        sys.exit(f"{name} is {found}, not {version}")
for name in ("torch", "numpy", "pytest", "rich", "jinja2", "matplotlib"):
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        sys.exit(f"{name} is not whole")
"""


def read_requirements(extra=None):
    """The pinned requirements of pyproject.toml, or those of one of its extras, as pip takes them."""
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10
        from pip._vendor import tomli as tomllib
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project["optional-dependencies"][extra] if extra else project["dependencies"]


def pins_for(python, requirements):
    """The `name==version` pins whose environment marker holds in `python`."""
    code = (
        "import sys\n"
        "from pip._vendor.packaging.requirements import Requirement\n"
        "for r in map(Requirement, sys.argv[1:]):\n"
        "    if r.marker is None or r.marker.evaluate(): print(f'{r.name}{r.specifier}')"
    )
    return subprocess.run(
        [python, "-c", code, *requirements], capture_output=True, text=True, check=True
    ).stdout.split()


def fingerprint(requirements):
    """What the environment was made from: the requirements, the interpreter, and where it lies."""
    text = "\n".join([*requirements, sys.version, str(VENV)])
    return hashlib.sha256(text.encode()).hexdigest()


def fault(requirements):
    """Why the environment cannot be used as it is, or None."""
    if not VENV.exists():
        return "there is none yet"
    if not STAMP.exists():
        return "an earlier set-up did not finish"
    recorded, *pins = STAMP.read_text().split() or [""]
    if recorded != fingerprint(requirements):
        return "pyproject.toml, Python or the folder changed since it was made"
    return missing(pins)


def missing(pins):
    """Which of these `name==version` pins does not hold in the environment, in words, or None."""
    try:
        probe = subprocess.run([venv_python(), "-c", PROBE, *pins], capture_output=True, text=True)
    except OSError:
        return "its Python does not start"
    if probe.returncode:
        lines = probe.stderr.strip().splitlines()
        return lines[-1] if lines else "its Python does not start"
    return None


def venv_python():
    return str(VENV / ("Scripts" if os.name == "nt" else "bin") / "python")


def make_venv(requirements, reason):
    """Make the environment anew; what fails is said in one sentence, and the next call starts over."""
    print(f"setting up .venv ({reason}); this happens once, and PyTorch is large", flush=True)
    if sys.platform != "linux":
        print(
            "Triton has no wheel for this system: only P1 and P2 work here. For the others use Linux, WSL 2, "
            "a container, or a hosted notebook (docs/students.md, 'Without Linux').",
            flush=True,
        )
    shutil.rmtree(VENV, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    install(requirements)
    STAMP.write_text("\n".join([fingerprint(requirements), *pins_for(venv_python(), requirements)]))


def install(requirements):
    pip = [venv_python(), "-m", "pip", "install", "--disable-pip-version-check"]
    subprocess.run([*pip, *shlex.split(os.environ.get("PIP_ARGS", "")), *requirements], check=True)


def add(extra, requirements):
    """Add an extra to a whole environment, and the repository to its path: notebooks import grader/ from any folder."""
    wanted = read_requirements(extra)
    reason = missing(pins_for(venv_python(), wanted))
    if reason is None:
        return
    print(f"adding what `make {extra}` needs to .venv ({reason}); this happens once", flush=True)
    install([*requirements, *wanted])
    folder = subprocess.run([venv_python(), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                            capture_output=True, text=True, check=True).stdout.strip()  # fmt: skip
    (Path(folder) / "this_repository.pth").write_text(f"{ROOT}\n")


def main():
    if sys.version_info < (3, 10):
        found = ".".join(map(str, sys.version_info[:2]))
        sys.exit(f"Python 3.10 or newer is needed; this is {found}. Put a newer python3 first on your PATH.")
    requirements = read_requirements()
    reason = fault(requirements)
    try:
        if reason is not None:
            make_venv(requirements, reason)
        for extra in sys.argv[1:]:
            add(extra, requirements)
    except subprocess.CalledProcessError as error:
        step = "pip install" if "pip" in error.cmd else "python -m venv"
        sys.exit(f"set-up failed in `{step}` (its own words are above); mend that and run the same command again")
    except KeyboardInterrupt:
        sys.exit("\nset-up stopped; the next `make` starts it over")


if __name__ == "__main__":
    main()
