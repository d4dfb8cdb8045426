"""The virtual environment behind `make`: made the first time, and kept as locks/ says.

`python3 grader/commands/environment.py [EXTRA ...]`, with the standard library alone: nothing is installed yet. pip
installs first what has hashes, then torch and triton, which find there all that they need of Python, and an extra when
it is first asked for. .venv/installed keeps the hash of each lock that is installed, written last: where a set-up was
stopped, or a lock has changed since, the next one goes on from there.
"""

import contextlib
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCKS, VENV = ROOT / "locks", ROOT / ".venv"
PYTHONS = (3, 10), (3, 14)  # the oldest and the newest that the locked versions have wheels for


def set_up(extras):
    """Make what is not there; raises OSError, and CalledProcessError where venv or pip fails."""
    python, made_for, owner = VENV / "bin" / "python", VENV / "made-for", f"{sys.version}\n{VENV}\n"
    if not (python.exists() and made_for.exists() and made_for.read_text("utf-8") == owner):
        print("setting up .venv; this happens once, and PyTorch is large", flush=True)
        if sys.platform != "linux":
            print("Triton has no wheel for this system: see docs/students.md, 'Without Linux'")
        if not find_spec("ensurepip") and not find_spec("pip"):
            raise OSError("this Python comes without venv and pip: apt install python3-venv")
        shutil.rmtree(VENV, ignore_errors=True)
        without_pip = [] if find_spec("ensurepip") else ["--without-pip"]
        subprocess.run([sys.executable, "-m", "venv", *without_pip, VENV], check=True)
        (VENV / "installed").mkdir()
        made_for.write_text(owner, "utf-8")
    for lock in ("base", "torch", *extras):
        record, made_of = VENV / "installed" / lock, hashlib.sha256((LOCKS / f"{lock}.txt").read_bytes()).hexdigest()
        if not record.exists() or record.read_text("utf-8").split()[:1] != [made_of]:
            install(lock, python)
            record.write_text(made_of, "utf-8")


def install(lock, python):
    """Have pip install what a lock says."""
    (packages,) = VENV.glob("lib/python*/site-packages")
    for folder in packages.glob("*.dist-info"):  # what pip was stopped at lacks the files that it writes last
        if not (folder / "RECORD").exists() or not (folder / "INSTALLER").exists():
            shutil.rmtree(folder)
    own = python.with_name("pip").exists()
    pip = [python, "-m", "pip"] if own else [sys.executable, "-m", "pip", "--python", python]
    hashes = [] if lock == "torch" else ["--require-hashes"]
    given = shlex.split(os.environ.get("PIP_ARGS", ""))
    options = ["--disable-pip-version-check", *given, *hashes, "-r", LOCKS / f"{lock}.txt"]
    run_quietly(f"installing {lock}", [*pip, "install", *options])
    if lock not in ("base", "torch"):  # notebooks import grader/ from any folder
        (packages / "this_repository.pth").write_text(f"{ROOT}\n", "utf-8")


def run_quietly(doing, command):
    """Run a program while one line says what it does and for how long; if it fails, show its words and raise."""
    live, started = sys.stdout.isatty(), time.monotonic()
    print(doing, end="", flush=True)
    with tempfile.TemporaryFile() as words:
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=words, stderr=subprocess.STDOUT) as process:
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(1)
                if live:
                    print(f"\r{doing}: {time.monotonic() - started:.0f} s", end="", flush=True)
        print("" if live else f": {time.monotonic() - started:.0f} s", flush=True)
        if process.returncode:
            words.seek(0)
            print(words.read().decode(errors="replace"), end="", file=sys.stderr, flush=True)
            raise subprocess.CalledProcessError(process.returncode, command)


def main():
    oldest, newest, this = (".".join(map(str, version[:2])) for version in (*PYTHONS, sys.version_info))
    if not PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        sys.exit(f"Python {oldest} to {newest} is needed; this is {this}. Put another python3 first on your PATH.")
    try:
        set_up(sys.argv[1:])
    except (subprocess.CalledProcessError, OSError) as error:
        why = error if isinstance(error, OSError) else "the words above say why"
        sys.exit(f"set-up failed: {why}. Mend that, and the same command goes on from here.")
    except KeyboardInterrupt:
        sys.exit("\nset-up stopped; the same command goes on from here")


if __name__ == "__main__":
    main()
