"""A folder of its own: its files are all that the recorder sees of the grader."""
