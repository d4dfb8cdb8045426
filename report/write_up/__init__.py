"""The model report: REPORT.md out of text, solutions, kernels that run, and measured rows."""
