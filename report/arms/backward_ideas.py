"""The ideas of the fast backward pass, each as the changes that take it out of the text of solutions/fast_backward.py.

Measured in turns with and without it by `python -m report backward --ideas`; report/BACKWARD.md says what each is.
"""

import importlib.util
import sys
from pathlib import Path

from report.places import SOLUTIONS

MODULES = ("backward_program", "fast_backward")
AT_ONCE = """mbarrier.arrive(program.met.index(0), count=1)
            mbarrier.wait(program.met.index(0), i & 1)
            ds_before = program.ds_tiles.index(i % 2)
            ds_for_dq"""
LAST = """    mbarrier.wait(program.met.index(0), (i & 1) ^ 1)
    ds_before = program.ds_tiles.index((i + 1) % 2)
    ds_for_dq = ds_before.slice(OWN, ROWS, 1) if HALF_OF_QUERIES else ds_before
    k_for_dq = program.keys(program.k_ring, 0).slice(MINE, COLUMNS, 1)
    dq = warpgroup_mma(ds_for_dq.permute((1, 0)), k_for_dq, no_dq, use_acc=False)
    add_dq(program, dq, dq_tile, last_head, last_row, MINE)
"""
# {idea: [(old, new)]}: `old` is found once in the modules
WITHOUT = {
    "dq one turn late": [
        ("mbarrier.wait(program.met.index(0), (i & 1) ^ 1)  # a fresh", "# A fresh"),
        ("ds_before = program.ds_tiles.index((i + 1) % 2)\n            ds_for_dq", AT_ONCE),
        ("mbarrier.arrive(program.met.index(0), count=1)\n            program.do_ring", "program.do_ring"),
        ("            if i > 0:\n                add_dq(program, dq, dq_tile, last_head, last_row, MINE)\n", ""),
        ("            dk = warpgroup_mma_wait(0, [dk_later])\n            program.q",
         "            add_dq(program, dq, dq_tile, last_head, last_row, MINE)\n"
         "            dk = warpgroup_mma_wait(0, [dk_later])\n            program.q"),
        (LAST, ""),
    ],
    "first values": [
        ("(k_own, q.permute((1, 0)), less,", "(k_own, q.permute((1, 0)), less, use_acc=False,"),
        ("warpgroup_mma_wait(1, [scores_later])  # dp", "warpgroup_mma_wait(1, [scores_later]) + less  # dp"),
        ("(v_own, do.permute((1, 0)), less_delta,", "(v_own, do.permute((1, 0)), less_delta, use_acc=False,"),
        ("dp = warpgroup_mma_wait(0, [dp_later])", "dp = warpgroup_mma_wait(0, [dp_later]) + less_delta"),
    ],
    "addresses anew": [("ring.tiles.index(i >> 28)", "ring.tiles.index(0)")],
    "apart at head dim 64": [("elif D == 64:", "elif D == 0:")],
    "together at head dim 128": [("elif D == 64:", "else:")],
}  # fmt: skip


def module_without(idea, folder):
    """solutions/fast_backward.py without an idea, as a module of its own whose text is put into `folder`."""
    texts = {name: (SOLUTIONS / f"{name}.py").read_text(encoding="utf-8") for name in MODULES}
    for old, new in WITHOUT[idea]:
        (name,) = (name for name, text in texts.items() if old in text)
        texts[name] = texts[name].replace(old, new)
    slug = "_without_" + "".join(c if c.isalnum() else "_" for c in idea)
    for name, text in texts.items():
        path = Path(folder) / f"{name}{slug}.py"
        path.write_text(
            text.replace("from solutions.backward_program", f"from backward_program{slug}"), encoding="utf-8"
        )
        spec = importlib.util.spec_from_file_location(path.stem, path)
        sys.modules[path.stem] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module
