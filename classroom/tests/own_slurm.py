"""A real Slurm of a test's own on this machine: one node of two CPUs, everything of it in one folder, no accounting.

Jobs in `urgent` take the node from all others: those in `spare` are cancelled for it, those in `normal` and `brief` put
back into the queue where they allow that. Where this machine lets root make control groups, the kernel ends what takes
more memory than its job asked for (`holds_memory`).
"""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo", "scontrol")
START_SECONDS = 30
GROUPS = Path("/sys/fs/cgroup")  # of version 1, each controller in a folder of its own
PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/{proctrack}
TaskPlugin=task/{task}
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=1
{patience}
MinJobAge=30
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=64000 State=UNKNOWN
PartitionName=normal Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=brief Nodes=ALL MaxTime=1 State=UP
PartitionName=spare Nodes=ALL PreemptMode=CANCEL State=UP
PartitionName=urgent Nodes=ALL PriorityTier=9 PreemptMode=OFF State=UP
"""
CGROUP_CONF = "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nConstrainRAMSpace=yes\n"
PATIENT, IMPATIENT = "SlurmdTimeout=10", "SlurmdTimeout=2\nMessageTimeout=2\nTCPTimeout=1"


class NoSlurm(Exception):
    """Slurm is not installed, or does not start; the text says which."""


class OwnSlurm:
    """Daemons as children of this process; with the `with` statement they all end, and all that they started.

    patient: whether it waits long for a node that says nothing. One that does not makes no control groups: it may run
    beside another, and both would call them the same.
    """

    def __init__(self, folder, patient=True):
        self.folder, self.daemons, self.logs = Path(folder), {}, []
        self.patience = PATIENT if patient else IMPATIENT
        self.holds_memory = (
            patient
            and os.geteuid() == 0
            and all(os.access(GROUPS / name / "cgroup.procs", os.W_OK) for name in ("memory", "freezer", "cpuset"))
        )
        missing = [name for name in PROGRAMS if not shutil.which(name, path=PATH)]
        if missing:
            raise NoSlurm(f"{', '.join(missing)} not installed (Debian: slurm-wlm, munge)")

    def __enter__(self):
        try:
            self.start_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start_all(self):
        for name in ("munge", "state", "spool"):
            (self.folder / name).mkdir(mode=0o755)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        self.configure()
        self.environment = {**os.environ, "SLURM_CONF": str(self.conf), "PATH": PATH}
        paths = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        flags = [f"--{flag}={self.folder}/munge/{name}" for flag, name in paths.items()]
        self.start("munged", "--foreground", "--force", f"--key-file={key}", *flags)
        self.wait(lambda: (self.folder / "munge" / "socket").exists())
        self.start("slurmctld", "-D", "-c", "-f", str(self.conf))
        self.wait(lambda: self.ask("scontrol", "ping").returncode == 0)
        self.start_node()

    def configure(self):
        host = socket.gethostname().partition(".")[0]
        tracks = "linuxproc" if os.geteuid() == 0 else "pgid"
        plugins = ("cgroup", "cgroup") if self.holds_memory else (tracks, "none")
        of = {"host": host, "ports": free_ports(2), "user": pwd.getpwuid(os.geteuid()).pw_name, "folder": self.folder}
        of |= {"patience": self.patience, "proctrack": plugins[0], "task": plugins[1]}
        self.conf = self.folder / "slurm.conf"
        self.conf.write_text(CONF.format(**of), "utf-8")
        (self.folder / "cgroup.conf").write_text(CGROUP_CONF, "utf-8")

    def start(self, name, *arguments, before=()):
        log = (self.folder / f"{name}.log").open("ab")
        self.logs.append(log)
        program = shutil.which(name, path=PATH)
        self.daemons[name] = subprocess.Popen(
            [*before, program, *arguments], env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )

    def start_node(self, before=()):
        self.start("slurmd", "-D", "-f", str(self.conf), before=before)
        self.wait(lambda: {"idle", "mixed"} & set(self.ask("sinfo", "-h", "-o", "%T").stdout.split()))

    def stop(self, name, number=signal.SIGTERM):
        daemon = self.daemons.pop(name)
        daemon.send_signal(number)
        try:
            daemon.wait(10)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def lose_node(self):
        """As if its power were cut: daemon, guardians and jobs end at once. Returns when Slurm has noticed."""
        self.stop("slurmd", signal.SIGKILL)
        for pid in self.left():
            with contextlib.suppress(OSError):
                of_job = b"SLURM_JOB_ID=" in Path(f"/proc/{pid}/environ").read_bytes()
                if of_job or Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == "slurmstepd":
                    os.kill(pid, signal.SIGKILL)
        self.wait(lambda: "down" in self.ask("sinfo", "-h", "-o", "%T").stdout)

    def ask(self, *command):
        program = shutil.which(command[0], path=PATH)
        return subprocess.run([program, *command[1:]], env=self.environment, capture_output=True, text=True)

    def wait(self, what):
        deadline = time.monotonic() + START_SECONDS
        while not what():
            ended = [name for name, daemon in self.daemons.items() if daemon.poll() is not None]
            if ended or time.monotonic() > deadline:
                said = {path.stem: path.read_text("utf-8", "replace")[-300:] for path in self.folder.glob("*.log")}
                raise NoSlurm(f"{', '.join(ended) or 'Slurm'} did not start: {said}")
            time.sleep(0.05)

    def __exit__(self, *exc):
        if "slurmctld" in self.daemons:
            self.ask("scancel", f"--user={pwd.getpwuid(os.geteuid()).pw_name}")
            deadline = time.monotonic() + 5
            while self.ask("squeue", "-h").stdout.strip() and time.monotonic() < deadline:
                time.sleep(0.1)
        for name in ("slurmd", "slurmctld", "munged"):
            if name in self.daemons:
                self.stop(name)
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for log in self.logs:
            log.close()
        if self.holds_memory:
            self.remove_groups()

    def remove_groups(self):
        """The empty control groups that Slurm leaves behind."""
        host = socket.gethostname().partition(".")[0]
        for folder in sorted(GROUPS.glob(f"*/slurm_{host}/**/"), reverse=True):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def left(self):
        """Processes of this Slurm that are not its daemons: what jobs left, and the steps' guardians."""
        mark, found = f"SLURM_CONF={self.folder}".encode(), []
        for path in Path("/proc").glob("[0-9]*/environ"):
            pid = int(path.parent.name)
            with contextlib.suppress(OSError):
                if pid != os.getpid() and mark in path.read_bytes():
                    found.append(pid)
        return found


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
