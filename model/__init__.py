"""A small language model of our own, to write with a student's kernels and to show what sinks are for."""
