"""The system calls that no submission may make: a filter made by libseccomp, which bubblewrap loads, or we without it.

Refused is what reaches past the process itself: keys of the user, new namespaces, mounts, other processes' memory,
memory and queues that outlive it, sockets to the machine's host, and the kernel's larger interfaces. All else is
allowed: torch and CUDA use most of it.
"""

import ctypes
import errno
import functools
import os
from collections.abc import Callable

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
NO_NEW_PRIVILEGES, SET_SECCOMP, SECCOMP_FILTER = 38, 22, 2  # of prctl
INSTRUCTION_BYTES = 8  # of a filter


@functools.cache
def missing() -> str | None:
    """Why there is no filter here, as part of a sentence; None where there is one."""
    try:
        program()
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        return f"pyseccomp or libseccomp does not work here: {str(error).splitlines()[0][:200]}"
    return None


@functools.cache
def program() -> bytes:
    """The filter as the kernel takes it; raises ImportError or OSError where there is no libseccomp."""
    import pyseccomp as seccomp

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
    with os.fdopen(os.memfd_create("filter"), "w+b") as file:
        rules.export_bpf(file)
        file.flush()
        file.seek(0)
        return file.read()


def number(name: str) -> int | None:
    """The number of a system call on this machine, or None where it has none of that name."""
    import pyseccomp as seccomp

    try:
        found = seccomp.resolve_syscall(seccomp.Arch.NATIVE, name)
    except (ValueError, OSError):
        return None
    found = int(found)
    return found if found >= 0 else None


def as_file() -> int | None:
    """A new descriptor from which the filter can be read, or None where there is none."""
    if missing():
        return None
    descriptor = os.memfd_create("filter")
    os.write(descriptor, program())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


class FilterProgram(ctypes.Structure):
    """struct sock_fprog"""

    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_char_p))  # which keeps the bytes alive


def prepare(confined: bool) -> Callable[[], None] | None:
    """A function to be called in a fork, before the fork becomes another program; None where there is no filter.

    The function takes the keys of the user's session away from the process. It also loads the filter where there is no
    sandbox: bubblewrap would load the filter itself. Nothing may be imported between a fork and the other program, so
    `prepare` finds all that the function needs.
    """
    if missing():
        return None
    library, join, rules = ctypes.CDLL(None), number("keyctl"), program()
    filter = FilterProgram(len(rules) // INSTRUCTION_BYTES, rules)

    def prepared() -> None:
        library.syscall(join, JOIN_SESSION_KEYRING, None)
        if not confined:
            library.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
            library.prctl(SET_SECCOMP, SECCOMP_FILTER, ctypes.byref(filter), 0, 0)

    return prepared
