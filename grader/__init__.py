"""The autograder: `python -m grader` lists its commands; docs/architecture.md has the rooms."""
