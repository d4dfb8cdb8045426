"""The system calls that no submission may make. A sandbox process has libseccomp load the filter into itself before it
imports anything else; all that it forks inherits the filter, and nothing takes it back.

Refused is what reaches past the process itself: keys of the user, new namespaces, mounts, other processes' memory,
memory and queues that outlive it, sockets to the machine's host, and the kernel's larger interfaces. All else is
allowed: torch and CUDA use most of it. Run as a program, this file tries what must be refused and prints a JSON
object, {attempt: None where it was refused, else what came of it}.
"""

import ctypes
import ctypes.util
import errno
import functools
import json
import os
from typing import Any

REFUSED = (
    "keyctl", "add_key", "request_key", "unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "open_tree",
    "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "ptrace", "process_vm_readv",
    "process_vm_writev", "pidfd_getfd", "bpf", "perf_event_open", "io_uring_setup", "io_uring_enter",
    "io_uring_register", "userfaultfd", "open_by_handle_at", "kexec_load", "kexec_file_load", "init_module",
    "finit_module", "delete_module", "swapon", "swapoff", "acct", "quotactl", "reboot", "vhangup", "shmget", "msgget",
    "semget", "mq_open",
)  # fmt: skip
FAMILIES = (17, 38, 40, 44)  # of sockets: packets, the kernel's ciphers, the host of a virtual machine, XDP
# Flags of clone: new namespaces of mounts, cgroups, names, messages, users, processes, networks and times.
NAMESPACES = (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x80)
TIOCSTI, TIOCLINUX = 0x5412, 0x541C  # of ioctl: they type into a terminal
JOIN_SESSION_KEYRING = 1
NEW_USERS, FORK = 0x10000000, 17
# A call whose arguments are wrong on purpose: refused is another error than wrong.
ARGUMENTS = {
    "unshare": (NEW_USERS,), "clone": (NEW_USERS | FORK, 0, 0, 0, 0), "clone3": (0, 0), "keyctl": (0, -3, 0),
    "mount": (0, 0, 0, 0, 0), "ptrace": (0, 0, 0, 0), "setns": (-1, 0),
}  # fmt: skip
WRITES = ("/", "/dev", "/usr", "/etc")
C = ctypes.CDLL(None, use_errno=True)
C.syscall.restype = ctypes.c_long


@functools.cache
def missing() -> str | None:
    """Why there is no filter here, as part of a sentence; None where there is one."""
    try:
        make_filter()
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        return f"pyseccomp or libseccomp does not work here: {str(error).splitlines()[0][:200]}"
    return None


def restrict() -> None:
    """Take the keys of the user's session away from this process, and refuse the calls; raises where it cannot be."""
    C.syscall(number("keyctl"), JOIN_SESSION_KEYRING, None)
    make_filter().load()


def libseccomp() -> Any:
    """The module; raises ImportError or OSError where there is no libseccomp."""
    usual = ctypes.util.find_library
    # It would ask programs of the system where the library is, and a sandbox has not all of them.
    ctypes.util.find_library = lambda name: "libseccomp.so.2" if name == "seccomp" else None
    try:
        import pyseccomp

        return pyseccomp
    finally:
        ctypes.util.find_library = usual


def make_filter() -> Any:
    seccomp = libseccomp()
    rules = seccomp.SyscallFilter(seccomp.ALLOW)
    refuse = seccomp.ERRNO(errno.EPERM)
    for name in REFUSED:
        if number(name) is not None:
            rules.add_rule(refuse, name)
    for flag in NAMESPACES:
        rules.add_rule(refuse, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, flag, flag))
    for request in (TIOCSTI, TIOCLINUX):
        rules.add_rule(refuse, "ioctl", seccomp.Arg(1, seccomp.MASKED_EQ, 0xFFFFFFFF, request))
    for family in FAMILIES:
        rules.add_rule(refuse, "socket", seccomp.Arg(0, seccomp.EQ, family))
    rules.add_rule(seccomp.ERRNO(errno.ENOSYS), "clone3")  # its flags lie in memory: the C library takes clone instead
    return rules


def number(name: str) -> int | None:
    """The number of a system call on this machine, or None where it has none of that name."""
    seccomp = libseccomp()
    try:
        found = int(seccomp.resolve_syscall(seccomp.Arch.NATIVE, name))
    except (ValueError, OSError):
        return None
    return found if found >= 0 else None


# The trial ------------------------------------------------------------------------------------------------------------


def try_call(name: str) -> int | None:
    """None where the call is refused, else a number: it was let through."""
    found = C.syscall(number(name), *map(ctypes.c_long, ARGUMENTS.get(name, (0, 0, 0, 0, 0))))
    error = ctypes.get_errno()
    if name == "clone" and found == 0:
        os._exit(0)
    refused = found == -1 and error in {errno.EPERM, errno.ENOSYS, errno.EACCES}
    return None if refused else error or found


def try_writing(folder: str) -> int | str | None:
    """None where nothing can be written into the folder."""
    path = os.path.join(folder, "made by the sandbox")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    except OSError as error:
        return None if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT) else error.errno
    os.unlink(path)
    return "it was written"


if __name__ == "__main__":
    restrict()
    calls = [name for name in (*REFUSED, "clone", "clone3") if number(name) is not None]
    tried: dict[str, int | str | None] = {f"the call {name}": try_call(name) for name in calls}
    print(json.dumps(tried | {f"writing to {folder}": try_writing(folder) for folder in WRITES}))
