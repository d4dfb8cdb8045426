"""What kernels do, counted where no time is taken: by formula, in the interpreter, and by the compiler."""
