"""Gluon kernels for Hopper on a CPU: each partition of warps is a thread, and what is asynchronous comes at its worst.

Gluon has no interpreter, and a kernel that is tested on a GPU alone is not tested where students and CI are. Here
blocks are torch tensors, shared memory is a tensor, and

    a tile that was asked for   makes its buffer NaN at once; it lies there when somebody waits for it, or before
    a product                   reads what it multiplies in shared memory when it is waited for, not before
    a store by the copy engine  reads shared memory when it is waited for; what was written there needs a fence before
    which thread goes on        at a barrier is drawn; where none can, Stuck says what each waits for

so that a buffer released too early, or read too early, shows as NaN. Layouts, registers and speed are not modelled.

    turns.py      threads of which one runs at a time
    machine.py    shared memory, barriers, the copy engine, products
    language.py   blocks, and gluon.language on them
    kernels.py    launches, and the modules of the fast forms imported so that their kernels run here

Source: NVIDIA, "PTX ISA", sections on mbarrier (phases and transaction counts), on asynchronous copies and on wgmma.
"""
