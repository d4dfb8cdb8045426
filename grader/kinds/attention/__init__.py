"""How the ladder, P1 to P7, is asked and judged."""

JUDGE_VERSION = 12  # part of a grade's key: raise it where any verdict changes, and what was graded is graded again
