"""A machine for Triton's IR: it parses a kernel and executes all programs of a launch at once, with torch."""
