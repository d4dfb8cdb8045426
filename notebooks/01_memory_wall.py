# %% [markdown]
# # 1. The memory wall
#
# **Why does attention, written down as the formula says, keep a GPU waiting?**
#
# A GPU does two things at once: it computes, and it moves numbers between its memory and its arithmetic units.
# Whichever takes longer sets the time. The picture has both for one large call of attention: 16,384 tokens, in 64 heads
# of 128 numbers each.

# %%
from notebooks.pictures import memory_wall as draw
from notebooks.pictures.operations import count
from notebooks.pictures.png import folded, png
from report.pages import measured

sweep = measured.load(measured.PUBLISHED)  # committed times of a GPU; no GPU is needed here
B, H, N, D = 4, 16, 16384, 128
rows = sweep.points()["B=4 H=16 D=128", N, N, False, "float16"]
plain = count(draw.plain_attention, *[(B, H, N, D)] * 3)
computing, moving = draw.least_times(plain, sweep.device)
needs = {"compute the two products": computing, "move what PyTorch code moves": moving}
took = {"that PyTorch code": rows["vectorised"].median_ms}
took["FlashAttention, this course's"] = rows["fast"].median_ms
figure = draw.times(needs, took, f"One call of attention on an {sweep.device}")
png(figure, "Moving the bytes of plain attention takes far longer than computing its products")

# %% [markdown]
# The pale bars are the least that the GPU needs, by its data sheet; the dark ones were measured. Plain PyTorch code
# spends its time on moving numbers, the same ones again and again. FlashAttention gives the same answer and moves far
# fewer numbers. This page counts the bytes; the course then gets rid of them.
#
# ## The formula
#
# A text is cut into tokens: words, or parts of words. Each of N tokens has a query, a key and a value, vectors of D
# numbers. Token i compares its query with all keys, and takes the mean of all values, weighted by how well the keys
# fit:
#
# ```
# S = Q K^T / sqrt(D)     N x N scores: how well each key fits each query
# P = softmax(S)          N x N weights: positive, and each row adds up to 1
# O = P V                 N x D: for each query a mean of the values
# ```
#
# Q, K, V and O have N x D numbers; S and P have N x N. A model does this in H *heads* at once, each with a Q, K and V
# of its own, and for B texts at once: B x H times in all. Below, the solution of the course's first problem (P1) on 6
# tokens. `oracle` computes the right answer in 64 bits. A number of the output counts as wrong if it is further from
# that answer than rounding to float16 explains.

# %% tags=["solution"]
import torch

from grader.kinds.attention import oracle
from grader.kinds.attention.masks import Visibility
from report.places import load

naive_attention = load("p1_naive_attention.py").naive_attention
torch.manual_seed(0)
q, k, v = torch.randn(3, 1, 1, 6, 16, dtype=torch.float16)
o, lse = naive_attention(q, k, v)
expected = oracle.expect(q, k, v, Visibility())
wrong = (o - expected.o).abs() > expected.allowed_o
print(f"{wrong.sum().item()} of {o.numel()} numbers are further off than float16 must be")

# %% [markdown]
# ## What the matrix costs: memory
#
# ### Predict before you run
#
# 64 heads (B=4, H=16), 16,384 tokens, scores in 32 bits, and nothing else. How much memory does S alone take: about 64
# MiB, 640 MiB, 6.4 GiB or 64 GiB?
#
# <details><summary>Answer</summary>
#
# About 64 GiB (69 GB): of an 80 GB GPU that leaves little, and code that keeps S and P at the same time does not fit
# there. Q is 256 times smaller: a row of S has 16,384 numbers of 4 bytes, a row of Q has 128 of 2.
# </details>

# %%
S, Q = B * H * N * N * 4 / 2**30, B * H * N * D * 2 / 2**30
memory = f"GPU:  {sweep.machine['memory_gib']:6.2f} GiB, an {sweep.device}"
folded(f"S:    {S:6.2f} GiB", f"Q:    {Q:6.2f} GiB, in 16 bits", memory)

# %% [markdown]
# How much memory does code hold at its worst moment? `count` runs it with tensors that have a shape and no memory
# behind them, and adds up what is alive. The rings are what PyTorch reported on the GPU.

# %% tags=["solution"]
lengths = [512, 1024, 2048, 4096, 8192, 16384]
of = {n: sweep.points()["B=4 H=16 D=128", n, n, False, "float16"] for n in lengths}
lines, rings = {}, {}
codes = {draw.PLAIN: (draw.plain_attention, "vectorised")}
# torch.empty_like stands for the fused kernel: it holds the output alone.
codes[draw.FUSED] = torch.empty_like, "fast"
for look, (code, name) in codes.items():
    inputs = 1 if look == draw.FUSED else 3
    lines[look] = [(n, count(code, *[(B, H, n, D)] * inputs).peak / 2**20) for n in lengths]
    rings[look] = [(n, of[n][name].peak_mib) for n in lengths]
limits = {"a GPU of 80 GB": 80e9 / 2**20}
limits[f"an {sweep.device}"] = sweep.machine["memory_gib"] * 1024
figure = draw.held(lines, rings, limits, "What one call holds: lines counted, rings measured")
png(figure, "Memory against N: plain attention grows with N squared, FlashAttention with N")

# %% [markdown]
# Plain attention: twice the tokens, four times the memory. A kernel that never stores the matrix holds its output and
# nothing else that grows (its line is the size of the output): twice the tokens, twice the memory.
#
# ## What the matrix costs: traffic
#
# Memory that fits is still slow to cross. Here is every operation of P1's solution with the bytes that it reads and
# writes, and the FLOPs of its matrix products (floating-point operations: a multiplication and an addition are two).
# The rule of the count: an operation reads its inputs from memory and writes its output there. That is how PyTorch's
# operations work, one after the other, when a tensor is larger than the GPU's caches.

# %% tags=["solution"]
p1 = count(naive_attention, *[(B, H, N, D)] * 3)
gb, tflop = p1.moved / 1e9, p1.flops / 1e12
print(f"{len(p1.operations)} operations move {gb:.0f} GB for {tflop:.1f} TFLOP (10^12 FLOPs)")
figure = draw.moved(p1, f"P1 at N = {N:,}: what each operation moves")
png(figure, "The seven operations that touch the whole matrix move nearly all bytes")

# %% [markdown]
# Seven of the 14 operations touch the whole matrix. Two of the seven are the matrix products; all FLOPs counted are
# theirs. Each of the other five does one simple thing with each number of the matrix, and must read the whole matrix
# from memory to do it.
#
# ### Predict before you run
#
# "Times the scale" multiplies each score by 1/sqrt(D). What part of all bytes does that cost? What would it cost to
# multiply Q instead, before the first product?
#
# <details><summary>Answer</summary>
#
# A fifth of all traffic, for one multiplication a number. On Q it costs next to nothing, because Q has D columns where
# S has N. The better cure is to do all five steps while the numbers are still beside the arithmetic units: to *fuse*
# them. `torch.compile` can do part of that. FlashAttention fuses everything, the products included.
# </details>


# %% tags=["solution"]
def scaling(ledger):
    """The part of P1's bytes that the multiplication by the scale moves."""
    scales = [one.moved for one in ledger.operations if one.name == "times the scale"]
    return sum(scales) / p1.moved


q_first = count(lambda q, k, v: (q.float() * D**-0.5) @ k.float().mT, *[(B, H, N, D)] * 3)
folded(f"scaling S: {scaling(p1):6.2%} of all bytes", f"scaling Q: {scaling(q_first):6.2%}")

# %% [markdown]
# ## The roofline
#
# Code that does x FLOPs for each byte that it moves has an *arithmetic intensity* of x. A GPU that moves W bytes a
# second and computes F FLOPs a second runs it at min(F, x W) FLOPs a second at best. Drawn over x, that is a roof: a
# slope, where memory decides, and a flat part, where arithmetic does ([Williams and others,
# 2009](https://doi.org/10.1145/1498765.1498785)). They meet at the *ridge*. F and W are those of the vendors' data
# sheets (links below), for 16-bit inputs and matrix units, as `grader/gpu/peaks.py` has them.

# %%
from grader.gpu.peaks import peak

for gpu in draw.GPUS:
    F, W, ridge = peak(gpu).tflops, peak(gpu).terabytes, draw.ridge(gpu)
    print(f"{gpu:15} {F:6.0f} TFLOP/s {W:5.2f} TB/s   ridge at {ridge:4.0f} FLOPs per byte")

# %% [markdown]
# Where does attention sit? The plain code of the first picture is not P1: it keeps its scores in 16 bits, computes the
# softmax in one operation with 32 bits, and rounds that to 16 bits in another. So it moves half of P1's bytes: 20 for
# each pair of tokens. A fused kernel must read Q, K and V and write O once each; nobody can move less. A third case: a
# model that writes text, one token at a time, has one query for all keys.


# %%
def least(queries, keys):
    """FLOPs for each byte if Q, K, V and O are moved once, in 16 bits."""
    return 4 * queries * keys * D / (2 * D * (2 * queries + 2 * keys))


plain_x, fused_x = plain.flops / plain.moved, least(N, N)
places = {"one query, all keys": least(1, N), "plain PyTorch": plain_x}
places |= {"fused, 512 tokens": least(512, 512), "fused, 16,384 tokens": fused_x}
dots = [(plain_x, rows["vectorised"].tflops, "plain PyTorch, H200", draw.PLAIN)]
dots += [(fused_x, rows["P3"].tflops, "P3, H200", draw.P3)]
dots += [(fused_x, rows["fast"].tflops, "our fastest, H200", draw.FUSED)]
figure = draw.roofline(places, dots, f"Where attention sits; dots measured at {N:,} tokens")
png(figure, "Roofs of six GPUs: plain attention under the slopes, fused under the flat parts")

# %% [markdown]
# ### Predict before you run
#
# Longer sequences have more FLOPs. Do they carry *plain* attention to the right, over the ridge?
#
# <details><summary>Answer</summary>
#
# No. FLOPs and bytes both grow with N x N, so their ratio hardly moves: 4 D FLOPs and 20 bytes for each pair of tokens.
# No GPU of the table, old or new, has its ridge that far to the left. Fused, bytes grow with N and FLOPs with N x N:
# the intensity is N/2.
#
# With one query it cannot grow: each key is read once and used once, about one FLOP for a byte. That is why writing
# text token by token is bound by memory on all of these GPUs.
# </details>


# %%
def plain_at(n):
    """FLOPs for each byte of the plain code at n tokens."""
    ledger = count(draw.plain_attention, *[(B, H, n, D)] * 3)
    return ledger.flops / ledger.moved


lengths = (512, 2048, 8192, 32768, 131072)
found = [("tokens", "plain", "fused at best, FLOPs per byte")]
found += [(f"{n:,}", f"{plain_at(n):.1f}", f"{least(n, n):,.0f}") for n in lengths]
folded(*(f"{n:>7}  {plain:>5}  {fused:>6}" for n, plain, fused in found))

# %% [markdown]
# ## Is it enough to cut the matrix into tiles?
#
# ### Predict before you run
#
# The second problem, P2, never holds the matrix: it walks over it in tiles of 64 x 64 and keeps running values, all in
# PyTorch. Its memory is small. Does it also move fewer bytes than P1?
#
# <details><summary>Answer</summary>
#
# No, it moves more. Each tile of scores still goes out to memory and comes back for every operation, and the running
# output goes with it for every tile of keys. (A cache may hold a small tile, which this count does not know; but P2
# launches thousands of operations, and P1 a few.) Tiles save *memory*. To save *traffic*, one kernel must do all steps
# of a tile, from the first product to the last, with the tile in registers. That is P3, and it takes a language for
# kernels: Triton. P2 is worth writing all the same: its arithmetic is P3's.
# </details>

# %% tags=["solution"]
p2 = load("p2_online_softmax.py").flash_attention_forward
found = ["1,024 tokens"]
for name, code in (("P1", naive_attention), ("P2", p2)):
    ledger = count(code, *[(B, H, 1024, D)] * 3, device="meta")
    work = f"{len(ledger.operations):5,} operations, {ledger.flops / 1e12:.3f} TFLOP"
    gb, mib = ledger.moved / 1e9, ledger.peak / 2**20
    found.append(f"{name}: {work}, {gb:5.2f} GB moved, {mib:4.0f} MiB held")
folded(*found)

# %% [markdown]
# ## Exercises
#
# 1. Rewrite P1 in PyTorch so that it moves fewer bytes and is still right. `count` says how far you came.
# 2. Count P1 with `is_causal=True`. Half of the pairs are hidden. Does it move fewer bytes? Why not?
# 3. P3, the first kernel in Triton, loads all tiles of K and V once for each tile of `BLOCK_Q` queries. Show that this
#    is about `BLOCK_Q` FLOPs for each byte *loaded*, in 16 bits. How many queries would a tile need to clear the ridge
#    of an H100, if no load found its tile in a cache?
# 4. Now build it: `problems/p1_naive_attention.py`, and `make grade P=1`. Three gaps: the scaled scores, the causal
#    mask, the softmax with the logarithm of its sum (lse).
#
# **Next:** [2. The online softmax](02_online_softmax.ipynb): why P is never needed as a whole.
#
# ## References
#
# - Vaswani et al., [Attention Is All You Need](https://arxiv.org/abs/1706.03762), 2017: the formula, section 3.2.1.
# - Dao et al., [FlashAttention](https://arxiv.org/abs/2205.14135), 2022: exact attention, designed by counting bytes.
# - Ivanov et al., [Data Movement Is All You Need](https://arxiv.org/abs/2007.00072), 2020: where transformers spend
#   their time.
# - Williams, Waterman, Patterson, [Roofline](https://doi.org/10.1145/1498765.1498785), 2009.
# - Shazeer, [Fast Transformer Decoding](https://arxiv.org/abs/1911.02150), 2019: one query at a time, and what it saves
#   to share keys among heads (P5).
# - Data sheets: [T4](https://www.nvidia.com/en-us/data-center/tesla-t4/),
#   [A100](https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf),
#   [H100](https://www.nvidia.com/en-us/data-center/h100/), [H200](https://www.nvidia.com/en-us/data-center/h200/),
#   [B200](https://www.nvidia.com/en-us/data-center/hgx/),
#   [MI300X](https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html). For H100, H200 and B200 they give
#   FLOPs "with sparsity": the dense figure, used here, is half of that.
# - Times: [report/BENCHMARKS.md](../report/BENCHMARKS.md), out of `report/results/h200/sweep.csv`.
