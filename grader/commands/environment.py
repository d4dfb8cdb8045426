"""The virtual environment behind `make`: made, checked in a blink, and mended when it is broken.

`python3 grader/commands/environment.py [EXTRA ...]`, with the standard library alone. What to install is in locks/,
which `make lock` writes from pyproject.toml: first what has hashes, then torch and triton, which find there all that
they need of Python; an extra when it is first asked for. A lock that is installed has a record in .venv/installed,
written last: whenever a set-up is stopped, the next one goes on from there. uv installs where it is found, pip where it
is not or where pip is configured, since uv does not read that.
"""

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "locks"
VENV = ROOT / ".venv"
PYTHONS = (3, 10), (3, 14)  # the oldest and the newest that the locked versions have wheels for
ALWAYS = ("base", "torch")

# Which lines of a lock hold for the Python that runs this, as NAME==VERSION.
LIST = """
import sys
from packaging.requirements import Requirement
for line in open(sys.argv[1]):
    if line[0].isalpha():
        wanted = Requirement(line.rstrip("\\\\\\n "))
        if wanted.marker is None or wanted.marker.evaluate():
            print(f"{wanted.name}{wanted.specifier}")
"""
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
    if name in ("torch", "numpy", "pytest", "rich", "jinja2", "matplotlib"):
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            sys.exit(f"{name} is not whole")
"""

# Words of venv, pip or uv where a step fails, and what that means.
FAILURES = (
    (r"No space left|Errno 28", "the disk is full: 2 GB are needed, and 8 GB where PyTorch's build brings CUDA"),
    (r"DO NOT MATCH THE HASHES|[Hh]ash mismatch", "a file is not the one that is locked: an index gives another"),
    (r"Name or service|name resolution|getaddrinfo|lookup address|NewConnectionError|[Nn]etwork is unreachable"
     r"|ProxyError|[Tt]imed? ?out|dns error|error sending request|Connection (refused|reset|broken|aborted)",
     "no package index was reached: look after the network (behind a proxy: set HTTPS_PROXY)"),
    (r"No matching distribution|no wheels|not a supported wheel", "a package has no build for this Python and system"),
    (r"Permission denied|Read-only file system", f"{ROOT} cannot be written"),
)  # fmt: skip


class Failed(Exception):
    """A step of the set-up failed; its text says why."""


def fault():
    """Why the environment must be made anew, or None."""
    if not VENV.exists():
        return "there is none yet"
    made_for = VENV / "made-for"
    if not made_for.exists():
        return "an earlier set-up did not finish"
    if made_for.read_text() != owner():
        return "Python or the folder changed since it was made"
    return missing([pin for lock in ALWAYS for pin in recorded(lock) or ()])


def owner():
    """What an environment belongs to: the interpreter, and where it lies."""
    return f"{sys.version}\n{VENV}\n"


def recorded(lock):
    """The pins that were installed by this lock as it is now, or None."""
    record = VENV / "installed" / lock
    if not record.exists():
        return None
    made_of, *pins = record.read_text().split() or [""]
    return pins if made_of == fingerprint(lock) else None


def fingerprint(lock):
    return hashlib.sha256((LOCKS / f"{lock}.txt").read_bytes()).hexdigest()


def missing(pins):
    """Which of these `name==version` pins does not hold in the environment, in words, or None."""
    try:
        probe = subprocess.run([venv_python(), "-c", PROBE, *pins], capture_output=True, text=True)
    except OSError:
        return "its Python does not start"
    lines = probe.stderr.strip().splitlines() or ["its Python does not start"]
    return lines[-1] if probe.returncode else None


def venv_python():
    return str(VENV / ("Scripts" if os.name == "nt" else "bin") / "python")


def make_venv(reason):
    print(f"setting up .venv ({reason}); this happens once, and PyTorch is large", flush=True)
    if sys.platform != "linux":
        print(
            "Triton has no wheel for this system: only P1 and P2 work here. For the others use Linux, WSL 2, "
            "a container, or a hosted notebook (docs/students.md, 'Without Linux').",
            flush=True,
        )
    shutil.rmtree(VENV, ignore_errors=True)
    whole = importlib.util.find_spec("ensurepip") is not None
    uv = find_uv() if whole else shutil.which("uv")
    if not whole and not uv:
        raise Failed("this Python comes without venv: apt install python3-venv, or pip install uv")
    run([uv, "venv", "--quiet", "--seed", "--python", sys.executable, VENV] if uv
        else [sys.executable, "-m", "venv", VENV])  # fmt: skip
    (VENV / "installed").mkdir()
    (VENV / "made-for").write_text(owner())


def find_uv():
    """uv's path, or None where there is none or where pip is told what uv would not know."""
    configured = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    if os.environ.get("PIP_ARGS") or re.search(r"index|find-links|proxy", configured):
        return None
    return shutil.which("uv")


def install(lock):
    """Install what a lock says, and write its record."""
    remove_half_installed()
    uv = find_uv()
    pip = [uv, "pip", "install", "--python", venv_python()] if uv else \
          [venv_python(), "-m", "pip", "install", "--disable-pip-version-check"]  # fmt: skip
    hashes = [] if lock == "torch" else ["--require-hashes"]
    if hashes and not uv:  # small packages, of which pip would print hundreds of lines; torch's download shows itself
        print(f"installing {lock}", flush=True)
        pip.append("--quiet")
    file = LOCKS / f"{lock}.txt"
    run([*pip, *shlex.split(os.environ.get("PIP_ARGS", "")), *hashes, "-r", file])
    pins = subprocess.run([venv_python(), "-c", LIST, file], capture_output=True, text=True, check=True).stdout.split()
    left = missing(pins)
    if left:
        raise Failed(f"{left} after it was installed: remove .venv")
    (VENV / "installed" / lock).write_text("\n".join([fingerprint(lock), *pins]))


def remove_half_installed():
    """Let what an installer was stopped at be installed again: these two files of a package are written last."""
    for folder in VENV.glob("lib*/python*/site-packages/*.dist-info"):
        if not (folder / "RECORD").exists() or not (folder / "INSTALLER").exists():
            shutil.rmtree(folder)


def run(command):
    """Run a step; what it says is shown as it comes, and what a failure means is looked for in its errors."""
    said = []
    with subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True, errors="replace") as step:
        for line in step.stderr:
            said.append(line)
            print(line, end="", file=sys.stderr, flush=True)
    if step.returncode:
        known = (meaning for words, meaning in FAILURES if re.search(words, "".join(said)))
        raise Failed(next(known, "the installer's own words are above"))


def add_extra(extra):
    """Add an extra to a whole environment, and the repository to its path: notebooks import grader/ from any folder."""
    pins = recorded(extra)
    reason = missing(pins) if pins else "not there yet"
    if reason is None:
        return
    print(f"adding what `make {extra}` needs to .venv ({reason}); this happens once", flush=True)
    install(extra)
    folder = subprocess.run([venv_python(), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                            capture_output=True, text=True, check=True).stdout.strip()  # fmt: skip
    (Path(folder) / "this_repository.pth").write_text(f"{ROOT}\n")


def main():
    if not PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        oldest, newest, this = (".".join(map(str, version[:2])) for version in (*PYTHONS, sys.version_info))
        sys.exit(f"Python {oldest} to {newest} is needed; this is {this}. Put another python3 first on your PATH.")
    try:
        reason = fault()
        if reason:
            make_venv(reason)
        for lock in ALWAYS:
            if recorded(lock) is None:
                install(lock)
        for extra in sys.argv[1:]:
            add_extra(extra)
    except (Failed, OSError) as error:
        meaning = next((meaning for words, meaning in FAILURES if re.search(words, str(error))), error)
        sys.exit(f"set-up failed: {meaning}. Mend that, and the same command goes on from here.")
    except KeyboardInterrupt:
        sys.exit("\nset-up stopped; the same command goes on from here")


if __name__ == "__main__":
    main()
