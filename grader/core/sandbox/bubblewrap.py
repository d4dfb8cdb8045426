"""What a submission can see and reach: the command of bubblewrap around the sandbox process, or why there is none.

Inside are the interpreter, the system's libraries, the files of its role and, for a recorder, the submission, all
read-only, and one folder to write in; no network, no other process, no other file of the grader's.
"""

import contextlib
import functools
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from grader.core.sandbox.scratch import PLACE
from grader.core.worker import system_calls

ROOT = Path(__file__).resolve().parents[3]
SWITCH = "GRADER_SANDBOX"  # "none" in the environment: no bubblewrap, also where it works
PRIVATE = 256 << 20  # bytes of /tmp and of /dev/shm inside
SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
# Of /usr what Python, a C compiler and ptxas need.
USR_FOLDERS = (
    "bin", "lib", "lib32", "lib64", "libx32", "libexec", "include", "local/bin", "local/lib", "local/include",
)  # fmt: skip
HIDDEN = {ROOT}  # folders of the grader's that nobody sees, whatever above them is shown
REPOSITORY = ("solutions", "kernels", "grader", "classroom", "kinds")  # its folders that no submission sees
HIDDEN_BYTES = 1 << 16  # of what stands in their place
ETC_FILES = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime")
GPU_FILES = ("/proc/driver/nvidia", "/sys", "/etc/OpenCL", "/run/nvidia-persistenced")
UIDS = range(61184, 65520)  # what systemd keeps for users that live as long as a service: nobody's files are theirs

# Where a user's programs note what is no more than a convenience (XDG Base Directory Specification, "cache").
NOTES = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "sandbox-notes"
WARNING = "grader: no sandbox: make doctor says what that means"
UNPROTECTED = (
    "submissions can read files, use the network and see other processes as you can; limits on time, memory, processes "
    "and file size hold"
)


def find_obstacle(device: str = "cpu") -> str | None:
    """Why submissions are not in a sandbox here, as part of a sentence; None where they are."""
    if is_switched_off():
        return f"{SWITCH}=none switches it off"
    tool = shutil.which("bwrap")
    if tool is None:
        return "bubblewrap is not installed: apt install bubblewrap"
    return try_out(tool, device)


def is_switched_off() -> bool:
    return os.environ.get(SWITCH) == "none"


@functools.cache
def try_out(tool: str, device: str) -> str | None:
    """Why nothing runs in bubblewrap here (user namespaces are often forbidden in containers), or None.

    On a GPU the trial is that CUDA finds it from inside: a sandbox without the GPU would fail every submission.
    """
    try:
        done = run(device, [sys.executable, "-I", "-S", "-c", TRY[device == "cuda"]])
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        why = lines[-1][:200] if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        why = str(error)
    return f"bubblewrap does not work here: {why}" if why else None


def run(device: str, program: list[str], read_only: Sequence[str | Path] = ()) -> subprocess.CompletedProcess[str]:
    """A program inside, to its end; raises OSError and TimeoutExpired."""
    whole = command(device, read_only) + program
    return subprocess.run(whole, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


def find_leaks(device: str = "cpu") -> list[str]:
    """What is possible inside and should not be: [words]; each is tried. Raises OSError and TimeoutExpired."""
    if why := system_calls.missing():
        return [why]
    place = Path(system_calls.__file__)
    done = run(device, [sys.executable, "-I", "-B", str(place)], [place.parent])
    if done.returncode:
        return [f"the attempts did not run: {done.stderr.strip()[-200:]}"]
    return [name for name, found in json.loads(done.stdout).items() if found is not None]


TRY = (
    "pass",
    "import ctypes, sys\n"
    "try: sys.exit(ctypes.CDLL('libcuda.so.1').cuInit(0) and 'CUDA does not find the GPU from inside')\n"
    "except OSError as error: sys.exit(f'CUDA does not find its driver from inside: {error}')",
)


def new_warning(device: str = "cpu") -> str | None:
    """One line for the person who grades where submissions are not in a sandbox, said once a machine; else None.

    `make doctor` says all of it. The line is said again for another reason, and where it cannot be noted.
    """
    why, noted = find_obstacle(device), NOTES / f"no-sandbox-{platform.node()}-{device}"
    if why is None or not noted.is_absolute():  # a user without a home
        return why and WARNING
    with contextlib.suppress(OSError):
        if noted.is_file() and noted.read_text(encoding="utf-8") == why:
            return None
        noted.parent.mkdir(parents=True, exist_ok=True)
        noted.write_text(why, encoding="utf-8")
    return WARNING


def command(device: str, read_only: Sequence[str | Path], scratch_bytes: int | None = None) -> list[str]:
    """The beginning of the command that runs a program inside; these folders keep their places.

    scratch_bytes: the size of a folder to write in, where there is one.

    The program is process 1 there: when it ends, all others are killed, and none of them can signal it.
    """
    tool = shutil.which("bwrap") or "bwrap"
    arguments = [tool, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    arguments += ["--unshare-cgroup-try"]
    arguments += ["--die-with-parent", "--as-pid-1", "--hostname", "grade"]
    if os.geteuid() == 0:  # it stays root to end the children, which are not; it can change nothing outside
        arguments += ["--cap-drop", "ALL"]
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_KILL"):
            arguments += ["--cap-add", capability]
    else:
        arguments += ["--unshare-user", *(["--disable-userns"] if has_option(tool, "--disable-userns") else [])]
    arguments += ["--dev", "/dev", "--proc", "/proc"]
    for place in ("/tmp", "/dev/shm"):
        arguments += ["--perms", "1777", "--size", str(PRIVATE), "--tmpfs", place]
    for place in system_folders():
        if os.path.islink(place):
            arguments += ["--symlink", os.readlink(place), place]
        elif os.path.isdir(place):
            arguments += [*make_parents(Path(place)), "--ro-bind", place, place]
    for name in ETC_FILES:
        arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    arguments += show_gpu() if device == "cuda" else []
    arguments += show_folders([*python_folders(), *read_only])
    if scratch_bytes:
        arguments += ["--perms", "0711", "--size", str(scratch_bytes), "--tmpfs", PLACE]
    return [*arguments, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/", "--"]


def system_folders() -> list[str]:
    """The folders of the system that are shown, as far as they are there."""
    return [place for place in (*SYSTEM, *(f"/usr/{name}" for name in USR_FOLDERS)) if os.path.lexists(place)]


@functools.cache
def has_option(tool: str, option: str) -> bool:
    return option in subprocess.run([tool, "--help"], capture_output=True, text=True).stdout


def hide(folder: str | Path) -> None:
    """Show nothing of this folder to any process that starts from now on, but what it is given by name."""
    HIDDEN.add(Path(os.path.abspath(folder)))


def show_folders(folders: Iterable[str | Path]) -> list[str]:
    """Read-only, the outer before the inner; of a hidden folder below one of them only what is named of it is seen.

    Where the repository itself is named, its parts are hidden.
    """
    shown = {Path(os.path.abspath(folder)) for folder in folders}
    hidden = (HIDDEN | {root / name for root in HIDDEN & shown for name in REPOSITORY}) - shown
    visible = [*shown, *map(Path, system_folders())]
    arguments: list[str] = []
    for place in sorted(shown | hidden, key=lambda place: len(place.parts)):
        if place in shown:
            arguments += [*make_parents(place), "--ro-bind", str(place), str(place)]
        elif place.is_dir() and any(place.is_relative_to(above) for above in visible):
            arguments += ["--size", str(HIDDEN_BYTES), "--tmpfs", str(place)]
    return arguments


def make_parents(place: Path) -> list[str]:
    """The folders above this one, open to the user that a child becomes."""
    return [word for above in [*place.parents][-2::-1] for word in ("--perms", "0755", "--dir", str(above))]


def python_folders() -> list[str]:
    """The folders of this Python, of its environment and of the libraries that it is told of; never the repository."""
    named = [sys.prefix, sys.base_prefix, sys.exec_prefix, *outside_paths()]
    named += os.environ.get("LD_LIBRARY_PATH", "").split(":")
    named += [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH", "ROCM_PATH")]
    link = Path(sys.executable)
    while link.is_symlink():  # python -> python3 -> another folder's python3.11
        named.append(str(link.parent.parent))
        link = link.parent / os.readlink(link)
    folders = {os.path.abspath(name) for name in named if name and os.path.isdir(name)}
    folders |= {os.path.realpath(folder) for folder in folders}
    kept: list[str] = []
    for folder in sorted(folders):  # a folder comes before those in it
        inside = any(Path(folder).is_relative_to(known) for known in (*system_folders(), *kept))
        # /usr, where Debian's own Python is, holds what is shown already, and more.
        wide = any(Path(place).is_relative_to(folder) for place in (str(ROOT), *system_folders()))
        if not inside and not wide:
            kept.append(folder)
    return kept


def outside_paths() -> list[str]:
    """Where the child finds torch and triton: this process's path without the grader's own folders and a course's."""
    places = [(entry, Path(entry).resolve()) for entry in sys.path if entry]
    return [entry for entry, place in places if place not in HIDDEN and not place.is_relative_to(ROOT / "grader")]


def show_gpu() -> list[str]:
    """The device nodes of the GPUs, and what their drivers read."""
    nodes = [*sorted(map(str, Path("/dev").glob("nvidia*"))), "/dev/kfd", "/dev/dri"]
    arguments = [word for node in nodes for word in ("--dev-bind-try", node, node)]
    arguments += [word for place in GPU_FILES for word in ("--ro-bind-try", place, place)]
    return arguments + [word for folder in driver_folders() for word in ("--ro-bind-try", folder, folder)]


@functools.cache
def driver_folders() -> list[str]:
    """Folders of the driver's libraries that lie outside of the system's own."""
    tool = shutil.which("ldconfig") or "/sbin/ldconfig"
    try:
        said = subprocess.run([tool, "-p"], capture_output=True, text=True).stdout
    except OSError:
        return []
    found = [line.rpartition("=> ")[2] for line in said.splitlines() if "libcuda" in line or "libnvidia" in line]
    folders = {os.path.dirname(path) for name in found for path in (name, os.path.realpath(name))}
    return sorted(
        folder for folder in folders if not any(Path(folder).is_relative_to(known) for known in system_folders())
    )


def may_be_another_user(readable: Iterable[str | Path], confined: bool) -> bool:
    """True where a child can become another user than the grader, who is root, and can read its files as that user.

    readable: folders that the child must read; in a sandbox what lies above them does not count.
    """
    return os.geteuid() == 0 and all(open_to_all(Path(os.path.realpath(folder)), confined) for folder in readable)


def open_to_all(folder: Path, alone: bool) -> bool:
    """True where every user may read what is in this folder and, unless it stands alone, may get there."""
    try:
        files = [entry for entry in os.scandir(folder) if entry.name.endswith(".py")]
        plain = [e.is_file(follow_symlinks=False) and e.stat().st_mode & 0o004 for e in files]
        above = () if alone else folder.parents
        return folder.stat().st_mode & 0o005 == 0o005 and all(plain) and all(a.stat().st_mode & 0o001 for a in above)
    except OSError:
        return False
