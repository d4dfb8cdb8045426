"""How the order of programs, lab x2, is asked and judged."""

JUDGE_VERSION = 6  # part of a grade's key: raise it where any verdict changes, and what was graded is graded again
