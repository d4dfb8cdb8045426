"""What the grader, the recorder and the runner send each other, as types."""
