"""One-idea mistakes, each a small change of a reference solution: the grader must reject every one of them."""
