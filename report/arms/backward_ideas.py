"""The ideas of the fast backward pass, each as the changes that take it out of the text of its files in kernels/.

Measured in turns with and without it by `python -m report backward --ideas`; report/BACKWARD.md says what each is.
"""

import importlib.util
import sys
from pathlib import Path

from report.places import KERNELS

MODULES = ("backward_program", "fast_backward_wide", "fast_backward")
AT_ONCE = """mbarrier.arrive(program.met.index(0), count=1)
            mbarrier.wait(program.met.index(0), i & 1)
            ds_before = program.ds_tiles.index(i % 2)
            ds_for_dq"""
LAST = """    mbarrier.wait(program.met.index(0), (i & 1) ^ 1)
    ds_before = program.ds_tiles.index((i + 1) % 2)
    ds_for_dq = ds_before.slice(OWN, ROWS, 1) if HALF_OF_QUERIES else ds_before
    k_for_dq = program.keys(program.k_ring, 0).slice(MINE, COLUMNS, 1)
    dq = warpgroup_mma(ds_for_dq.permute((1, 0)), k_for_dq, no_dq, use_acc=False)
    add_dq(program, consumer, dq, last_head, last_row, MINE, i - 1)
"""
# At head dim 256: a consumer has its own parts added
ASK = """@gluon.jit
def ask(program, dq, i, column: gl.constexpr):
    tma.store_wait(0)
    buffer = program.dq_tiles.index(column // HALF)
    buffer.reshape(dq.shape).store(dq)
    fence_async_shared()
    q_start, _ = program.start(i % program.count)
    head = program.kv_head * program.group + i // program.count
    add_to_global(program.dq_desc, [program.batch, head, q_start, column], buffer)


"""
# {idea: [(old, new)]}: `old` is found once in the modules
WITHOUT = {
    "dq one turn late": [
        ("mbarrier.wait(program.met.index(0), (i & 1) ^ 1)  # a fresh", "# A fresh"),
        ("ds_before = program.ds_tiles.index((i + 1) % 2)\n            ds_for_dq", AT_ONCE),
        ("mbarrier.arrive(program.met.index(0), count=1)\n            program.do_ring", "program.do_ring"),
        ("            if i > 0:\n                add_dq(program, consumer, dq, last_head, last_row, MINE, i - 1)\n",
         ""),
        ("            dk = warpgroup_mma_wait(0, [dk_later])\n            program.q",
         "            add_dq(program, consumer, dq, last_head, last_row, MINE, i)\n"
         "            dk = warpgroup_mma_wait(0, [dk_later])\n            program.q"),
        (LAST, ""),
    ],
    "first values": [
        ("(k_own, q.permute((1, 0)), less,", "(k_own, q.permute((1, 0)), less, use_acc=False,"),
        ("warpgroup_mma_wait(1, [scores_later])  # dp", "warpgroup_mma_wait(1, [scores_later]) + less  # dp"),
        ("(v_own, do.permute((1, 0)), less_delta,", "(v_own, do.permute((1, 0)), less_delta, use_acc=False,"),
        ("dp = warpgroup_mma_wait(0, [dp_later])", "dp = warpgroup_mma_wait(0, [dp_later]) + less_delta"),
    ],
    "addresses anew": [("0 if ENOUGH else i >> 28", "0")],
    "addresses kept": [("self.D == 128 and not self.HANDS_OVER", "False")],
    "begin apart": [("elif D == 64 and not IN_ORDER:", "elif D == 0:")],
    "begin together": [("elif D == 64 and not IN_ORDER:", "elif not IN_ORDER:")],
    "a warp for dq": [
        ("HANDS_OVER: gl.constexpr = IN_ORDER or D == 256", "HANDS_OVER: gl.constexpr = IN_ORDER"),
        ("import hand_over, mask\n", "import mask\n"),
        ("import ROWS\n", "import ROWS, add_to_global\n"),
        ("@gluon.jit\ndef consume_scores(", ASK + "@gluon.jit\ndef consume_scores("),
        ("hand_over(program, MINE // HALF, dq, 2 * i)", "ask(program, dq, i, MINE)"),
        ("hand_over(program, MINE // HALF, dq, 2 * i + 1)", "ask(program, dq, i, MINE + PIECE)"),
    ],
    "no warp for dq": [("IN_ORDER or D == 256", "True")],
}  # fmt: skip
# Where the kernel has them, or leaves them out on purpose
HEAD_DIMS = {
    "dq one turn late": (64, 128), "first values": (64, 128), "addresses anew": (64, 256), "addresses kept": (128,),
    "begin apart": (64,), "begin together": (128,), "a warp for dq": (256,), "no warp for dq": (64, 128),
}  # fmt: skip


def module_without(idea, folder):
    """kernels/fast_backward.py without an idea, as a module of its own whose text is put into `folder`."""
    texts = {name: (KERNELS / f"{name}.py").read_text(encoding="utf-8") for name in MODULES}
    for old, new in WITHOUT[idea]:
        (name,) = (name for name, text in texts.items() if old in text)
        texts[name] = texts[name].replace(old, new)
    slug = "_without_" + "".join(c if c.isalnum() else "_" for c in idea)
    for name, text in texts.items():
        path = Path(folder) / f"{name}{slug}.py"
        for other in MODULES:
            text = text.replace(f"from kernels.{other} import", f"from {other}{slug} import")
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        sys.modules[path.stem] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module
