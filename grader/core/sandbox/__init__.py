"""Child processes, and what belongs to them: how they are started, asked and ended, and what they may see and take.

A caller needs four things:

- A confined child runs what a submission wrote: `confined.ConfinedChild(device, load_seconds, submission, **setup)`.
  `submission.Submission` is two of them, a recorder and a runner, for one module.
- A trusted child is a program of ours: `child.TrustedChild(command)`.
- Both take a request, a dict, and give its reply: `call(request, seconds)`. `output.take()` is what they printed.
  `close()`, also at the end of a `with` statement, ends them with all that they started.
- `limited.Limited(work, seconds)` is a function of ours in a fork, for data that nobody vouches for.
- What fails is one of three: `child.TimedOut` and `child.Died`, both a `ChildFailed` whose text is a clause that says
  how, are the child's doing; `child.CannotStart` is a fault of the grader or of the machine.

Confined children are forked by sandbox processes, which have imported torch: `sandboxes` starts them early (`begin`),
shares them with forks (`share`, `renew`), ends them (`leave`, `close_all`) and counts what they used (`core_seconds`).
`confined.close_all()` ends everything, for Ctrl-C. Beside these: `handed_in` reads a submission's files, `unfinished`
says what a reply without a result means, `files` writes whole files, `bubblewrap.warning` says what does not protect.
"""
