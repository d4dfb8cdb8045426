"""Inside a child: the lines of the submission's own file that run now."""

import sys
from collections.abc import Iterator
from types import FrameType


def frames_of(file: str) -> Iterator[FrameType]:
    """The frames that run code of this file now, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame:
        if frame.f_code.co_filename == file:
            yield frame
        frame = frame.f_back


def running_line(file: str) -> int | None:
    """The innermost line of this file that runs now, or None."""
    return next((frame.f_lineno for frame in frames_of(file)), None)
