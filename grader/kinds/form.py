"""What every reply must be: outputs of the right form, nothing written elsewhere, every load and store inside."""

MOST_CONSTANTS = 4096  # bytes that a program may bring along

# What is asked of the student, by the kind of fault that trace.py found.
FAULTS = {
    "out-of-bounds load": "reads {lanes} elements outside {argument}: is the load masked where rows may not exist, "
    "and are its offsets those of this batch and head?",
    "out-of-bounds store": "writes {lanes} elements outside {argument}: is the store masked where rows may not exist, "
    "and does it use the output's own strides?",
    "out-of-bounds atomic": "updates {lanes} elements outside {argument}: is it masked where rows may not exist?",
    "write of another program's element": "writes {lanes} elements of {argument} that another program has written; on "
    "a GPU nobody knows which comes last. Is the store masked, and does the grid give each tile to one program?",
    "element written twice by one store": "writes {lanes} elements of {argument} twice in one store: do two lanes have "
    "the same address?",
    "read of another program's write": "reads {lanes} elements of {argument} that another program writes in the same "
    "launch: on a GPU programs run in any order.",
    "write of what another program reads": "writes {lanes} elements of {argument} that another program reads in the "
    "same launch: on a GPU programs run in any order.",
    "int32 overflow": "computes {lanes} positions or offsets that pass 2^31, where int32 wraps around, and uses them: "
    "cast to int64 first, with .to(tl.int64), or write the sum so that it stays small.",
}


def wrong_form(problem, wanted, reply, device):
    """A sentence where what came back is not tensors of the right number, shape, dtype and device, else None.

    wanted: [(name, shape, dtype)].
    """
    got, names = reply["outputs"], [name for name, *_ in wanted]
    if not reply["several"] and got[0]["type"] == "NoneType":
        return f"{problem.entry_point} returned nothing: is its `return {', '.join(names)}` missing?"
    if reply["several"] != (len(wanted) > 1) or len(got) != len(wanted):
        came = f"{len(got)} values" if reply["several"] else f"one {got[0]['type']}"
        return f"{problem.entry_point} must return {' and '.join(names)}; it returned {came}."
    for (name, want_shape, want_dtype), output in zip(wanted, got, strict=True):
        if not output["plain"]:
            return f"{name} must be a plain torch.Tensor; it is a {output['type']}."
        if output["shape"] != list(want_shape):
            return f"{name} has the shape {tuple(output['shape'])}; it must be {tuple(want_shape)}."
        if output["dtype"] != want_dtype:
            return f"{name} is {output['dtype']}; it must be {want_dtype}."
        if output["device"] != device:
            return f"{name} is on {output['device']}; the inputs are on {device}."
    return None


def overwritten(reply):
    """A sentence where an input changed or something was written around a tensor, else an empty string."""
    if reply["changed"]:
        return f"Your code wrote into its input {', '.join(reply['changed'])}: inputs must stay as they were."
    if reply["broken_fences"]:
        shapes = " and ".join(str(tuple(shape)) for shape in reply["broken_fences"])
        return (
            f"Your code wrote past the end (or before the beginning) of a tensor of shape {shapes} that it allocated: "
            "is every store masked where rows may not exist, and does it use the output's own strides?"
        )
    return ""


def describe_fault(problem, fault):
    """The sentence for one fault of a trace, with the student's own line."""
    return f"{fault['kernel']} {FAULTS[fault['kind']].format(**fault)} {at_line(problem, fault)}"


def describe_undefined(problem, entry):
    return (
        f"{entry['kernel']} uses values of {entry['argument']} that its mask left undefined: tl.load needs other=... "
        f"where a masked lane is used later. {at_line(problem, entry)}"
    )


def at_line(problem, entry):
    return f"({problem.module}:{entry['line']}: `{entry['source']}`)" if entry["line"] else ""


def foreign_data(problem, reply):
    """Sentences: bytes that a program brings along and that no operation of PyTorch made."""
    unseen = reply["unseen"]
    if unseen["bytes"]:
        at = f" ({problem.module}:{unseen['line']})" if unseen["line"] else ""
        return [f"It uses {unseen['bytes']} bytes{at} that no operation of PyTorch made: make tensors with torch."]
    if unseen["constants"] > MOST_CONSTANTS:
        return [f"It brings {unseen['constants']} bytes of numbers along, where a kernel needs next to none."]
    return []
