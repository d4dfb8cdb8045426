# %% [markdown]
# # 3. A first Triton kernel
#
# **How does one kernel become thousands of workers, and what does each of them touch?**
#
# A kernel is a function for the GPU. It is written once and run many times at once; each run, a **program**, knows only
# its number. From the number it works out what is its own. Here each number in x is multiplied by its column's weight
# and added up along its row:

# %%
from grader.core import in_process
from notebooks.pictures import first_triton_kernel as draw

in_process.begin()  # kernels run in the grader's machine: no GPU is needed
ROWS, COLUMNS, BLOCK_R, BLOCK_C = 18, 27, 4, 8
draw.bands(ROWS, COLUMNS, BLOCK_R, BLOCK_C)

# %% [markdown]
# Each program owns four rows, and the four sums at the right. It holds one **tile** of 4 x 8 numbers at a time, in 32
# **lanes**, a number each, and walks along its band. Neither 18 rows nor 27 columns fit the tiles: the last ones reach
# past the end.
#
# On this page the kernel for this picture is built line by line, and then turned into FlashAttention, which has the
# same shape: bands of queries, tiles of keys. (A weighted sum as the first example is an idea of Stanford's CS336.)
#
# ## As the formula says

# %%
import torch

torch.manual_seed(363)
x, w = torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS)
right = (x * w).sum(1)  # one sum for each row
print("18 sums:", *(f"{s:.2f}" for s in right[:5]), "...")

# %% [markdown]
# ## Which rows are mine?
#
# `@triton.jit` makes a kernel of a function. `who[(3,)](4)` *launches* it: `(3,)` is the **grid**, the number of
# programs; what follows are the arguments. `tl.arange` makes a row of numbers that the program holds at once. `print`
# shows what program 0 holds. So that we see the others, each writes its number where its rows are: the last line, which
# the next section explains.

# %%
import triton
import triton.language as tl


@triton.jit
def who(OWNER, BLOCK: tl.constexpr):
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    print("program 0 owns rows", r)
    tl.store(OWNER + r, tl.program_id(0))


owner = torch.full((12,), -1)
who[(3,)](owner, 4)
print("the owners of 12 rows:", owner.tolist())

# %% [markdown]
# There is no loop over rows, and no program assigns rows to others: each program computes its own in the line
# `r = ...`. On a GPU the numbers of a tile are spread over a hundred threads or more, which Triton arranges: you write
# for whole tiles.
#
# ## Where are they? Pointers and strides
#
# A kernel gets no matrix. It gets a **pointer**, the address of the first element, and must itself work out where the
# others lie. Memory is one long line. A tensor's **strides** say how far to go along it for the next row, and for the
# next column, in elements:
#
# ```
# address of row r, column c  =  start + r * stride_r + c * stride_c
# ```

# %%
numbers = torch.arange(24).view(4, 6)
names = ["x", "x.T", "x[1:, ::2]"]
views = [numbers, numbers.T, numbers[1:, ::2]]
draw.layouts(views, names)

# %% [markdown]
# The same memory, three matrices: turned on its side, or with gaps, without copying a number. All that changes are the
# strides and the start. So a kernel that takes strides as arguments works on all three; one that assumes
# `r * COLUMNS + c` works on the first alone. (A GPU is fastest where neighbours in a tile are neighbours in memory. The
# problems of this course promise that for the last dimension: its stride is 1.)
#
# ## A first kernel
#
# In Triton a pointer plus a tile of numbers is a tile of pointers, and `tl.load` fetches them all at once. `r[:, None]`
# is a column and `c[None, :]` a row, as in NumPy; together they make a tile.


# %%
@triton.jit
def one_tile(X, W, OUT, stride_r, stride_c, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.arange(0, BLOCK_C)
    x = tl.load(X + r[:, None] * stride_r + c[None, :] * stride_c)  # (BLOCK_R, BLOCK_C)
    w = tl.load(W + c)  # (BLOCK_C,)
    tl.store(OUT + r, tl.sum(x * w[None, :], 1))


square, weights, out = torch.randn(32, 32), torch.randn(32), torch.empty(32)
for name, view in {"x": square, "x.T": square.T}.items():
    one_tile[(8,)](view, weights, out, *view.stride(), 4, 32)
    print(f"{name:4} right:", torch.allclose(out, view @ weights, atol=1e-5))

# %% [markdown]
# It works, because 32 rows are eight times four, and 32 columns are just one tile. Now our 18 x 27.
#
# ### Predict before you run
#
# Five programs, tiles of 4 x 32, and nothing else changed. Which of the 18 sums are wrong? What error is raised?
#
# To see what happens in full, the tensors of the next cell lie in a stretch of memory that is ours; `around` is what
# stands between them.
#
# <details><summary>Answer</summary>
#
# No error at all. In each row five lanes too many read the beginning of the *next row*, and multiply it by whatever
# follows w in memory. If zeros follow, all sums are right, and the test passes. If something else does, all are wrong.
# And five programs store 20 sums: two numbers of somebody else are overwritten, in both cases.
#
# A GPU does the same, with the data of some other tensor; or, if the address belongs to nobody, it stops with "an
# illegal memory access", perhaps long after the kernel was launched.
# </details>


# %%
def launch_in(memory):
    """Put x, w and room for the sums into memory, sevens behind them, and run the kernel."""
    x_there, w_there = memory[100:586].view(ROWS, COLUMNS), memory[700:727]
    out = memory[800:818]
    x_there.copy_(x), w_there.copy_(w)
    memory[818:] = 7.0
    one_tile[(5,)](x_there, w_there, out, COLUMNS, 1, 4, 32)
    return out


# %%
from notebooks.pictures.png import folded

found = []
for around in (0.0, 100.0):
    memory = torch.full((1000,), around)
    wrong = ((launch_in(memory) - right).abs() > 1e-4).sum()
    lost = (memory[818:] != 7).sum()
    found.append(f"around = {around:5}: {wrong} sums wrong, sevens overwritten: {lost}")
folded(*found)

# %% [markdown]
# Here is where the lanes went, by the grader's own instrument: **observers** note each address that a kernel touches.

# %%
from notebooks.pictures import kernel_runs
from notebooks.pictures.watched import Watched

out = torch.empty(ROWS)
with Watched() as seen:
    one_tile[(5,)](x, w, out, *x.stride(), 4, 32)
seen.say()
first, last = seen.of("X", 0)[0], seen.of("X", 4)[0]
kernel_runs.spills([first, last], x.shape, (4, 32), ["program 0", "program 4"])

# %% [markdown]
# They report accesses outside a tensor. An access inside it, but in the wrong row, only gives a wrong result. So the
# grader needs both: observers, and a comparison with the right answer on sizes that no tile divides.
#
# ## Masks
#
# `mask=` switches lanes off: they touch no memory. A load still gives them a value, that of `other=`. For a sum, choose
# `other=0.0`. Without `other=` the value is **undefined**: a GPU may leave anything there, zeros in all your tests. The
# machine fills in NaN in one program and a large number in the next, so that it shows:


# %%
@triton.jit
def forgetful(X, W, OUT, stride_r, ROWS, COLUMNS, BLOCK_R: tl.constexpr,
              BLOCK_C: tl.constexpr):  # fmt: skip
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.arange(0, BLOCK_C)
    here = (r[:, None] < ROWS) & (c[None, :] < COLUMNS)
    x = tl.load(X + r[:, None] * stride_r + c[None, :], mask=here)
    w = tl.load(W + c, mask=c < COLUMNS, other=0.0)
    tl.store(OUT + r, tl.sum(x * w[None, :], 1), mask=r < ROWS)


# %%
with Watched() as seen:
    forgetful[(5,)](x, w, out, COLUMNS, ROWS, COLUMNS, 4, 32)
print("right:", *(f"{s:.2f}" for s in right[:5]), "...")
print("found:", *(f"{s:.2f}" for s in out[:5]), "...")
seen.say()

# %% [markdown]
# (The weights of those lanes are 0, which does not help: NaN times 0 is NaN. The fifth row belongs to the next
# program, which got large numbers, and a large number times 0 is 0.)
#
# ## A loop over tiles
#
# A row of a hundred thousand numbers does not fit into one tile. So the program takes a tile of columns at a time, and
# carries what it has so far in an **accumulator**. This is the whole kernel of the picture at the top:


# %%
@triton.jit
def weighted_sum(X, W, OUT, stride_r, stride_c, ROWS, COLUMNS, BLOCK_R: tl.constexpr,
                 BLOCK_C: tl.constexpr):  # fmt: skip
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)  # (BLOCK_R,), my rows
    acc = tl.zeros([BLOCK_R], tl.float32)
    for start in range(0, COLUMNS, BLOCK_C):
        c = start + tl.arange(0, BLOCK_C)  # (BLOCK_C,), this tile's columns
        here = (r[:, None] < ROWS) & (c[None, :] < COLUMNS)
        x = tl.load(X + r[:, None] * stride_r + c[None, :] * stride_c, mask=here, other=0.0)
        w = tl.load(W + c, mask=c < COLUMNS, other=0.0)
        acc += tl.sum(x * w[None, :], 1)
    tl.store(OUT + r, acc, mask=r < ROWS)


# %% [markdown]
# How many programs? Enough for all rows: 18 / 4, rounded up, which is `triton.cdiv`. The caller chooses the grid; the
# kernel's masks take care of what the rounding adds.


# %%
def row_sums(x, w, block_r=BLOCK_R, block_c=BLOCK_C):
    out = torch.full((x.shape[0],), torch.nan)
    grid = (triton.cdiv(x.shape[0], block_r),)
    weighted_sum[grid](x, w, out, *x.stride(), *x.shape, block_r, block_c)
    return out


wide = torch.randn(2 * ROWS, 2 * COLUMNS)
views = {"x": x, "turned on its side": x.T.contiguous().T, "with gaps": wide[::2, ::2]}
for name, view in views.items():
    agree = torch.allclose(row_sums(view, w), view @ w, atol=1e-5)
    print(f"{name:19} strides {view.stride()!s:9}", agree)
for block_r, block_c in ((1, 1), (2, 16), (32, 32)):
    agree = torch.allclose(row_sums(x, w, block_r, block_c), right, atol=1e-5)
    print(f"tiles of {block_r:2} x {block_c:2}:", agree)

# %% [markdown]
# ### Constants, and powers of two
#
# `BLOCK_R` and `BLOCK_C` are marked `tl.constexpr`: they are known when the kernel is compiled, because the shapes of
# tiles decide which registers and instructions are used. Other values make another compiled kernel. `ROWS` and
# `COLUMNS` are ordinary numbers, and one compiled kernel serves many of them. (Triton compiles extra versions where
# such a number is 1 or a multiple of 16: addresses are simpler then.) The sides of a tile must be such constants, and
# powers of two. Both are checked even here:


# %%
@triton.jit
def of_columns(COLUMNS: tl.constexpr):
    tl.arange(0, COLUMNS)


@triton.jit
def of_a_number(COLUMNS):
    tl.arange(0, COLUMNS)


for kernel, size in ((of_columns, 32), (of_columns, 27), (of_a_number, 32)):
    try:
        print(f"{kernel.__name__}({size}):", kernel[(1,)](size) and "no error")
    except in_process.DoesNotRun as error:
        print(f"{kernel.__name__}({size}):", error)

# %% [markdown]
# That is why every kernel has masks: tiles come in powers of two, and tensors in any size.
#
# ## The grid
#
# A grid may have up to three dimensions. In P3, the course's third problem, a program is a tile of queries of one head
# (a Q, K and V of its own) of one text of the batch:

# %%
draw.grids(triton.cdiv(ROWS, BLOCK_R), 5, 4, 2)

# %% [markdown]
# And so one kernel becomes thousands of workers. How many, in a real call?

# %% tags=["solution"]
from solutions import p3_flash_attention as p3

B, H, N, D = 4, 16, 16384, 128
block_q = p3.TILES[D][0][0]
programs = triton.cdiv(N, block_q) * H * B
print(f"B={B} H={H} N={N:,}, tiles of {block_q} queries: {programs:,} programs, one launch")

# %% [markdown]
# A large GPU has a hundred processors or more. Each takes a program or a few, and another whenever one ends, in any
# order. So no program may count on another having run before it.
#
# ## What the machine does
#
# Triton's compiler goes many steps from a kernel to the instructions of a GPU. After the first it has a list of
# operations on whole tiles. The grader's machine executes that list on the CPU, for all programs of the grid at once,
# with PyTorch. While we watch, it runs one program after the other, so that the accesses have an order to show:

# %%
out = torch.empty(ROWS)
with Watched() as seen:
    weighted_sum[(5,)](x, w, out, *x.stride(), *x.shape, BLOCK_R, BLOCK_C)
panels = {"X": "address\nin x", "W": "in w", "OUT": "in out"}
words = "Five programs: each walks through its rows of x, reads all of w, and stores four sums"
kernel_runs.in_order(seen.steps, panels, "Every load and store, one after the other", words)

# %% [markdown]
# Each program walks through its own rows of x (four short stretches at a time: the rows of the tile), reads *all* of w,
# and stores once. The bytes follow from that, and are counted. How often w is read depends on the height of
# the bands:

# %%
for block_r in (1, 4, 16, 32):
    programs, out = triton.cdiv(ROWS, block_r), torch.empty(ROWS)
    with Watched() as seen:
        weighted_sum[(programs,)](x, w, out, *x.stride(), *x.shape, block_r, BLOCK_C)
    formula = {"X": 4 * ROWS * COLUMNS, "W": 4 * COLUMNS * programs, "OUT": 4 * ROWS}
    moved = ", ".join(f"{name.lower()} {count:4}" for name, count in seen.moved().items())
    agrees = "the formula agrees" if seen.moved() == formula else formula
    print(f"programs: {programs:2}; bytes: {moved};", agrees)

# %% [markdown]
# Taller tiles, fewer bytes: the first rule of fast kernels. Its limit is what the machine cannot show: the tiles must
# fit into the registers.
#
# The layout matters too. The memory of an NVIDIA GPU is read in pieces of 32 bytes, eight of our numbers. A load of one
# number fetches all eight. So we count the pieces that the loads touch, of a matrix of 32 x 32 in three layouts:

# %%
import numpy as np

views = {"x": square, "x.T": square.T, "with gaps": torch.randn(64, 64)[::2, ::2]}
for name, view in views.items():
    with Watched() as seen:
        row_sums(view, weights)
    pieces = sum(len(np.unique(step.elements // 8)) for step in seen.of("X"))
    print(f"{name:9} asked for {seen.moved()['X']:,} bytes, touched {32 * pieces:,}")

# %% [markdown]
# The tile is 4 x 8. In x each of its rows is one piece. In x.T neighbours in memory stand in a column; the tile is 4
# high, so it uses half of each piece. With gaps it uses every other number. (A cache may keep a piece until another
# program wants the rest.) All three results are right, so only a count or a clock tells them apart.
#
# ### What the machine shows, and what it does not
#
# Triton has an interpreter of its own (`TRITON_INTERPRET=1`). It runs a kernel's Python line by line, so a debugger
# stops in it:
#
# | | Triton's interpreter | the grader's machine | a GPU |
# |---|---|---|---|
# | the result | yes | yes | yes |
# | `print`, `breakpoint()` | of each program, yes | of program 0, no | of each program, no |
# | reads past a tensor | whatever is there, or a crash | reported, with the line | whatever is there, or an error |
# | lanes without `other=` | zeros | NaN or a large number, reported | anything |
# | two programs, one element | the last one wins | reported | any of them wins |
# | bytes and tiles, counted | no | yes | yes, with a profiler |
# | seconds, registers, shared memory | no | no | yes |
# | `tl.dot` of float32 | in full precision | in full precision | tf32 on NVIDIA's, unless told otherwise |
# | bfloat16 | not to be trusted | right | right |
#
# So a kernel that is right in the machine may still be slow, or too big.
#
# ### Predict before you run
#
# Suppose that the programs run in reverse order, the last one first. Do the sums change? And if the columns are shared
# out as well, so that each *tile* has a program of its own, and each stores the sum of its tile?
#
# <details><summary>Answer</summary>
#
# The sums do not change, to the last bit: no program reads or writes what another one writes. Every kernel should be
# like that, since a GPU keeps no order.
#
# With a program for each tile, four programs store to the same element. The last one wins, and its sum is that of
# one tile only. In reverse order another one wins. On a GPU it can be another one each time, or the same one in a
# hundred tests. That is a **race**. The observers see it in any order: they note who wrote what.
# </details>


# %%
@triton.jit
def split_sum(X, W, OUT, stride_r, stride_c, ROWS, COLUMNS, BLOCK_R: tl.constexpr,
              BLOCK_C: tl.constexpr):  # fmt: skip
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)  # a program for each tile
    here = (r[:, None] < ROWS) & (c[None, :] < COLUMNS)
    x = tl.load(X + r[:, None] * stride_r + c[None, :] * stride_c, mask=here, other=0.0)
    w = tl.load(W + c, mask=c < COLUMNS, other=0.0)
    tl.store(OUT + r, tl.sum(x * w[None, :], 1), mask=r < ROWS)


def run(kernel, grid):
    out = torch.empty(ROWS)
    kernel[grid](x, w, out, *x.stride(), *x.shape, BLOCK_R, BLOCK_C)
    return out


# %%
several = []
for kernel, grid in ((weighted_sum, (5,)), (split_sum, (5, 4))):
    with in_process.machine(one_by_one=True, backwards=True):
        backwards = run(kernel, grid)
    with Watched() as seen:
        forwards = run(kernel, grid)
    print(f"{kernel.__name__}: right: {torch.allclose(forwards, right, atol=1e-5)}, ", end="")
    print(f"the same in reverse: {torch.equal(forwards, backwards)}")
    seen.say()
    several.append(seen)
names = ["weighted_sum: a program for each band", "split_sum: a program for each tile"]
kernel_runs.owners(several, names)

# %% [markdown]
# Three cures: one program owns the row, and loops (what we did, and what FlashAttention does); the partial sums go to
# places of their own, and a second kernel adds them up (Flash-Decoding); or the hardware adds, with `tl.atomic_add`,
# in an order that nobody knows.
#
# ## From here to FlashAttention
#
# ### A running value that moves
#
# Change the roles. x now holds *scores*. The weights are no longer given: those of a row are the softmax of its scores.
# w, which held the weights, now holds the *values* that are weighted and added up. That is attention for values of one
# number each. Each weight depends on the whole row, of which the program sees a tile at a time. [Notebook
# 2](02_online_softmax.ipynb) has the solution: carry the maximum and the sum of the weights as well. When the maximum
# rises, correct the sum and the accumulator. That kernel is P3, and you write it.
#
# Another row statistic needs the same kind of loop: the variance, which every LayerNorm computes. It is the mean of the
# squared distances of a row's numbers from the row's mean. The loop measures the distances from the mean *so far*. A
# new tile moves that mean, so the loop corrects the sum of the earlier squares: if the mean moves by m, the sum over n
# numbers grows by n * m * m.


# %%
@triton.jit
def spread_step(mean, squares, x, there, before, count):
    """Add one tile. A row had `before` numbers until now; with this tile it has `count`."""
    moved = tl.sum(tl.where(there, x - mean[:, None], 0.0), 1) / count
    mean += moved
    distance = tl.where(there, x - mean[:, None], 0.0)  # (BLOCK_R, BLOCK_C)
    return mean, squares + before * moved * moved + tl.sum(distance * distance, 1)


# %%
@triton.jit
def spread(X, W, OUT, stride_r, stride_c, ROWS, COLUMNS, BLOCK_R: tl.constexpr,
           BLOCK_C: tl.constexpr):  # fmt: skip
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    mean = tl.zeros([BLOCK_R], tl.float32)  # of the tiles so far
    squares = tl.zeros([BLOCK_R], tl.float32)  # of their distances from that mean
    for start in range(0, COLUMNS, BLOCK_C):
        c = start + tl.arange(0, BLOCK_C)
        there = c[None, :] < COLUMNS
        here = (r[:, None] < ROWS) & there
        x = tl.load(X + r[:, None] * stride_r + c[None, :] * stride_c, mask=here, other=0.0)
        count = tl.minimum(start + BLOCK_C, COLUMNS)
        mean, squares = spread_step(mean, squares, x, there, start, count)
    tl.store(OUT + r, squares / COLUMNS, mask=r < ROWS)


# %%
expected = x.var(1, unbiased=False)
print("spread is right:", torch.allclose(run(spread, (5,)), expected, atol=1e-5))

# %% [markdown]
# The two `tl.where` are easy to forget. For a plain sum a dead lane is harmless when it holds 0. Here the number 0 has
# a distance from the mean like any other, and takes its share of the result. For a softmax, too, 0 is a score like any
# other. What must a dead lane hold there, so that its weight is nothing?
#
# ### Scores that come from a dot
#
# In attention nobody has the scores in memory: that would be the N x N matrix of [notebook 1](01_memory_wall.ipynb).
# The program makes them, a tile at a time, of a tile of queries and a tile of keys. And a value is a vector of D
# numbers, so w becomes a matrix V. Both are products of two tiles, `tl.dot`, for which a GPU has units of their own.
# Without softmax and masks:


# %%
@triton.jit
def two_dots(Q, K, V, O, N, D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    d = tl.arange(0, D)
    q_pos = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q_at = q_pos[:, None] * D + d[None, :]  # (BLOCK_Q, D)
    q = tl.load(Q + q_at)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    for start in range(0, N, BLOCK_K):
        k_at = (start + tl.arange(0, BLOCK_K))[:, None] * D + d[None, :]  # (BLOCK_K, D)
        scores = tl.dot(q, tl.trans(tl.load(K + k_at)))  # (BLOCK_Q, BLOCK_K)
        acc = tl.dot(scores, tl.load(V + k_at), acc)  # added to acc
    tl.store(O + q_at, acc)


# %%
q, k, v = torch.randn(3, 64, 16)
o = torch.empty(64, 16)
two_dots[(2,)](q, k, v, o, 64, 16, 32, 32)
print("two_dots is right:", torch.allclose(o, (q @ k.T) @ v, atol=1e-3))

# %% [markdown]
# Put the online softmax of notebook 2 between the two dots, and masks around the loads: that is FlashAttention.
#
# ### The loop of P3, line by line
#
# Beside the weighted row sum stands P3 as you get it. (The loop is a function of its own there, `attend`. It is called
# twice: for the whole tiles, and for the ragged tail.) Its three gaps are open: they are yours.

# %% tags=["solution"]
pairs = [
    ("My rows", "r = tl.program_id", "q_pos = q_start +"),
    ("Which matrix", "", "Q += batch"),
    ("Start values", "acc = tl.zeros", "acc = tl.zeros"),
    ("Load once, what all tiles need", "", "q = tl.load"),
    ("The tiles, from left to right", "for start", "for k_start"),
    ("This tile's columns, or keys", "c = start", "k_pos = k_start"),
    ("Its numbers: loaded by the one, computed by the other", "x = tl.load", "# TODO 1"),
    ("The softmax's running maximum", "", "# TODO 2"),
    ("The tile's weights, or values", "w = tl.load", "v = tl.load(v_ptrs, "),
    ("Add the tile to what there is", "acc += tl.sum", "# TODO 3"),
    ("Divide, once", "", "o = acc /"),
    ("Store, once, within bounds", "tl.store", "tl.store"),
]
kernel_runs.beside(pairs, weighted_sum)

# %% [markdown]
# P3 does two things for speed: exp2 in place of exp, and a mask on the last tile only, since whole tiles need none. And
# one for safety: the products of strides with heads, batches and rows are made in 64 bits, because B x H x N x D can
# pass what 32 bits hold.
#
# ## The real one
#
# P3's own solution against the grader's oracle: attention in 64 bits, and the error that a careful kernel may have in
# 16.

# %% tags=["solution"]
from grader.core.machine.variables import Variables
from grader.kinds.attention import cases, masks, oracle
from report.counting import traced

N, D = 150, 16
torch.manual_seed(3)
q, k, v = (torch.randn(1, 1, N, D, dtype=torch.float16) for _ in range(3))
with Watched() as seen:
    o = p3.flash_attention_forward(q, k, v)
expected = oracle.expect(q, k, v, masks.Visibility())
wrong = (o - expected.o).abs() > expected.allowed_o
print(f"{wrong.sum()} of {o.numel()} numbers too far from the truth")
seen.say()
kernel_runs.tiles_of_p3(traced.run("p3", cases.Case("150 tokens", N=N, D=D))[0], program=2)

# %% [markdown]
# The grader's observers drew it, the first picture of this page again: bands, tiles, a short last tile. They follow a
# variable by its name, too, of your kernel by `make try P=3 SHOW=row_max`. The running maximum of program 2 moves:

# %% tags=["solution"]
with in_process.machine([followed := Variables(program=2)]):
    p3.flash_attention_forward(q, k, v)
for tile in (tile for tile in followed.tiles if tile.loop):
    print(f"k_start {tile.start:3}:", *(f"{x:6.2f}" for x in tile.values["row_max"][:8]))

# %% [markdown]
# ### Predict before you run
#
# 150 tokens of 16 numbers in 16 bits: Q, K, V and O have 4,800 bytes each. How many bytes of each does the whole grid
# move, with tiles of 64 queries?
#
# <details><summary>Answer</summary>
#
# Q and O: 4,800, each once. K and V: three times as many, since each of P3's three programs reads them all, as each
# program of the row sum read all of w. With tiles of 32 queries it would be five times, with 128 twice. The grid moves
# no N x N matrix. On a GPU most of these reads are answered by its cache: the programs that run at the same time read
# the same keys.
# </details>

# %% tags=["hide-output", "solution"]
itemsize, programs = 2, triton.cdiv(N, 64)
once = N * D * itemsize
formula = {"Q": once, "K": programs * once, "V": programs * once, "O": once}
for name, count in seen.moved().items():
    print(f"{name}: counted {count:6,} bytes, formula {formula[name]:6,}")
panels = {name: f"token\nin {name.lower()}" for name in "QKVO"}
title = "P3: every load and store of its three programs"
words = "Each of three programs loads its queries once, all keys and values, and stores once"
kernel_runs.in_order(seen.steps, panels, title, words, per=D)

# %% [markdown]
# Compare it with the same picture of the row sum: K and V are read as w was, o is stored as the sums were. So that is
# the answer to this page's question. The grid makes the workers. Each finds its rows by its number, reads what all of
# them read, and writes what nobody else writes.
#
# ## Exercises
#
# 1. 1,000 rows, 3,000 columns, tiles of 16 x 64. How many programs, how many tiles for each, and how many lanes are
#    switched off in all?
# 2. Give `weighted_sum` a `stride_w`, so that w may be a column of a matrix. Which line changes?
# 3. Take `mask=r < ROWS` out of the last line, and watch the kernel: what do the observers say of that?
# 4. In `spread_step`, take one `tl.where` out, then the other. Which rows are wrong, and by how much? Why does a
#    matrix with 32 columns hide it?
# 5. Mend `split_sum` with `tl.atomic_add`. What must `out` hold before the launch?
# 6. Now build it: `problems/p3_flash_attention.py`, and `make grade P=3`. `make show P=3 CASE="ragged tail"` draws the
#    tiles that your kernel visits.
#
# **Next:** [4. Masks and phases](04_masks_and_phases.ipynb): which tiles a kernel may leave out.
#
# ## References
#
# - Tillet, Kung, Cox, [Triton: an intermediate language and compiler for tiled neural network
#   computations](https://doi.org/10.1145/3315508.3329973), 2019.
# - Triton, [documentation](https://triton-lang.org): tutorials, and the language's reference.
# - Dao et al., [FlashAttention](https://arxiv.org/abs/2205.14135), 2022: the loop, and its bytes.
# - Dao, [FlashAttention-2](https://arxiv.org/abs/2307.08691), 2023: a program for each tile of queries.
# - Chan, Golub, LeVeque, [Updating formulae and a pairwise algorithm for computing sample
#   variances](https://doi.org/10.1007/978-3-642-51461-6_3), 1982: squared distances from a mean that moves.
# - Stanford CS336, [assignment 2](https://github.com/stanford-cs336/assignment2-systems), 2025: its handout introduces
#   Triton with a weighted sum.
