"""What the grader asks of a fork server inside a sandbox, and its answers, as types."""

from msgspec import Struct, field

from grader.core.protocol.messages import Limits, RecorderSetup, RunnerSetup


class Start(Struct, tag="start"):
    """Import what the device needs."""

    device: str


class Started(Struct):
    """error: why it cannot serve, or empty."""

    error: str = ""


class Fork(Struct, tag="fork"):
    """Fork a child, whose requests, output and channel are the descriptors beside this message."""

    setup: RecorderSetup | RunnerSetup
    limits: Limits


class Forked(Struct):
    pid: int


class AskStatus(Struct, tag="status"):
    pid: int


class Status(Struct):
    """The exit status of a child, negative for a signal; None while it lives."""

    status: int | None = None


class Signal(Struct, tag="signal"):
    """Send a signal to a child's process group."""

    pid: int
    number: int


class AskPrograms(Struct, tag="programs"):
    pid: int


class Programs(Struct):
    """The names of the programs that run for a child, itself among them."""

    names: list[str] = field(default_factory=list)


class End(Struct, tag="end"):
    """Kill a child and all that it started."""

    pid: int


class Ended(Struct):
    gone: bool


class Done(Struct):
    """The fork server has done what was asked, and has nothing to answer."""


ServerRequest = Start | Fork | AskStatus | Signal | AskPrograms | End
ServerReply = Started | Forked | Status | Programs | Ended | Done
