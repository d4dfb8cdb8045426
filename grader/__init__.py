"""The autograder: `python -m grader` grades a folder of submissions; see README.md for the rooms."""
