"""The runner: it checks a program and runs it, in the machine or on a GPU."""
