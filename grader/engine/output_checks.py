"""What every reply must be: outputs of the right form, nothing written elsewhere, every load and store inside."""

MOST_CONSTANTS = 1 << 16  # bytes that a program may bring along: a schedule of tiles fits, most outputs do not

# What is asked of the student, by the kind of fault that legality.py found.
FAULTS = {
    "out-of-bounds load": "reads {lanes} elements outside {argument}{shape}{outside}",
    "out-of-bounds store": "writes {lanes} elements outside {argument}{shape}{outside}",
    "out-of-bounds atomic": "updates {lanes} elements outside {argument}{shape}{outside}",
    "write of another program's element": "writes {lanes} elements of {argument} that another program has written"
    "{programs}; on a GPU nobody knows which comes last. Check {argument}'s own strides, this program's offset, the "
    "mask for rows past the end, and the grid.",
    "element written twice by one store": "writes {lanes} elements of {argument} twice in one store: do two lanes have "
    "the same address?",
    "read of another program's write": "reads {lanes} elements of {argument} that another program writes in the same "
    "launch: on a GPU programs run in any order.",
    "write of what another program reads": "writes {lanes} elements of {argument} that another program reads in the "
    "same launch: on a GPU programs run in any order.",
    "read of another lane's write": "loads {lanes} elements of {argument} that other lanes of the same program stored, "
    "with no tl.debug_barrier() between: on a GPU they may not be there yet. Keep them in a block, or put a barrier "
    "after the store.",
    "hint that does not hold": "promises the compiler something that is not so: {argument} does not hold for {lanes} "
    "elements here. On a GPU the loads would read elsewhere: leave the hint out, or give it where it is true.",
    "int32 overflow": "computes {lanes} positions or offsets that pass 2^31, where int32 wraps around, and uses them: "
    "cast to int64 first, with .to(tl.int64), or write the sum so that it stays small.",
}
PLACE = (
    "is it masked, does the mask test the positions of these addresses, and are the strides those of {argument}, each "
    "with its own index?"
)
# And by the part of the access that lies outside.
OUTSIDE = {
    "whole": ", whole tiles{programs}: is the offset made of {argument}'s own strides and the right axes of the grid "
    "(program_id), and does no loop run past the end?",
    "end": f", past its end: {PLACE}",
    "start": ", before its beginning: which position comes first?",
    "scattered": f", between its own elements: {PLACE}",
}


def wrong_form(problem, wanted, got, several, device):
    """A sentence where what came back is not tensors of the right number, shape, dtype and device, else None.

    wanted: [(name, shape, dtype)]. got: the Outputs; several: they came as a tuple or a list.
    """
    names = [name for name, *_ in wanted]
    if not several and got[0].type == "NoneType":
        return f"{problem.entry_point} returned nothing: is its `return {', '.join(names)}` missing?"
    if several != (len(wanted) > 1) or len(got) != len(wanted):
        came = f"{len(got)} values" if several else f"one {got[0].type}"
        return f"{problem.entry_point} must return {' and '.join(names)}; it returned {came}."
    shapes = [list(shape) for _, shape, _ in wanted]
    if shapes[0] != shapes[-1] and [output.shape for output in got] == shapes[::-1]:
        return (
            f"{problem.entry_point} returns its values in the wrong order: it must return {' and then '.join(names)}."
        )
    for (name, want_shape, want_dtype), output in zip(wanted, got, strict=True):
        if not output.plain:
            return f"{name} must be a plain torch.Tensor; it is a {output.type}."
        if output.shape != list(want_shape):
            said = f"{name} has the shape {tuple(output.shape)}; it must be {tuple(want_shape)}."
            if output.shape == [*want_shape, want_shape[-1]] and want_shape[-1] > 1:
                return f"{said} Its parts are reduced over different dimensions: is each reduced over the keys?"
            too_many = len(output.shape) == len(want_shape) + 1
            return f"{said}{' Which dimension do you reduce, and do you keep it?' * too_many}"
        if output.dtype != want_dtype:
            return f"{name} is {output.dtype}; it must be {want_dtype}."
        if output.device != device:
            return f"{name} is on {output.device}; the inputs are on {device}."
    return None


def overwritten(reply):
    """A sentence where an input changed or something was written around a tensor, else an empty string."""
    if reply.changed:
        return f"Your code wrote into its input {', '.join(reply.changed)}: inputs must stay as they were."
    if reply.broken_fences:
        shapes = " and ".join(str(tuple(shape)) for shape in reply.broken_fences)
        return (
            f"Your code wrote past the end (or before the beginning) of a tensor of shape {shapes} that it allocated: "
            "is every store masked where elements may not exist, and does it use the output's own strides?"
        )
    return ""


def describe_fault(problem, fault, measured=""):
    """The sentence for one fault of a trace, with the student's own line.

    measured: what its addresses are, said in place of the questions for any fault of its kind.
    """
    programs = " and ".join(map(str, fault.programs))
    which = f" (program{'s' * (len(fault.programs) > 1)} {programs} of the grid)" if programs else ""
    shape = f", which is {tuple(fault.shape)}" if fault.shape else ""
    known = {"argument": fault.argument, "lanes": fault.lanes, "programs": which, "shape": shape, "outside": ""}
    does = FAULTS[fault.kind]
    if measured:
        does = f"{does.partition('{programs}')[0].format(**known)}{which} {at_line(problem, fault)}".rstrip()
        return f"{fault.kernel} {does}. {measured[0].upper()}{measured[1:]}"
    outside = OUTSIDE[fault.where].format(**known) if fault.where else ""
    return f"{fault.kernel} {does.format(**known | {'outside': outside})} {at_line(problem, fault)}"


def describe_undefined(problem, entry):
    return (
        f"{entry.kernel} uses values of {entry.argument} that its mask left undefined: tl.load needs other=... "
        f"where a masked lane is used later. {at_line(problem, entry)}"
    )


def at_line(problem, entry):
    return f"({problem.module}:{entry.line}: `{entry.source}`)" if entry.line else ""


def foreign_data(problem, reply):
    """Sentences: bytes that a program brings along and that no operation of PyTorch made."""
    unseen = reply.unseen
    if unseen.bytes:
        at = f" ({problem.module}:{unseen.line})" if unseen.line else ""
        return [f"It uses {unseen.bytes} bytes{at} that no operation of PyTorch made: make tensors with torch."]
    if unseen.constants > MOST_CONSTANTS:
        return [f"It brings {unseen.constants} bytes of numbers along, where a kernel needs next to none."]
    return []


DOES = {
    "multiply_adds": "does {} multiply-adds", "touched": "touches {} elements", "made": "makes tensors of {} numbers",
}  # fmt: skip


def describe_torch(costs, size, each, bounds, module):
    """A sentence where PyTorch does more outside of the kernels than `bounds` {cost: times `size`} allow, else ""."""
    for what, bound in bounds.items():
        cost, line = getattr(costs, what), costs.lines[what].line if what in costs.lines else None
        if cost > bound * size:
            at = f", most of it in {module}:{line}" if line else ""
            return (
                f"Outside of kernels PyTorch {DOES[what].format(cost)}{at}: {cost / size:.0f} for each {each}, where "
                f"preparing and merging take at most {bound:g}. It is the kernels' work."
            )
    return ""
