"""How block-sparse attention, lab x1, is asked and judged."""

JUDGE_VERSION = 9  # part of a grade's key: raise it where any verdict changes, and what was graded is graded again
