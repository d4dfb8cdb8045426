"""What runs inside every sandbox: the worker that forks children, and what recorder and runner share."""
