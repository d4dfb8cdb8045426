"""Does a kernel's mistake with barriers, fences or products under way show on a CPU?"""

import pytest
import torch

pytest.importorskip("triton.experimental.gluon.nvidia.hopper")

from grader.engine import compare_values
from grader.kinds.attention import oracle
from grader.kinds.attention.masks import Visibility
from kernels.tests.gluon_on_cpu import kernels
from kernels.tests.gluon_on_cpu.language import byte_permute, logic
from kernels.tests.gluon_on_cpu.turns import Stuck

# The lines in which the mistakes are made
K_RELEASE, V_RELEASE = "        k_ring.release(done + i)\n", "        v_ring.release(done + i - 1)\n"
Q_RELEASE = "            program.q_ring.release(at)\n"
PRODUCT = "\n    for i in range(1, tile.count):\n"
FINISH = "        acc = warpgroup_mma_wait(0, [acc_later])\n"
ALL_BUT_ONE = "(1, [scores_later]), program, tile, i, q_pos)  # p @ v goes on\n"
FENCED_O, MADE = "        fence_async_shared()\n        row", "    program = Program(\n        q_desc=q_desc, k_desc"
FENCED = "    fence_async_shared()\n" + MADE
O_LEFT, COUNTED = (
    "            tma.store_wait(0)  # the tile before has left the buffer\n",
    "        done += tile.count\n",
)
FULL = "        mbarrier.wait(self.full.index(stage), i // self.STAGES & 1)\n"
EMPTY = (
    "        mbarrier.wait(self.empty.index(stage), (i // self.STAGES & 1) ^ 1)  # a fresh barrier counts as passed\n"
)
V_RING = "make_ring(v_desc, STAGES, CONSUMERS)\n    # No ring"
NBYTES = "NBYTES=desc.block_type.nbytes"

# {mistake: ([(old, new)], what is said; "" where a wrong result shows it)}
MISTAKES = {
    "no release": ([(V_RELEASE, "")], "produce waits for"),
    "no last release": ([("    v_ring.release(done + last)\n", "")], "waits for"),
    "Q not released": ([(Q_RELEASE + "            tma", "            tma")], "produce waits for"),
    "K released too early": ([(K_RELEASE, ""), (PRODUCT, PRODUCT + K_RELEASE)], ""),
    "V released too early": ([(FINISH + V_RELEASE, V_RELEASE + FINISH)], ""),
    "o not fenced": ([(FENCED_O, "        row")], "stores what it has written without a fence"),
    "barriers not fenced": ([(FENCED, MADE)], "barriers are used that no fence follows"),
    "o overwritten": ([(O_LEFT, "")], ""),
    "one buffer for both": ([("program.o_tiles.index(consumer)", "program.o_tiles.index(0)")], ""),
    "the last store not awaited": ([(COUNTED + "    tma.store_wait(0)", COUNTED)], "a product or a store is under way"),
    "tiles not counted": ([(COUNTED + "    tma", "    tma")], ""),
    "a buffer's parity": ([("STAGES & 1) ^ 1)", "STAGES & 1))")], "waits for phase 0"),
    "a full buffer not awaited": ([(FULL, "")], ""),
    "an empty buffer not awaited": ([(EMPTY, "")], "at which all 1 have arrived"),
    "more bytes expected": ([(NBYTES, f"{NBYTES} * 2")], "waits for phase 0"),
    "fewer bytes expected": ([(NBYTES, f"{NBYTES} // 2")], "more bytes came"),
    "a ring without use": ([(V_RING, V_RING.replace("\n", "\n    make_ring(k_desc, 1, 1)\n"))], "no partition uses"),
    "a ring used too early alone": (
        [(V_RING, V_RING.replace("\n", "\n    make_ring(k_desc, 1, 1).acquire(0)\n"))], "no partition uses"),
    "a tile awaited too early": ([(V_RING, V_RING.replace("\n", "\n    v_ring.wait(0)\n"))], "warps are specialized"),
    "a tile asked for before the fence": (
        [(V_RING, V_RING.replace("\n", "\n    v_ring.load(0, v_desc, 0, 0, 0)\n"))], "no fence follows"),
    "too few readers": ([(V_RING, V_RING.replace("CONSUMERS", "1"))], "waits for"),
    "too many under way": ([(ALL_BUT_ONE, ALL_BUT_ONE.replace("1,", "2,"))], ""),
}  # fmt: skip
AT_256 = {  # where o goes out through Q's buffer
    "tiles not counted": MISTAKES["tiles not counted"],
    "Q's buffer released before o has left": (
        [("            tma.store_wait(0)\n" + Q_RELEASE, Q_RELEASE + "            tma.store_wait(0)\n")], ""),
}  # fmt: skip


def attend(D, changes=()):
    """What is wrong with o of 600 tokens without a mask, by programs of many tiles; None where nothing is."""
    fast = kernels.import_on_cpu(*changes)["fast_attention"]
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 600, D, dtype=torch.float16) for _ in range(3))
    o = kernels.run(fast.flash_attention_forward, q, k, v, False, multiprocessors=1)
    expected = oracle.expect(q, k, v, Visibility())
    return compare_values.mismatch(o, expected.o, expected.allowed_o)


@pytest.mark.parametrize("D", [128, 256])
def test_what_is_right_is_right(D):
    assert attend(D) is None


@pytest.mark.parametrize(("D", "mistake"), [*((128, name) for name in MISTAKES), *((256, name) for name in AT_256)])
def test_a_mistake_shows(D, mistake):
    changes, said = (MISTAKES if D == 128 else AT_256)[mistake]
    try:
        wrong = attend(D, changes)
    except (Stuck, AttributeError, TypeError) as failure:
        assert said in str(failure)
    else:
        assert wrong and not said


def test_bytes_are_taken_and_bits_combined_as_in_ptx():
    """By the tables of the PTX ISA: prmt's default mode, and lop3's table as the function of 0xF0, 0xCC and 0xAA."""
    a, b = torch.tensor([0x33221100]), torch.tensor([0x77665544])
    assert byte_permute(a, b, torch.tensor([0x7531])).item() == 0x77553311
    assert byte_permute(torch.tensor([0x80]), b, torch.tensor([0x8888])).item() == 0xFFFFFFFF  # copies of the sign
    a, b, c = torch.randint(0, 1 << 32, (3, 50))
    for table, wanted in ((0xE2, (c & ~b) | (a & b)), (0xF0 & 0xCC, a & b), (0xF0 ^ 0xCC ^ 0xAA, a ^ b ^ c)):
        assert ((logic(a, b, c, table) & 0xFFFFFFFF) == (wanted & 0xFFFFFFFF)).all()
