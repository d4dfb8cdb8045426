# %% [markdown]
# # 8. The backward pass
#
# **The forward keeps no probabilities. How can a kernel compute gradients from what is left, and in which tiles?**
#
# Training needs more than the output o. It needs to know how the loss changes when q, k and v change: the gradients dq,
# dk and dv. They come from `do`, the gradient of o, which the backward of the next layer computes. Two matrices are
# needed on the way:

# %% tags=["solution"]
import torch

from grader.core import in_process
from notebooks.pictures import backward as draw

in_process.begin()  # kernels run in the grader's machine: no GPU is needed

# %%
torch.manual_seed(8)
N, D, query, key = 6, 3, 3, 1
q, k, v, do = torch.randn(4, N, D, dtype=torch.float64)
visible = torch.ones(N, N, dtype=torch.bool).tril()  # (queries, keys), causal
leaves = [x.requires_grad_() for x in (q, k, v)]
scores = (q @ k.T / D**0.5).masked_fill(~visible, float("-inf"))
p = torch.softmax(scores, 1)
o = p @ v
right = torch.autograd.grad(o, [scores, *leaves], do)  # PyTorch's own answer
draw.marked(p, right[0], query, key)

# %% [markdown]
# On the left are the probabilities p, on the right ds, the gradient of the scores. Read either along a row or down a
# column:
#
# - **A row belongs to a query.** Row 3 of p weighs the values: that is o[3]. Row 3 of ds weighs the keys: dq[3].
# - **A column belongs to a key.** Column 1 holds all that was done with key 1. Column 1 of p weighs the rows of `do`:
#   that is dv[1]. Column 1 of ds weighs the queries: dk[1].
#
# The forward needs only rows. The backward needs both.
#
# ## Five products
#
# The backward computes five products of matrices: the scores again, and the four of this section. The forward is three
# lines; `scale` is one over the root of D:
#
# $$s = \text{scale}\; q k^T \qquad p_{ij} = \frac{e^{s_{ij}}}{\sum_c e^{s_{ic}}} \qquad o = p v$$
#
# Go back through them, the last one first. A letter d before a name means the gradient of the loss with respect to it.
#
# **From o to p and v.** Row i of o is the sum of $p_{ij} v_j$ over the keys. So $v_j$ acts on every query that sees key
# j, by the weight $p_{ij}$. And $p_{ij}$ acts on row i of o alone, by $v_j$:
#
# $$dv_j = \sum_i p_{ij}\, do_i \qquad dp_{ij} = do_i \cdot v_j$$
#
# **From p to the scores.** A larger score makes its own p larger, and all others in its row smaller, since a row adds
# up to 1. The derivative of $p_{ij}$ by $s_{ij}$ is $p_{ij} - p_{ij} p_{ij}$; that of another $p_{ic}$ of the row by
# $s_{ij}$ is $-p_{ic} p_{ij}$. Multiply each derivative by the gradient of its p, and add them up:
#
# $$ds_{ij} = p_{ij}\, dp_{ij} - p_{ij} \sum_c p_{ic}\, dp_{ic} = p_{ij}\, (dp_{ij} - \text{delta}_i)
# \qquad \text{delta}_i = \sum_c p_{ic}\, dp_{ic}$$
#
# **From the scores to q and k.** They are a product again, with a scale:
#
# $$dq_i = \text{scale} \sum_j ds_{ij}\, k_j \qquad dk_j = \text{scale} \sum_i ds_{ij}\, q_i$$

# %%
scale = D**-0.5
with torch.no_grad():
    dv = p.T @ do
    dp = do @ v.T
    delta = (p * dp).sum(1)
    ds = p * (dp - delta[:, None])
    dq = scale * ds @ k
    dk = scale * ds.T @ q
ours = {"ds": ds, "dq": dq, "dk": dk, "dv": dv}
for (name, found), expected in zip(ours.items(), right, strict=True):
    print(f"{name} is that of autograd: {torch.allclose(found, expected)}")

# %% [markdown]
# In the picture below a framed row is blue where it belongs to query 3, and orange where it belongs to key 1. Grey
# pairs are hidden by the mask: p and ds are 0 there. (dp is not 0 there, but nobody uses it.)

# %%
at = query, key
pT, dsT = ("pᵀ", p.T, "key", at), ("dsᵀ", ds.T, "key", at)
vT = ("vᵀ", v.T, "key's column", at)
of_do = ("do", do, "query", at)
with_do = [pT, ("do", do, None, at), ("dv", dv, "key", at)]
with_v = [of_do, vT, ("dp", dp, "cell", at)]
with_k = [("ds", ds, "query", at), ("k", k, None, at), ("dq", dq, "query", at)]
with_q = [dsT, ("q", q, None, at), ("dk", dk, "key", at)]
them = [("dv = pᵀ do", *with_do), ("dp = do vᵀ", *with_v)]
them += [("dq = scale ds k", *with_k), ("dk = scale dsᵀ q", *with_q)]
draw.products(them, visible, "Four of the five products; the fifth computes the scores again")

# %% [markdown]
# ## One number for each query: delta
#
# delta is the mean of a row of dp, weighted by p. The gradient of a score is above zero where its dp is above that
# mean, and below zero where it is below:

# %%
draw.one_row(p, dp, delta[query], ds, query)

# %% [markdown]
# delta needs a whole row of p and dp before the first ds can be computed. A kernel has one tile of them at a time. But
# in the sum, v can be taken together with p first:
#
# $$\text{delta}_i = \sum_c p_{ic}\, (do_i \cdot v_c) = do_i \cdot \sum_c p_{ic}\, v_c = do_i \cdot o_i$$
#
# The row of o is there already. So delta takes D multiplications for each query, whatever the number of keys:

# %%
with torch.no_grad():
    from_o = (do * o).sum(1)
print("query  sum of p * dp  sum of do * o")
for i in range(N):
    print(f"{i:5} {delta[i]:14.6f} {from_o[i]:14.6f}")

# %% [markdown]
# ### Predict before you run
#
# 1. What does a row of ds add up to? And a column?
# 2. Query 0 sees one key, its own. What is its row of ds?
# 3. You forget delta: ds = p dp. Which of dq, dk and dv are wrong?
#
# <details><summary>Answer</summary>
#
# 1. A row adds up to 0. Add the same number to all scores of a row, and p does not change
#    ([notebook 2](02_online_softmax.ipynb)); so the loss must not change either. A column adds up to nothing special.
# 2. It is 0: p is 1 whatever the score is. In numbers, dp is its own mean.
# 3. dq and dk. dv needs p and `do` alone. So a kernel can have dv right and the others wrong, and the first thing to
#    look at is delta.
# </details>

# %%
from notebooks.pictures.png import folded

with torch.no_grad():
    rows, columns = ds.sum(1).round(decimals=3) + 0.0, ds.sum(0)
    forgotten = {"dq": scale * (p * dp) @ k - dq, "dk": scale * (p * dp).T @ q - dk}
found = [f"rows of ds add up to    {'  '.join(f'{x:6.3f}' for x in rows)}"]
found += [f"columns of ds add up to {'  '.join(f'{x:6.3f}' for x in columns)}"]
for name, x in forgotten.items():
    found.append(f"without delta, {name} is off by up to {x.abs().max():.2f}")
folded(*found)

# %% [markdown]
# ## Why lse is enough
#
# Everything above needs p. The forward had it, tile by tile, and threw it away. To compute it again from q and k would
# take the maximum and the sum of each row, and they are known only at the row's end. The forward knew them there. It
# keeps both in one number for each query, lse = maximum + ln(sum) ([notebook 2](02_online_softmax.ipynb)). Then
#
# $$p_{ij} = \frac{e^{s_{ij}}}{\sum_c e^{s_{ic}}} = e^{s_{ij} - \text{lse}_i}$$
#
# for any pair by itself: no maximum, no sum, no rescaling, and the tiles in any order. It cannot overflow, since no p
# is above 1.

# %%
with torch.no_grad():
    lse = torch.logsumexp(scores, 1)
    again = torch.exp(scores - lse[:, None])
print("exp(scores - lse) is p:", torch.allclose(again, p))
i, j = query, key
print(f"pair ({i}, {j}): score {scores[i, j]:.4f}, lse {lse[i]:.4f}", end=", ")
print(f"exp of the difference {again[i, j]:.4f}, p {p[i, j]:.4f}")

# %% [markdown]
# So beside q, k, v and o the forward leaves lse, in float32, and nothing else. How much memory does that save? Here are
# 16 heads with a head dim of 128, in float16. The second line of each length is what PyTorch keeps for the backward of
# plain PyTorch code, and how much of that p takes. It is counted, with tensors that have no memory behind them, as in
# [notebook 1](01_memory_wall.ipynb).

# %%
from notebooks.pictures.operations import kept


def plain(q, k, v):
    return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v


for n in (1024, 4096, 16384):
    H, size, shape = 16, 128, (1, 16, n, 128)
    tensors, sums = 4 * H * n * size * 2, H * n * 4  # bytes of q, k, v and o; of lse
    MiB, whole = 2**20, kept(plain, shape, shape, shape)
    print(f"N = {n:6,}  q, k, v, o: {tensors / MiB:5,.0f} MiB, and lse: {sums / MiB:7.4f} MiB")
    p_alone = H * n * n * 2 / MiB
    print(f"{'':11} plain PyTorch: {whole / MiB:6,.0f} MiB, p of it {p_alone:6,.0f} MiB")

# %% [markdown]
# ### Predict before you run
#
# At which N is p of one head, in float16, as large as its q, k, v, o and lse together? The head dim is 128.
#
# <details><summary>Answer</summary>
#
# p takes 2 N N bytes, the others 4 x 128 x 2 N + 4 N = 1,028 N. They are equal at N = 514. Above that p grows with the
# square of N, and the others grow with N.
# </details>

# %%
found = []
for n in (257, 514, 1028):
    others = 4 * 128 * 2 * n + 4 * n
    found.append(f"N = {n:5,}: p {2 * n * n:9,} bytes, the others {others:9,} bytes")
folded(*found)

# %% [markdown]
# The price is that the scores are computed a second time.
#
# ## The mask from the key's side
#
# dq is a sum over keys, as o is. A program that owns a tile of queries walks over the same tiles of keys as the forward
# does ([notebook 4](04_masks_and_phases.ipynb)). dk and dv are sums over *queries*. A program that owns a tile of keys
# must know which queries see it. It walks down a column:

# %%
from grader.kinds.attention.cases import Case
from notebooks.pictures import key_phases

causal = Case("causal", N=256, causal=True)
window = Case("window of 80", N=256, causal=True, window=80)
sinks = Case("window of 80, 40 sinks", N=256, causal=True, window=80, sinks=40)
odd = Case("N = 250, tiles 64 x 32", N=250, causal=True, window=80)
cases = [causal, window, sinks, odd]
blocks = [(32, 32), (32, 32), (32, 32), (64, 32)]
draw.key_maps(cases, blocks, "Which phase of a column visits which tile")

# %% [markdown]
# Each column of tiles is one program, which walks it downwards from its first coloured tile. D, E and S are as in
# notebook 4, and as in X3, the lab that this page prepares. F (FULL) is the phase that notebook 4 drew as **\>**:
#
# - **D, the diagonal.** The first queries that see any of these keys: masked.
# - **F, seen by all.** Every query of the tile sees every key of it: no mask.
# - **E, the window's edge.** Some of the keys are too old by now for some of the queries.
# - **S, sinks.** For these far queries all keys of the tile are too old, but some of them are sinks. A sink is seen by
#   *every* later query, so the column goes on to the last one. Where all keys of a tile are sinks (the first column of
#   the third panel), the rest of the column is F: seen by all.
#
# In the last panel no tile is F: in a tile of 64 x 32 the distances from query to key differ by up to 63 + 31 = 94,
# more than a window of 80 allows.
#
# The questions are those of notebook 4, asked of the other side. Of a tile of keys:
#
# 1. Which is the first query that sees *any* of its keys, and which is the last? A key is seen by its own query first.
#    The last query that sees a key is window - 1 places further on; every later query sees a sink.
# 2. From which query on do *all* keys count? That depends on the youngest key, the last of the tile.
# 3. Up to which query do all of them count? That depends on the oldest key, the first of the tile.
#
# For one column, here is what can be read off the mask, and what X3's solution computes from four formulas. (X3 has
# another kernel for the sinks, see *Long columns* below; the pictures draw sinks in the same column.)

# %%
k_start, BLOCK_Q, BLOCK_K = 64, 32, 32
seen = window.visibility.mask(torch.arange(256), torch.arange(k_start, k_start + BLOCK_K))
of_tiles = seen.unflatten(0, (-1, BLOCK_Q))  # (tiles, queries of a tile, keys)
touched = (of_tiles.any(2).any(1).nonzero().flatten() * BLOCK_Q).tolist()
whole = (of_tiles.all(2).all(1).nonzero().flatten() * BLOCK_Q).tolist()
last = k_start + BLOCK_K - 1
print(f"keys {k_start} to {last}, from the mask: tiles {touched}, whole {whole}")
names = ("first", "diagonal_end", "inside_end", "end")
found = key_phases.bounds(window, k_start, BLOCK_Q, BLOCK_K)
print("X3:", ", ".join(f"{name} {x}" for name, x in zip(names, found, strict=True)))
words = ("diagonal", "inside", "edge or sinks")
phases = key_phases.phases(window, k_start, BLOCK_Q, BLOCK_K)
for name, starts in zip(words, phases, strict=True):
    print(f"  {name:13} from {starts.start:3} to {starts.stop:3}: tiles", list(starts))

# %% [markdown]
# `first`, `diagonal_end` and `inside_end` are multiples of BLOCK_Q; `end` need not be one. To find the formulas is the
# lab's second gap. The next cell runs the solution's own lines over many sizes. It counts how often each pair is added.
# A masked phase adds only visible pairs; the phase without a mask adds every pair of its tiles.

# %%
from itertools import product


def added(case, block_q, block_k):
    """(wanted, counted): the mask, and how often each pair is added to dk and dv."""
    wanted = case.visibility.mask(torch.arange(case.N), torch.arange(case.N)).int()
    counted = torch.zeros_like(wanted)
    for k_start in range(0, case.N, block_k):
        phases = key_phases.phases(case, k_start, block_q, block_k)
        for masked, starts in zip((True, False, True), phases, strict=True):
            for q in starts:
                tile = slice(q, q + block_q), slice(k_start, k_start + block_k)
                counted[tile] += wanted[tile] if masked else 1
    return wanted, counted


# %%
masks = {"causal": (None, None), "window 1": (1, None), "window 20": (20, None)}
masks |= {"window 80": (80, None), "80, sinks 40": (80, 40), "9, sinks 150": (9, 150)}
shapes = list(product((16, 32, 64), (16, 32, 64)))
for name, (size, first) in masks.items():
    right_ones = 0
    for n, (block_q, block_k) in product((250, 256), shapes):
        case = Case(name, N=n, causal=True, window=size, sinks=first)
        right_ones += torch.equal(*added(case, block_q, block_k))
    tried = 2 * len(shapes)
    print(f"{name:13} each visible pair once, no other: {right_ones} of {tried} right")

# %% [markdown]
# ### Predict before you run
#
# The tiles are not square now. With 64 queries and 32 keys: how can a program's first tile of queries begin *before*
# its first key? With 32 queries and 64 keys: how many tiles has the diagonal?
#
# <details><summary>Answer</summary>
#
# The walk begins at a multiple of BLOCK_Q, and k_start is a multiple of BLOCK_K. Where BLOCK_Q is the larger, the first
# key may lie in the middle of a tile of queries: its first half sees none of these keys, and only the mask knows that.
# Where BLOCK_K is the larger, the diagonal runs through two tiles of queries.
# </details>

# %% tags=["hide-output"]
shapes = [(32, 32), (64, 32), (32, 64)]
sizes = {"N": 256, "causal": True, "window": 120, "sinks": 40}
cases = [Case(f"{a} queries, {b} keys", **sizes) for a, b in shapes]
draw.key_maps(cases, shapes, "A window of 120 and 40 sinks: three shapes of tiles")

# %% [markdown]
# ## Long columns
#
# The kernel of dq owns queries, that of dk and dv owns keys. Both must visit every tile with a visible pair and no
# other: the same tiles. But they divide them differently.
#
# ### Predict before you run
#
# 16k tokens, a window of 128, 4 sinks, tiles of 64 x 64. Of the programs that own queries, how many tiles does the
# longest visit? And the longest that owns keys?
#
# <details><summary>Answer</summary>
#
# Few tiles from the query's side: three of the window and one of sinks. From the key's side, the program of the first
# tile visits all 256 tiles of queries, because of four keys; every other visits three or fewer. A launch is done when
# its longest program is done. So X3's solution takes the sinks out of this launch: a kernel of their own has a program
# for every eight tiles of queries, and what these find is added up.
# </details>

# %%
long = Case("long", N=16384, causal=True, window=128, sinks=4)
of_queries, of_keys = draw.lengths_of(long, 64)
lines = []
for name, counts in (("queries", of_queries), ("keys", of_keys)):
    most, next_one = sorted(counts, reverse=True)[:2]
    found = f"longest {most:3}, next {next_one}, all together {sum(counts):,}"
    lines.append(f"owns {name:8} {found}")
folded(*lines)

# %%
draw.program_lengths([causal, window, sinks], 32)

# %% [markdown]
# Even a plain causal mask exchanges long and short: late queries see many keys, and early keys are seen by many
# queries. So the kernel of dq starts with its last tile and the kernel of dk and dv with its first: long work first
# ([notebook 6](06_program_order.ipynb)).
#
# ## Try it
#
# In Jupyter, the next cell has sliders for the length, the window, the sinks and the tile. Elsewhere the pictures above
# stand for them.


# %%
from notebooks.pictures.masks_and_phases import with_sliders


def chosen(N=256, window=80, sinks=40, block_q=32, block_k=32):
    case = Case("what you chose", N=N, causal=True, window=window, sinks=sinks)
    title = "Which phase of a column visits which tile"
    return draw.key_maps([case], [(block_q, block_k)], title)


sizes = {"N": (16, 512, 1), "window": (1, 512, 1), "sinks": (0, 256, 1)}
with_sliders(chosen, **sizes, block_q=[16, 32, 64, 128], block_k=[16, 32, 64, 128])

# %% [markdown]
# ## Is a gradient right?
#
# A gradient can be tested without deriving its formulas a second time. Move all inputs a little along some direction,
# by a step h, and look how much the loss changes. Here the loss is the sum of do * o, whose gradient with respect to o
# is do:
#
# $$\frac{\text{loss}(x + h e) - \text{loss}(x - h e)}{2 h} \approx dx \cdot e$$
#
# The direction e covers q, k and v at once, so one number tests all three gradients. Its entries are random and about
# as large as 1: each input moves by about h. The loss, the gradients and the quotient:


# %%
def loss(q, k, v, do, visible):
    scores = (q @ k.T / q.shape[1] ** 0.5).masked_fill(~visible, float("-inf"))
    return (do * (torch.softmax(scores, 1) @ v)).sum()


def gradients(q, k, v, do, visible):
    scale = q.shape[1] ** -0.5
    scores = (scale * q @ k.T).masked_fill(~visible, float("-inf"))
    lse, o = torch.logsumexp(scores, 1), torch.softmax(scores, 1) @ v
    p = torch.exp(scores - lse[:, None])
    ds = p * (do @ v.T - (do * o).sum(1)[:, None])
    return scale * ds @ k, scale * ds.T @ q, p.T @ do


# %%
def difference(inputs, do, visible, along, step, dtype):
    ends = []
    for sign in (1, -1):
        moved = [(x + sign * step * e).to(dtype) for x, e in zip(inputs, along, strict=True)]
        ends.append(loss(*moved, do.to(dtype), visible))
    return ((ends[0] - ends[1]) / (2 * step)).item()


# %% [markdown]
# ### Predict before you run
#
# float64 keeps about 16 digits. Which step gives the smallest error: 1e-2, 1e-5, 1e-8 or 1e-11? And in float32, with
# about 7 digits?
#
# <details><summary>Answer</summary>
#
# 1e-5. Two errors meet. *Curvature*: the quotient is that of a line through two points, and the loss is bent. Between
# x - h and x + h the error is about h squared; it is 100 times smaller when h is 10 times smaller. *Rounding*: the two
# losses agree in almost all digits, and their difference keeps only the last ones. Its error is a rounding error, about
# 1e-16 of the loss, divided by h: 10 times larger when h is 10 times smaller. They meet near the third root of 1e-16,
# between 1e-6 and 1e-5.
#
# In float32, 1e-2 is the best of the four. The two errors meet between 1e-3 and 1e-2, at an error of about 1e-4: too
# large to tell a right gradient from one that is slightly wrong. So make such a check in float64.
# </details>

# %% tags=["varies", "hide-output"]
torch.manual_seed(0)
n = 24
visible = torch.ones(n, n, dtype=torch.bool).tril()
*inputs, do = torch.randn(4, n, 8, dtype=torch.float64)
grads = gradients(*inputs, do, visible)
ways = draw.directions(32, *(x.shape for x in inputs))
slopes = draw.slopes(grads, ways)
steps, table = [10.0**-i for i in range(13)], {"float64": [], "float32": []}
for step, name in product(steps, table):
    dtype = getattr(torch, name)
    quotients = [difference(inputs, do, visible, way, step, dtype) for way in ways]
    table[name].append(draw.furthest(quotients, slopes))
print("   step   float64   float32")
for step, wide, narrow in zip(steps, *table.values(), strict=True):
    print(f"{step:7.0e} {wide:9.0e} {narrow:9.0e}")

# %% tags=["varies", "hide-output"]
title = "A difference quotient beside the gradient: its error against the step"
draw.errors(steps, table, title)

# %% [markdown]
# The table holds the largest error of 32 directions, over the largest slope. Where curvature wins, a step 10 times
# smaller makes the error 100 times smaller; where rounding wins, 10 times larger. (At the smallest steps a float32
# input no longer changes: the quotient is 0, and its error is 1.) Neither end says anything about the gradient: a bad
# step looks like a wrong formula.
#
# With a good step, wrong formulas stand out:

# %%
dq, dk, dv = grads
step = 1e-5
less = dv.clone()
less[-1] = 0
wrong = {"all right": grads, "dk without its scale": (dq, dk * 8**0.5, dv)}
wrong["dq with the wrong sign"] = -dq, dk, dv
wrong["dv of the last key lost"] = dq, dk, less
wide = torch.float64
quotients = [difference(inputs, do, visible, way, step, wide) for way in ways]
for name, them in wrong.items():
    off = draw.furthest(draw.slopes(them, ways), quotients)
    print(f"{name:24} off by {f'{off:.4f}' if off > 1e-6 else 'less than 1e-6'}")

# %% [markdown]
# The last one is wrong in one row of 24, and random directions see it all the same. But they do not say *where* it is
# wrong. A grader compares every element with a float64 gradient instead, and can name the row.
#
# ## What it costs
#
# Each product of two tiles takes the same number of multiplications: BLOCK_Q x BLOCK_K x D. So count products. The
# forward has two: the scores, and p with v. The backward has five. Without sinks X3 has two kernels for them, one that
# owns keys and one that owns queries, and each needs p and dp: so two products are made twice (orange).

# %%
forward, five = ["scores", "o"], ["scores", "dp", "dv", "dk", "dq"]
seven = ["scores", "dp", "dv", "dk", "scores*", "dp*", "dq"]
rows = [("forward", forward), ("backward, one kernel", five), ("backward, two kernels", seven)]
kernels = [(0, 4, "the kernel that owns keys"), (4, 7, "the one that owns queries")]
draw.counted(rows, kernels, "Products of tiles, for each tile that is not empty")

# %% [markdown]
# Why not one kernel? If a program owns keys, its part of dq is only one summand of many: each program must add to rows
# of dq that others add to as well. That takes atomic additions in float32, in any order. The result then differs in its
# last bits from run to run. Two kernels pay two products more, and each row has one owner.
#
# In numbers, for a batch of 4, 16 heads and 8k tokens, causal; two FLOPs for a multiplication and its addition:

# %%
from grader.gpu.peaks import peak
from solutions import x3_backward as x3

shape = Case("", B=4, Hq=16, N=8192, D=128, causal=True)
pairs = shape.B * shape.Hq * shape.visibility.pairs(8192, 8192)
counts = {"forward": draw.dots(x3.attend), "five products": 5}
counts["X3's two kernels"] = draw.dots(x3.add_queries, x3.add_keys)
for name, count in counts.items():
    flops = count * 2 * pairs * shape.D
    least = flops / peak("NVIDIA H200").tflops / 1e9
    print(f"{name:16} {count} products, {flops / 1e12:5.2f} TFLOP", end="; ")
    print(f"on an H200 at least {least:4.2f} ms; {count / 2:.1f} times the forward")

# %% [markdown]
# The usual credit of a backward is five products, however many a kernel makes: the scores and dp, which both of X3's
# kernels compute, count once. With that credit, a kernel of seven can reach at most 5/7 of the peak: [notebook
# 7](07_reading_a_benchmark.ipynb), *whose FLOPs?*
#
# And memory, for the same shape in float16: what must be there while the backward runs, beside q, k, v, o, do and the
# three results. Plain PyTorch holds p and dp as whole matrices at the least.

# %%
heads, n = shape.B * shape.Hq, shape.N
GiB = 2**30
print(f"lse and delta, float32:        {2 * heads * n * 4 / GiB:8.4f} GiB")
print(f"p and dp, N x N, float16:      {2 * heads * n * n * 2 / GiB:8.4f} GiB")
print(f"q, k, v, o, do, dq, dk and dv: {8 * heads * n * shape.D * 2 / GiB:8.4f} GiB")

# %% [markdown]
# ## The lab's own kernels
#
# X3's solution: 4 query heads share 2 kv heads, 50 tokens, a window of 20, 4 sinks. The right
# answer is autograd's, in float64. It repeats k and v for the query heads that share them, so its dk and dv are sums
# over these heads: a kernel must add them up as well.


# %%
def truth(do, q, k, v, visible):
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    shared = [x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in leaves[1:]]
    scores = leaves[0] @ shared[0].mT / q.shape[3] ** 0.5
    p = torch.softmax(scores.masked_fill(~visible, float("-inf")), -1)
    return torch.autograd.grad(p @ shared[1], leaves, do.double())


small = Case("", Hq=4, Hkv=2, N=50, D=16, causal=True, window=20, sinks=4)
visible = small.visibility.mask(torch.arange(50), torch.arange(50))
torch.manual_seed(0)
q, do = torch.randn(2, 1, 4, 50, 16)
k, v = torch.randn(2, 1, 2, 50, 16)

# %%
mask = {"window_size": 20, "sink_size": 4}
o, lse = x3.attention_forward(q, k, v, **mask)
found = x3.attention_backward(do, q, k, v, o, lse, **mask)
right = truth(do, q, k, v, visible)
for name, x, expected in zip(("dq", "dk", "dv"), found, right, strict=True):
    error = draw.largest(x, expected)
    close = "less than 1e-5" if error < 1e-5 else f"{error:.1e}"
    print(f"{name} {tuple(x.shape)}: its largest error is {close} of its largest number")
again = x3.attention_backward(do, q, k, v, o, lse, **mask)
print("the same bits in a second run:", all(map(torch.equal, found, again)))

# %% [markdown]
# ## Does it train?
#
# `kernels/attention_op.py` puts X3's forward and backward behind autograd. With it a tiny transformer was trained on
# a GPU, and twice more with two of PyTorch's own attentions, from the same weights and on the same batches. Its task is
# to repeat 128 tokens that it has read; for 200 steps it guesses, then it finds out how. The right panel has the
# differences of the losses ([the page](../report/TRAINING.md) counts them):

# %%
draw.training()

# %% [markdown]
# The three roundings differ, so no two trainings are the same. Let d be the distance between PyTorch's two losses. In
# about five sixths of the steps, our loss is within 2 d of the nearer of the two.
#
# ## Exercises
#
# 1. On paper: a query sees two keys, p = (0.25, 0.75), dp = (1, -1). Compute delta and ds. What do they add up to?
# 2. All rows of v are equal. What are dq and dk, without any calculation? Check it with `gradients`.
# 3. On the sliders, no sinks and tiles of 32 x 32: from which window on does a column have an F? And with tiles of 64
#    x 32? Which key and which query decide?
# 4. A difference quotient from one side, (loss(x + h e) - loss(x)) / h, has a curvature error of about h. Which step is
#    its best in float64? Change `difference` and see.
# 5. A row whose keys are all hidden has lse = -inf. What is exp(score - lse) there? Why can it not happen with these
#    masks, and where would it with a mask of your own?
# 6. Now build it: `problems/x3_backward.py`, and `make grade P=x3`. Its nine gaps can be tried in order: dv first, then
#    dk, then dq.
#
# **Next:** [9. Decode](09_decode.ipynb): one query against a long cache, in pieces and pages.
#
# ## References
#
# - Dao et al., [FlashAttention](https://arxiv.org/abs/2205.14135), 2022: appendix B.2 derives the backward and takes
#   delta from o.
# - Dao, [FlashAttention-2](https://arxiv.org/abs/2307.08691), 2023: algorithm 2, a backward that keeps lse alone and
#   adds up dq by atomics.
# - Rabe, Staats, [Self-attention Does Not Need O(n²) Memory](https://arxiv.org/abs/2112.05682), 2021: a backward that
#   computes again what it did not keep.
# - Baydin et al., [Automatic Differentiation in Machine Learning: a Survey](https://arxiv.org/abs/1502.05767), 2018:
#   difference quotients, and their error against the step.
