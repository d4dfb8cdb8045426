"""In the runner, interpreted: what each program loads, stores and computes, counted."""

from collections import Counter


class Traffic:
    """Counters by (kernel, program), programs numbered through all launches.

    Keys: ("loaded" or "stored", argument) in bytes of live lanes, ("loads" or "stores", argument) in operations,
    "dot_flops" (two for each multiply and add), "exponentials" in elements.
    """

    def __init__(self):
        self.programs, self.kernels, self.current = {}, Counter(), Counter()

    def begin_launch(self, kernel):
        self.kernels[kernel] += 1

    def begin_program(self, kernel, program):
        self.current = self.programs[(kernel, program)] = Counter()

    def moved(self, kind, argument, num_bytes):
        bytes_of, count_of = ("loaded", "loads") if kind == "load" else ("stored", "stores")
        self.current[(bytes_of, argument)] += num_bytes
        self.current[(count_of, argument)] += 1

    def dot(self, a_shape, b_shape):
        """Two blocks (..., M, K) and (..., K, N)."""
        flops = 2 * b_shape[-1]
        for size in a_shape:
            flops *= size
        self.current["dot_flops"] += flops

    def exponentials(self, elements):
        self.current["exponentials"] += elements

    def report(self):
        """{kernel: totals over its launches and programs}, plain data."""
        totals = {kernel: {"launches": launches, "programs": 0} for kernel, launches in self.kernels.items()}
        for (kernel, _), counter in self.programs.items():
            totals[kernel]["programs"] += 1
            add_up(totals[kernel], counter)
        return totals

    def by_program(self):
        """The same for each program, in the order in which they ran."""
        return [{"kernel": kernel, **add_up({}, counter)} for (kernel, _), counter in self.programs.items()]


def add_up(total, counter):
    """Add a counter to `total`, whose keys with an argument are {argument: number}."""
    for name in ("loaded", "stored", "loads", "stores"):
        total.setdefault(name, {})
    for name in ("dot_flops", "exponentials"):
        total[name] = total.get(name, 0) + counter[name]
    for key, number in counter.items():
        if isinstance(key, tuple):
            name, argument = key
            total[name][argument] = total[name].get(argument, 0) + number
    return total
