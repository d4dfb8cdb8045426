"""The autograder: `python -m grader` grades a folder of submissions; docs/architecture.md has the rooms."""
