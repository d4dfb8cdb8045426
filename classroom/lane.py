"""The process of one lane: python -m classroom.lane grades jobs, each in a fork of its own.

What every submission needs, torch and the right answers among it, is there before the fork: paid once a lane. It is
asked as core/sandbox/child.py asks: {"job": PATH}, a file with a jobs.Job. The reply is {"status": of the fork}; what
is printed goes to standard error. It ends when its standard input does, and the fork takes its children with it:
nothing outlives the command that started it, however that ended.
"""

import gc
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, NoReturn


def serve(
    grade: Callable[[list[str]], int], get_ready: Callable[[str], None], renew: Callable[[], Any] | None = None
) -> None:
    """grade: [the job's file] -> an exit status, in a fork. get_ready: before it. renew: after a loss."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        job = json.loads(line)["job"]
        get_ready(job)
        gc.freeze()  # the fork's collector need not walk, and copy, what is here already
        pid = os.fork()
        if pid == 0:
            replies.close()
            attend(grade, [job])
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status and renew:
            renew()
        print(json.dumps({"status": status}), file=replies, flush=True)


def attend(grade: Callable[[list[str]], int], files: list[str]) -> NoReturn:
    """In the fork: grade one job, and never return."""
    status = 1
    try:
        threading.Thread(target=end_with_the_lane, daemon=True).start()
        status = grade(files)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def end_with_the_lane() -> None:
    """Wait for the end of standard input, where nothing more is asked before the fork has ended; then end it."""
    while os.read(0, 1 << 10):
        pass
    if pool := sys.modules.get("grader.core.sandbox.pool"):
        pool.close_all()
    os._exit(3)


def main() -> None:
    from classroom import one
    from grader.core.sandbox import pool

    # What was lost may have left its runner in the middle of something.
    serve(one.main, one.get_ready, pool.renew)


if __name__ == "__main__":
    main()
