"""The runner: it checks a program and runs it; observers watch every operation of the interpreter."""
