"""How decode, lab x4, is asked and judged."""

JUDGE_VERSION = 8  # part of a grade's key: raise it where any verdict changes, and what was graded is graded again
