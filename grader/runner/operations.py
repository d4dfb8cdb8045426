"""In the runner: which operations of PyTorch a program may have outside its kernels, and how much it does with them."""

from math import prod

from program import LARGEST, flat, tensors_in


def names(text):
    return set(text.split())


MAKE = names(
    "empty empty_like empty_strided new_empty new_empty_strided zeros zeros_like new_zeros ones ones_like "
    "new_ones full full_like new_full fill_ fill zero_ arange linspace scalar_tensor eye tril_indices "
    "triu_indices"
)
MOVE = names(
    "clone copy_ copy _to_copy cat stack index_select constant_pad_nd flip roll repeat index slice_scatter "
    "select_scatter _unsafe_view view_copy expand_copy repeat_interleave contiguous as_strided_copy unfold_copy "
    "tril triu tril_ triu_ masked_fill masked_fill_ where gather index_put_ _index_put_impl_ index_copy_ "
    "index_copy index_put slice_copy permute_copy transpose_copy t_copy split_with_sizes_copy scatter scatter_ "
    "take masked_scatter masked_scatter_ masked_select diagonal_copy select_copy unbind_copy squeeze_copy "
    "unsqueeze_copy lift_fresh_copy _reshape_copy index_fill index_fill_ lift _pin_memory"
)
ARITHMETIC = names(
    "add add_ sub sub_ mul mul_ div div_ rsub neg neg_ reciprocal reciprocal_ exp exp_ exp2 exp2_ log log_ log2 "
    "log2_ log10 log1p log1p_ expm1 expm1_ maximum minimum fmax fmin max min amax amin aminmax sum mean sqrt "
    "sqrt_ rsqrt rsqrt_ pow pow_ square abs abs_ sign eq ne lt le gt ge eq_ ne_ lt_ le_ gt_ ge_ logical_and "
    "logical_and_ logical_or logical_or_ logical_not logical_not_ logical_xor bitwise_and bitwise_or bitwise_not "
    "bitwise_xor bitwise_and_ bitwise_or_ __and__ __or__ isnan isinf isfinite nan_to_num nan_to_num_ logaddexp "
    "logaddexp2 logsumexp clamp clamp_ clamp_min clamp_min_ clamp_max clamp_max_ any all floor_divide floor ceil "
    "round trunc remainder fmod addcmul addcmul_ addcdiv addcdiv_ lerp lerp_ relu relu_ cumsum cummax cummin "
    "logcumsumexp sigmoid tanh argmax argmin topk sort nonzero ldexp ldexp_ frexp __lshift__ __rshift__ "
    "bitwise_left_shift bitwise_right_shift var std norm linalg_vector_norm count_nonzero isin bucketize "
    "searchsorted equal floor_ ceil_ sin cos erf"
)
PRODUCTS = names("mm bmm addmm baddbmm baddbmm_ addmm_ dot mv addmv vdot addbmm _int_mm")
SOFTMAX = names("_softmax _log_softmax")
SCALARS = 16  # elements: a number for each head may be made of q and k, to scale with
IN_A_WRAPPER = MAKE | MOVE | ARITHMETIC | PRODUCTS | SOFTMAX
ALLOWED = {"p1": IN_A_WRAPPER, "p2": IN_A_WRAPPER - SOFTMAX}
WITHOUT_KERNELS = {"p1", "p2"}  # they are PyTorch: no kernel runs unwatched
IN_A_CHOICE = MAKE | names("copy_ clone _to_copy")  # before a launch that is tuned: what it writes is made ready


def forbidden(program, problem):
    """The first step, a dict, whose operation is not on the problem's list, or None."""
    allowed = ALLOWED.get(problem, IN_A_WRAPPER)
    for step in program["setup"] + program["steps"]:
        here = allowed & IN_A_CHOICE if "choices" in step else allowed
        for inner in flat([step]):
            if "op" in inner and (inner["namespace"] != "aten" or inner["op"] not in here):
                return inner
    return None


def volume(program):
    """What the operations do with numbers that depend on q, k or v: {"products": multiply-adds, "arithmetic" and
    "moved": elements, "lines": {each: where most of it is}, "together": [operation, line] where two of q, k and v that
    no kernel has seen are put together, or None}.

    program: as it ran. Which storages a step reads and writes was held against what it did (replay.py).
    """
    roles = {i: {s["name"]} for i, s in enumerate(program["storages"]) if s.get("name") in ("q", "k", "v")}
    roles |= {i: {"?"} for i, s in enumerate(program["storages"]) if s["kind"] in ("old", "unseen")}
    total, together = {"products": 0, "arithmetic": 0, "moved": 0}, None
    worst = dict.fromkeys(total, (0, None))
    for step in flat(program["steps"]):
        reads = list(tensors_in([step["args"], step.get("kwargs")]))
        if "launch" in step:
            seen = {"kernel"} if any(read[0] in roles for read in reads) else set()
            for read in reads if seen else ():
                if program["storages"][read[0]]["kind"] != "input":
                    roles[read[0]] = roles.get(read[0], set()) | seen
            continue
        found = [roles[read[0]] for read in reads if roles.get(read[0])]
        if not found:
            continue
        everything = set().union(*found)
        for write in tensors_in(step["out"]):
            roles[write[0]] = roles.get(write[0], set()) | everything
        kind, amount = measure_step(step, reads)
        large = [roles[read[0]] for read in reads if roles.get(read[0]) and prod(read[2]) > SCALARS]
        raw = {frozenset(each & set("qkv")) for each in large if "kernel" not in each} - {frozenset()}
        if kind != "moved" and len(raw) > 1:
            together = together or [step["op"], step["line"]]
        total[kind] += amount
        worst[kind] = max(worst[kind], (amount, step["line"]), key=lambda entry: entry[0])
    return total | {"lines": {kind: line for kind, (_, line) in worst.items()}, "together": together}


def measure_step(step, reads):
    """(kind, how much): multiply-adds of a product, else elements."""
    if step["op"] in PRODUCTS:
        factors = list(tensors_in(step["args"]))[-2:]  # PyTorch hands them over by place
        if len(factors) < 2:
            return "products", LARGEST
        a, b = factors
        return "products", prod(a[2]) * (b[2][-1] if len(b[2]) > 1 else 1)
    size = max((prod(tensor[2]) for tensor in [*reads, *tensors_in(step["out"])]), default=0)
    return ("moved" if step["op"] in MAKE | MOVE else "arithmetic"), size


def depends_on_a_launch(program):
    """True where what is returned depends on what a launch wrote."""
    live = {returned["t"][0] for returned in program["returns"] if "t" in returned}
    for step in reversed(list(flat(program["setup"] + program["steps"]))):
        touched = {tensor[0] for tensor in tensors_in([step["args"], step.get("kwargs"), step.get("out")])}
        if "launch" in step and touched & live:
            return True
        if touched & live:
            live |= touched
    return False
