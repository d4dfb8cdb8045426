"""What the grader asks of a fork server inside a sandbox, and its answers, as types."""

from msgspec import Struct

from grader.core.protocol.messages import RecorderSetup, RunnerSetup


class Limits(Struct, frozen=True):
    """What a child may take; memory_bytes: None where a control group holds it. uid: the user that it becomes."""

    memory_bytes: int | None
    file_bytes: int
    processes: int
    files: int
    uid: int | None


class Fork(Struct, tag="fork"):
    """Fork a child, whose requests, output and channel are the descriptors beside this message."""

    setup: RecorderSetup | RunnerSetup
    limits: Limits


class Forked(Struct):
    """pid: the child's number inside; 0 in the first answer, to no question, once it can serve. error: why not."""

    pid: int = 0
    error: str = ""


class Look(Struct, tag="look"):
    """Say how a child is. signal: send this one to its process group first. end: first kill all that came of it."""

    pid: int
    signal: int | None = None
    end: bool = False


class Looked(Struct):
    """status: the exit status of the child, negative for a signal, None while it lives.

    programs: the names of all that run for it, itself among them.
    """

    status: int | None
    programs: list[str]
