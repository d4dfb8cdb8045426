"""What is measured: a file a study, with its points, its kernels and the columns of its rows, as plain data."""
