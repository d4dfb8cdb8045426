# %% [markdown]
# # 4. Masks and phases
#
# **Which tiles of keys must an attention kernel visit, and in which of them must it look at the mask?**
#
# A kernel works on tiles: some queries times some keys ([notebook 3](03_first_triton_kernel.ipynb)). A mask says which
# of these pairs count. Four masks, cut into tiles:

# %%
import torch

from grader.core import in_process
from grader.kinds.attention.cases import Case
from grader.kinds.block_sparse import tile_map
from notebooks.pictures import masks_and_phases as draw
from report.pages import tile_figures

in_process.begin()  # kernels run in the grader's machine: no GPU is needed
no_mask = Case("no mask", N=256, D=16)
causal = Case("causal", N=256, D=16, causal=True)
window = Case("window of 80", N=256, D=16, causal=True, window=80)
sinks = Case("window of 80, 40 sinks", N=256, D=16, causal=True, window=80, sinks=40)
draw.masks([no_mask, causal, window, sinks], block=32)

# %% [markdown]
# - **Causal.** A query sees the keys at or before its own place: a language model must not read the future.
# - **Window.** Of those, only the last 80, the query's own key included.
# - **Sinks.** The window, and the first 40 tokens as well. (Real models keep about four. Forty are easier to see.)
#
# ## Four kinds of tiles
#
# Every tile is of one of four kinds, and each kind asks for other work:
#
# | tile | what the kernel does |
# |---|---|
# | **empty** | nothing: it does not even load these keys |
# | **F**ULL | load, multiply, add; it never asks who sees whom |
# | **C**AUSAL | the same, and hides the upper triangle |
# | **P**ARTIAL | the same, and hides whatever the mask says |
#
# So a mask saves time twice. Empty tiles cost nothing, and full ones need no comparisons. How many are there of each?

# %%
print(f"{'':24} empty   FULL CAUSAL PARTIAL")
for case in (no_mask, causal, window, sinks):
    cut = tile_map.cut(case.visibility, case.N, case.N, 32, 32)
    counts = (int((cut.kinds == kind).sum()) for kind in range(4))
    print(f"{case.name:22}", *(f"{count:6}" for count in counts))

# %% [markdown]
# ### Predict before you run
#
# Double the tokens of the causal mask, again and again. What fraction of its tiles needs a mask then, and what fraction
# is empty?
#
# <details><summary>Answer</summary>
#
# With n tiles along each side, n of the n x n tiles lie on the diagonal. So the masked part is 1/n: it halves each
# time. The empty part is (n - 1) / 2n: it comes closer and closer to one half, and never reaches it. In long sequences
# almost all work is in full tiles. That is why a kernel treats the few others apart.
# </details>

# %%
from notebooks.pictures.png import folded

found = []
for n in (256, 512, 1024, 2048):
    cut = tile_map.cut(causal.visibility, n, n, 32, 32)
    masks = (cut.kinds == tile_map.CAUSAL) | (cut.kinds == tile_map.PARTIAL)
    masked = masks.double().mean().item()
    found.append(f"N = {n:4}: {masked:6.1%} need a mask, {1 - cut.density:6.1%} are empty")
folded(*found)

# %% [markdown]
# ## From the mask to a loop
#
# A kernel keeps no map of its tiles. One program takes one row of tiles, and walks along it from left to right in a few
# loops, its **phases**. Where each phase begins and ends follows from a little arithmetic with positions.

# %%
odd = Case("N = 250, tiles 64 x 32", N=250, D=16, causal=True, window=80)
title = "Which phase visits which tile"
cases = [causal, window, sinks, odd]
draw.phase_maps(cases, [(32, 32), (32, 32), (32, 32), (64, 32)], title)

# %% [markdown]
# Each row of tiles is one program. The course's problems have these kernels: P4 (causal), P6 (a window) and P7 (sinks
# as well). The last panel is P6 again, with tiles of 64 queries and 32 keys, and a length that no tile divides.
#
# - **D, the diagonal.** The tiles that hold the program's own positions. Each query sees itself, so there is one at
#   least.
# - **\>, inside.** Every query of the program sees every key: this loop has no mask.
# - **E, the window's edge.** Some of these keys are too old for some of the queries.
# - **S, sinks.** The first tokens, as far as no other phase visits them already.
#
# Compare the colours with the first picture: **\>** lies on full tiles only. The opposite need not hold. A full tile in
# the sinks or at the edge is masked for nothing, which costs a little time and changes no result.
#
# The mask shows where the phases of one program of P6 begin and end. Which tiles does at least one of its queries
# see? Which tiles do all of them see whole?

# %%
BLOCK_Q = BLOCK_K = 32
q_start = 160  # one program: queries 160 to 191
rows = window.visibility.mask(torch.arange(q_start, q_start + BLOCK_Q), torch.arange(256))
of_tiles = rows.unflatten(1, (-1, BLOCK_K))  # (queries, tiles, keys of a tile)
seen = (of_tiles.any(2).any(0).nonzero().flatten() * BLOCK_K).tolist()
whole = (of_tiles.all(2).all(0).nonzero().flatten() * BLOCK_K).tolist()
first = seen[0]
print("tiles that begin at", *seen, "are seen; whole and by all queries:", *whole)
print("visited:", dict(tile_figures.phase_tiles(window, BLOCK_Q, BLOCK_K))[q_start])

# %% [markdown]
# A kernel has no such map, and must get these numbers by arithmetic. P6 asks you for it. Here is another kernel with a
# band. For row i of a matrix it adds up the columns i to i + reach - 1, so it looks ahead, not back. Take a program
# with the rows r_start to r_end - 1. Three questions give the bounds of its loops:
#
# 1. Which is the first column that *any* row needs, and the last? The first row begins at r_start, and the last one
#    ends at r_end - 1 + reach - 1. A loop must begin where a tile begins, so round the first column down to a tile.
#    (r_start is such a place already.)
# 2. Which is the first column that *all* rows need? The *last* row's own, r_end - 1: the first whole tile begins there
#    or later.
# 3. And the last column that all rows need? The *first* row's last, r_start + reach - 1: whole tiles end there or
#    before.
#
# At the left end the first row decides where visiting begins, and the last row where whole tiles begin. At the right
# end the last row decides where visiting ends, and the first row where whole tiles end. Do not count in tiles (for
# example `tl.program_id(0) + reach // BLOCK`): a band can end inside a tile.

# %%
import triton
import triton.language as tl


@triton.jit
def add(total, X, r, start, end, reach, N, BLOCK: tl.constexpr, MASKED: tl.constexpr):
    for c_start in range(start, end, BLOCK):
        c = c_start + tl.arange(0, BLOCK)
        here = (r[:, None] < N) & (c[None, :] < N)
        x = tl.load(X + r[:, None] * N + c[None, :], mask=here, other=0.0)
        if MASKED:
            ahead = c[None, :] - r[:, None]
            x = tl.where((ahead >= 0) & (ahead < reach), x, 0.0)
        total += tl.sum(x, 1)
    return total


# %%
@triton.jit
def band_sums(X, OUT, N, reach, BLOCK: tl.constexpr):
    r_start = tl.program_id(0) * BLOCK
    r_end = r_start + BLOCK
    r = r_start + tl.arange(0, BLOCK)
    end = tl.minimum(r_end - 1 + reach, N)
    whole = tl.minimum((r_end - 1 + BLOCK - 1) // BLOCK * BLOCK, end)  # rounded up
    whole_end = tl.maximum(tl.minimum(r_start + reach, N) // BLOCK * BLOCK, whole)
    total = tl.zeros([BLOCK], tl.float32)
    total = add(total, X, r, r_start, whole, reach, N, BLOCK, MASKED=True)
    total = add(total, X, r, whole, whole_end, reach, N, BLOCK, MASKED=False)
    total = add(total, X, r, whole_end, end, reach, N, BLOCK, MASKED=True)
    tl.store(OUT + r, total, mask=r < N)


# %%
x = torch.randn(250, 250, generator=torch.Generator().manual_seed(0))
ahead = torch.arange(250)[None, :] - torch.arange(250)[:, None]
for reach in (1, 20, 64, 80, 1000):
    out = torch.empty(250)
    band_sums[(triton.cdiv(250, 32),)](x, out, 250, reach, 32)
    expected = (x * ((ahead >= 0) & (ahead < reach))).sum(1)
    print(f"reach {reach:4}, right: {torch.allclose(out, expected, atol=1e-4)}")

# %% [markdown]
# A window looks back where this band looks ahead. So the same three questions have other answers, and other rows
# decide.
#
# ### Predict before you run
#
# Make the window 20, smaller than a tile. Which phases are left, and how many tiles does a program visit?
#
# <details><summary>Answer</summary>
#
# The edge and the diagonal. No tile is inside: none is seen whole by all queries. From the second program on, each
# visits two tiles: its first query still looks back over the tile's border. (With a window of 1 it does not, and one
# tile is enough.) The first panel below shows it.
#
# The second and the third panel show sinks that meet the window's edge. A tile that holds both belongs to one phase
# alone, and that phase's mask must know both rules; else the keys are counted twice, or not at all.
# </details>

# %% tags=["hide-output"]
narrow = Case("window of 20", N=256, causal=True, window=20)
meeting = Case("window 60, 70 sinks", N=256, causal=True, window=60, sinks=70)
many = Case("window 9, 150 sinks", N=256, causal=True, window=9, sinks=150)
cases = [narrow, meeting, many]
draw.phase_maps(cases, [(32, 32)] * 3, "Small windows, many sinks")

# %% [markdown]
# ## Try it
#
# In Jupyter, the next cell has sliders for the length, the window, the sinks and the tile. Elsewhere the picture below
# it stands for them: one mask, three shapes of tiles.


# %%
def phases(N=256, window=80, sinks=40, block_q=32, block_k=32):
    case = Case("what you chose", N=N, causal=True, window=window, sinks=sinks)
    return draw.phase_maps([case], [(block_q, block_k)], "Which phase visits which tile")


blocks = [16, 32, 64, 128]
sizes = {"N": (16, 512, 1), "window": (1, 512, 1), "sinks": (0, 256, 1)}
draw.with_sliders(phases, **sizes, block_q=blocks, block_k=blocks)

# %%
shapes = [(32, 32), (64, 32), (32, 64)]
sizes = {"N": 256, "causal": True, "window": 80, "sinks": 40}
cases = [Case(f"{q} queries, {k} keys", **sizes) for q, k in shapes]
draw.phase_maps(cases, shapes, "A window of 80 and 40 sinks: three shapes of tiles")

# %% [markdown]
# Larger tiles are fewer, and hold more pairs that nobody needs. Which shape is fastest, only a GPU can tell.
#
# ## Fewer heads of keys: GQA
#
# A model computes attention in several *heads* at once, each with queries, keys and values of its own. In grouped-query
# attention (GQA), several query heads share one head of keys and values. This changes *where K and V are read*, and
# nothing about the mask: each query head has the same map of tiles as before.

# %%
draw.heads(8, [8, 2, 1])

# %% [markdown]
# With groups of four, a model keeps a quarter of the K and V. No copy is ever made: the kernel computes the address of
# the shared head. To see who reads what, change the values of one kv head, and look which query heads give another
# output. The kernel is the solution of P5.

# %% tags=["solution"]
from solutions.p5_gqa import flash_attention_forward

torch.manual_seed(0)
q, k, v = torch.randn(1, 8, 40, 16), torch.randn(1, 2, 40, 16), torch.randn(1, 2, 40, 16)
before = flash_attention_forward(q, k, v)
v[:, 1] += 1  # the second of two kv heads
changed = (flash_attention_forward(q, k, v) != before).flatten(2).any(2)[0]
print("query heads with another output:", changed.nonzero().flatten().tolist())

# %% [markdown]
# ## What a real kernel did
#
# So far these were plans. Now the solutions of P4, P6 and P7 run in the course's grader.
# It watches every load, and notes which tile of keys met which tile of queries. The mask is drawn over that as an
# outline. Without a GPU the solutions use tiles of 64 queries and 32 keys, so the grader catches a kernel that
# mixes up the two sizes.

# %% tags=["solution"]
from report.counting import traced

names = ["P4: causal", "P6: window of 80", "P7: 40 sinks as well"]
problems = ["p4", "p6", "p7"]
cases = [causal, window, sinks]
results = [traced.run(problem, case)[0] for problem, case in zip(problems, cases, strict=True)]
for name, case, result in zip(names, cases, results, strict=True):
    visited, planned = traced.tiles_visited(result), tile_figures.tiles_of(case, *traced.TILES)
    print(f"{name:22} {result.outcome.value}: {visited} tiles visited, {planned} in the plan")
draw.visits(cases, results, names)

# %% [markdown]
# ### Predict before you run
#
# A well-known mistake: the first tile is computed from tile numbers, `(q_start // BLOCK_K - window_size // BLOCK_K)`,
# in place of tokens. Each part looks right. For a window of 80 and tiles of 32, what is wrong? And for a window of 64?
#
# <details><summary>Answer</summary>
#
# 80 // 32 forgets the half tile that is left: the kernel starts a tile late, and the oldest keys of the window are
# never loaded. With a window of 64 nothing is left over, and nothing is missing. The first query of a program sees
# itself and 63 tokens before it, so its oldest key lies in the second tile to the left, just where the wrong formula
# starts. Whoever tests only windows of whole tiles never sees this mistake.
# </details>

# %% tags=["hide-output", "solution"]
import re

wrong = "first = tl.maximum(0, q_start // BLOCK_K - window_size // BLOCK_K) * BLOCK_K"
source, changed = re.subn(r"\bfirst = tl.*", wrong, traced.source_of("p6"))
assert changed == 1
whole = Case("window of 64", N=256, D=16, causal=True, window=64)
results = traced.run("p6", window, whole, source=source)
for result in results:
    print(f"{result.case}: {result.outcome.value}. {result.sentence.split('. ')[0]}")
draw.visits([window, whole], results, [window.name, whole.name])

# %% [markdown]
# The hatched keys were needed, and never loaded. (The grader has met this mistake before, and names it.) No error is
# raised: the output is a plausible average of fewer values. So the grader compares a kernel with the right answer, at
# windows and lengths that no tile divides.
#
# ## A tile that hides everything
#
# A tile at the window's edge can hide *all* of its keys from some rows. If it is the first tile of such a row, the
# running maximum of its scores is still minus infinity, and `-inf - (-inf)` is not a number.

# %%
q_start, first = 160, 64  # the program of P6 that we looked at above, and its first tile
first_keys = torch.arange(first, first + BLOCK_K)
queries = torch.arange(q_start, q_start + BLOCK_Q)
sees = window.visibility.mask(queries, first_keys).any(1)
blind = int((~sees).sum())
print(f"queries {q_start} to {q_start + BLOCK_Q - 1}: {blind} see nothing in their first tile")
new_max = torch.tensor(float("-inf"))
print("without care: exp2(-inf - -inf) =", torch.exp2(new_max - new_max).item())
print("with 0 in place of the maximum: exp2(-inf - 0) =", torch.exp2(new_max - 0.0).item())

# %% [markdown]
# A causal mask alone never does this: the first tile holds key 0, which every query sees. A window does. If a kernel
# visits the sinks first, its first tile holds key 0 again. That is no cure, for two reasons. P7 must also work with no
# sinks. And the softmax allows any order of tiles, so a kernel should not depend on which tile comes first.
#
# ## Work against N
#
# What do the phases save? One head's tiles, for sequences from 64 tokens to 16k.


# %% tags=["solution"]
def family(**mask):
    return lambda n: Case(f"{n}", N=n, D=16, **mask)


families = {"no mask": family(), "causal": family(causal=True)}
families["window 128\nand 64 sinks"] = family(causal=True, window=128, sinks=64)
families["window 128"] = family(causal=True, window=128)
measured = {}
for (name, made), problem in zip(families.items(), ["p3", "p4", "p7", "p6"], strict=True):
    ran = traced.run(problem, *(made(n) for n in (64, 128, 256, 512)))
    measured[name] = [(int(result.case), traced.tiles_visited(result)) for result in ran]
draw.work(families, [64 * 2**i for i in range(9)], traced.TILES, measured)

# %% [markdown]
# Both scales are logarithmic. Double N, and the upper lines grow about fourfold: causal is half as much work, and still
# quadratic. The lower lines grow about twofold once N is much longer than the window. That is what a window buys: cost
# in proportion to N x window. Sinks add the same few tiles to every program whose window is past them.

# %% tags=["solution"]
for n in (1024, 4096, 16384):
    each = families.items()
    counts = {name: tile_figures.tiles_of(made(n), *traced.TILES) for name, made in each}
    share = counts["window 128"] / counts["causal"]
    tiles = f"causal {counts['causal']:7,} tiles, window {counts['window 128']:6,}"
    print(f"N = {n:6,}: {tiles}: {share:.1%}")

# %% [markdown]
# Tiles are not seconds: a kernel also waits for memory, and pays for the start and the end of each program.
# [Notebook 7](07_reading_a_benchmark.ipynb) reads times.
#
# Why do models keep sinks at all? [This page](../report/SINKS.md) has a small model of ours read past the length of its
# training, through a window with and without them. `make generate` has that model write with your kernels.
#
# ## Exercises
#
# 1. Two phases, causal: where does the second begin if a tile has more queries than keys? (`make grade P=4`)
# 2. The same kernel for grouped heads: which line changes? (`make grade P=5`)
# 3. The window: compute the first tile for a window of 33, then 32, then 1, and check it on the sliders. (`make grade
#    P=6`)
# 4. Find on the sliders a tile that holds a sink and the window's edge. Which phase owns it? (`make grade P=7`)
# 5. Now build it: `problems/p4_causal.py` to `problems/p7_sinks_and_window.py`. `make show P=6 CASE="ragged tail"`
#    draws the tiles that your own kernel visits, as above.
#
# **Next:** [5. Block-sparse patterns](05_block_sparse.ipynb): masks that no arithmetic describes.
#
# ## References
#
# - Dao, [FlashAttention-2](https://arxiv.org/abs/2307.08691), 2023: section 3.1.1 says which blocks causal masking
#   skips.
# - Ainslie et al., [GQA](https://arxiv.org/abs/2305.13245), 2023: grouped heads.
# - Beltagy et al., [Longformer](https://arxiv.org/abs/2004.05150), 2020, and Jiang et al., [Mistral
#   7B](https://arxiv.org/abs/2310.06825), 2023: sliding windows.
# - Xiao et al., [Efficient Streaming Language Models with Attention Sinks](https://arxiv.org/abs/2309.17453), 2023.
