"""Child processes, and what belongs to them: how they are started, asked and ended, and what they may see and take.

There are four kinds of process beside the grader's own:

- A sandbox process (`server.SandboxServer`) has imported torch, and forks. Each submission has one for its recorders;
  one serves the runners of all. `pool` starts them early (`begin`), finds them (`serving`) and ends them (`renew`,
  `leave`, `close_all`).
- A sandboxed child is such a fork: `sandboxed_child.SandboxedChild(setup, load_seconds, submission)`. It takes a
  request of `protocol.messages` and gives a reply of that module. `submission.Submission` is two of them, a recorder
  and a runner, for one module.
- A trusted child is a program of ours: `child.TrustedChild(command)`. It takes a dict and gives a dict.
- `limited_call.Limited(work, seconds)` is a function of ours in a fork, for data that nobody vouches for.

Children have `call(request, seconds)`, which gives the reply, `output.take()`, what was printed, and `close()`, also at
the end of a `with` statement, which ends the child with all that it started. What fails is one of three:
`child.TimedOut` and `child.Died`, both a `ChildFailed` whose text is a clause that says how, are the child's doing;
`child.CannotStart` is a fault of the grader or of the machine.

Beside these: `handed_in` reads a submission's files, `files` writes whole files, `bubblewrap.new_warning` says once
that there is no sandbox, and `turns` has one run wait for the machine's others.
"""
