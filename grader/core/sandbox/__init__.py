"""Child processes, and what belongs to them: how they are started, asked and ended, and what they may see and take.

A caller needs these things:

- A sandboxed child runs what a submission wrote: `sandboxed_child.SandboxedChild(setup, load_seconds, submission)`.
  It takes a request of `protocol.messages` and gives a reply of that module. `submission.Submission` is two of them,
  a recorder and a runner, for one module.
- A trusted child is a program of ours: `child.TrustedChild(command)`. It takes a dict and gives a dict.
- Both: `call(request, seconds)` gives the reply, `output.take()` what the child printed. `close()`, also at the end of
  a `with` statement, ends the child with all that it started.
- `limited_call.Limited(work, seconds)` is a function of ours in a fork, for data that nobody vouches for.
- What fails is one of three: `child.TimedOut` and `child.Died`, both a `ChildFailed` whose text is a clause that says
  how, are the child's doing; `child.CannotStart` is a fault of the grader or of the machine.

Sandbox processes, which have imported torch, fork the sandboxed children. `pool` starts these processes early
(`begin`), shares them with forks (`share`, `renew`) and ends them (`leave`, `close_all`).
`sandboxed_child.close_all()` ends everything, for Ctrl-C. Beside these: `handed_in` reads a submission's files,
`files` writes whole files, `bubblewrap.new_warning` says once that there is no sandbox, and `turns` has one run wait
for the machine's others.
"""
