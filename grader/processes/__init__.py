"""Child processes: what they may see and take, how they are started, asked and ended."""
