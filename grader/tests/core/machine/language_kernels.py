"""Every kernel of these tests: each about one function or one operator of triton.language."""

from grader.tests.core.machine.block_kernels import BLOCKS
from grader.tests.core.machine.control_kernels import CONTROL
from grader.tests.core.machine.elementwise_kernels import ELEMENTWISE
from grader.tests.core.machine.library_kernels import LIBRARY
from grader.tests.core.machine.memory_kernels import MEMORY
from grader.tests.core.machine.newer_kernels import NEWER

KERNELS = [*ELEMENTWISE, *BLOCKS, *MEMORY, *CONTROL, *NEWER, *LIBRARY]
