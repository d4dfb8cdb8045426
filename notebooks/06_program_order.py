# %% [markdown]
# # 6. Program order and caches
#
# **The same tiles, the same work: why does the order of the programs change the time?**
#
# Causal attention over 32 heads of 8k tokens is 2,048 programs: one for each tile of queries of each head. Three orders
# to start them in, on a GPU made of eight dies (chips, each with a cache of its own). The GPU is a model; later a real
# one is measured.

# %%
from dataclasses import replace

from grader.core import in_process
from notebooks.pictures import program_order as draw
from notebooks.pictures.program_order import Launch
from report.counting.cache_model import MI300X, Machine
from report.pages import orders_model as orders
from report.pages.orders_model import head_first, identity, listed, longest_first, published

in_process.begin()  # kernels run in the grader's machine: no GPU is needed
plain = Launch("plain", identity)
blocks = Launch("published", published)
whole = Launch("head first", head_first)
draw.launches([plain, blocks, whole], "Which die computes which tile, in a model")

# %% [markdown]
# Each colour is a die, a piece of silicon with processors and a cache of its own. Later tiles of queries, to the right,
# see more keys. The order in the middle was published for eight dies (`problems/x2_program_order.py` has its formula).
# It finds *more* of its keys in a cache than the one on the left, and takes *longer*. The one on the right finds the
# most and is the fastest. So hits alone do not decide. What else does?
#
# ## What the hardware does with program numbers
#
# A launch is a grid of programs, numbered from 0; in Triton each asks for its number with `tl.program_id`. The GPU
# starts the first numbers wherever there is room. Whenever a program ends, the next number takes its place. (GPUs
# work like this, but CUDA does not promise it. So a kernel's speed may depend on the order, but its result must not.)
#
# Which head and which tile program 5 computes is the kernel's own choice: a formula from a number to a head and a tile.
#
# Some GPUs are several dies in one package. AMD's MI300X has eight, each with its own multiprocessors and *an L2 cache
# of its own*. Programs are dealt to them in turn: 0 to the first die, 1 to the second, and so on. The model always
# assumes that. Here are two orders of two heads of four tiles each, on two dies; h1t3 is tile 3 of head 1:

# %%
for name, order in (("plain", identity), ("head first", head_first)):
    places = listed(order, 4, 2, 2)
    for die in range(2):
        words = "  ".join(f"h{head}t{tile}" for head, tile in places[die::2])
        print(f"{name:10} die {die}: {words}")

# %% [markdown]
# Plain is what one writes without thinking: head after head, from the first tile to the last. It spreads every head
# over both dies. Head first, the order of X2 (a lab of the course: a problem for no points), keeps a head on one die,
# and takes its tiles from the last to the first. The rest of this page shows why.
#
# ## What a program reads
#
# With a causal mask, the program of tile t reads its own queries once, and K and V of its head from tile 0 to tile t,
# the diagonal ([notebook 4](04_masks_and_phases.ipynb)). So early tiles of queries are short work, late ones long; and
# all programs of a head read the same keys.

# %%
tiles = plain.tiles
visits = tiles * (tiles + 1) // 2
print(f"a head of {tiles} tiles: {visits:,} visits to only {tiles} different tiles of K and V")
print(f"if each came from memory once, {1 - tiles / visits:.1%} of the visits would be hits")

# %% [markdown]
# ## A cache, visit by visit
#
# The model's cache holds a few tiles, and makes room by dropping the one whose last use is longest ago. A visit that
# finds its tile there is a *hit*, any other a *miss*. Here is a tiny GPU: one die, two programs at a time (its
# *slots*), room for three tiles. A hit takes 1 step of time, a miss 2. Two heads, A and B, of four tiles each, in the
# plain order:

# %%
from notebooks.pictures import small_cache

tiny = Machine(dies=1, slots=2, capacity=3, hit=1, miss=2, jitter=0)
small_cache.steps(listed(identity, 4, 2), tiny, "Plain: the short rows first")

# %% [markdown]
# Read it from left to right. Every column is one visit: which slot asks for which tile of keys, and below it what the
# cache holds after that. A program begins wherever a slot starts again at A0 or B0. Each slot finds what the other has
# just loaded: programs that walk side by side along the same keys share them. Each tile is loaded once, so no order can
# have more hits than this one.
#
# ### Predict before you run
#
# Now each head from its longest row to its shortest. Will more visits be hits, or fewer? Will it be done sooner, or
# later?
#
# <details><summary>Answer</summary>
#
# Fewer, and sooner. A row of four tiles is longer than the cache: its last tile pushes one out that another program is
# about to ask for. But the rows that start last are short, so both slots work to the end. In the picture above, one of
# them has nothing to do while the other finishes the longest row alone.
# </details>

# %% tags=["hide-output"]
small_cache.steps(listed(longest_first, 4, 2), tiny, "Reversed: the long rows first")

# %% [markdown]
# That is the point of this page: fewer hits, and done sooner. The solutions of P4 to P7 have this order too, by one
# line: `q_start = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK_Q`. Now at full size.
#
# ## Eight dies
#
# The model of the first picture has a size like MI300X's. Its slots are the programs that a die runs at a time, its
# capacity the tiles of K and V that fit into a die's L2. Each program starts a little late, by chance (`jitter`), as on
# a real GPU; the figures are medians of five seeds. Idle is the part of all slots' time without work; the last column
# is the work of the fullest die divided by a fair share, an eighth of all work.

# %%
print(MI300X)
print("            hits  time  idle  fullest die")
for order, name in orders.NAMES.items():
    hits, time, _, idle, fullest = orders.figures(order)
    short = name.replace(":", ",").split(",")[0]
    print(f"{short:10} {hits:3.0f} % {time:5.0f} {idle:3.0f} %  {fullest:.2f}")

# %% [markdown]
# ### Predict before you run
#
# The published order gives each die a block of eight neighbouring tiles of every head. Which die is done last? And the
# plain order: how many hits would it gain from caches without a limit?
#
# <details><summary>Answer</summary>
#
# The last one, die 7. It has the longest rows of every head: tiles 56 to 63 see 57 to 64 tiles of keys each, where the
# mean is half of 65. That is nearly twice a fair share. The seven other dies wait for it, and its hits cannot make up
# for that.
#
# The plain order would gain nothing. Each die has some rows of every head, so each must load K and V of every head
# once: eight copies where one would do. It lacks programs on the same die that read the same keys; it does not lack
# room. Head first gives each die whole heads, and misses almost nothing but what must be loaded once.
# </details>

# %%
from notebooks.pictures.png import folded

found = []
for launch in (plain, blocks, whole):
    endless = replace(launch, machine=replace(MI300X, capacity=10**6))
    hits, most = launch.figures[0], endless.figures[0]
    found.append(f"{launch.name:10} {hits:.1f} % hits; caches without a limit: {most:.1f} %")
folded(*found)

# %%
draw.by_die()

# %% [markdown]
# *Balance* decides here: the launch is done when its fullest die is done. The plain order is not level either: eight
# divides 64, so of every eight neighbouring tiles die 7 gets the last, the longest: 7, 15, 23 and so on.
#
# An order must be right before it is fast. For 64 tiles the published formula computes every tile once, but it spreads
# every head over all dies, which X2 does not accept. For 128 tiles it leaves tiles out, and a kernel that uses it
# leaves parts of its output unwritten. The check that grades X2 says so of each:

# %%
from textwrap import fill

from grader.kinds.program_order.check_order import check_order

for tiles in (128, 64):
    said = check_order(listed(published, tiles, 8), tiles, 8)
    print(fill(f"{tiles} tiles: {said}", 90, subsequent_indent=" " * 4))

# %% [markdown]
# ## The tail
#
# Balance among dies is not all. On one die, too, work can end unevenly: if a long row starts last, it runs alone while
# all other slots are idle. Here are three heads of seven tiles on six slots, and every visit takes one step: no cache
# plays a part.

# %%
six = Machine(dies=1, slots=6, capacity=10**6, miss=1, jitter=0)
three = [Launch("plain: the short rows first", identity, 7, 3, six)]
three += [Launch("reversed: of each head the long rows first", longest_first, 7, 3, six)]
side_by_side = "all heads side by side, the long rows of all first"
# The machine has one die. Head first is told of four, more than there are heads: then it runs
# all three heads side by side.
three += [Launch(side_by_side, head_first, 7, 3, six, told_dies=4)]
draw.schedules(three, "Who works when")

# %% [markdown]
# Long work first, short work last: what starts last ends soon. If all work starts in the order of its length, the
# longest first, it takes at most a third longer than the best schedule; any order takes less than twice as long
# (Graham, 1969). The last order is perfect here: no slot is idle before the end. But it has all heads in work at once,
# which is bad for a cache. Which matters more, the short tail or the cache?
#
# ## Measured
#
# The course's kernel of X2 ran on an H200 in six orders. They were measured in turns: some calls of each, then some of
# each again. The H200 has *one* L2, in two partitions that every multiprocessor can use: no dies, so only the tail and
# the hits are left. X2's order, head first, can be told of any number of dies: here that only sets how many heads run
# side by side. Each line below has a name first, such as `grouped heads`.

# %%
from report.studies.orders import ORDERS

for name, words in ORDERS.items():
    print(f"{name:13} {words}")

# %% [markdown]
# ### Predict before you run
#
# `all heads` runs 16 heads side by side. Does it find more of its keys in L2 than `plain`, which runs few at a time?
# Which of the two is faster?
#
# <details><summary>Answer</summary>
#
# It finds the fewest of all six: K and V of all heads together are larger than the L2. And its median is the lowest of
# all six. The next cell has the numbers.
# </details>

# %% tags=["hide-output"]
from notebooks.pictures import measured_orders

rows, machine = measured_orders.measured()
print(f"{machine['gpu']}, triton {machine['triton']}, {machine['date']}")
cells = measured_orders.at(rows, "B=1 H=16 D=128", 8192)
title = "16 heads of 8k tokens, causal: hits and times of six orders"
measured_orders.hits_and_times(cells, title)

# %% [markdown]
# Why do the misses not hurt? A kernel asks for a tile of keys some steps before it needs it, and computes with earlier
# ones meanwhile. As long as memory can deliver, no program waits. Can it?

# %%
from grader.gpu.peaks import peak

for shape, n in (("B=1 H=16 D=128", 8192), ("B=1 H=32 D=128", 16384)):
    for name in ("plain", "all heads"):
        row = measured_orders.at(rows, shape, n)[name]
        rate = row.dram_reads * 2**20 / row.median_us / 1e6  # TB/s
        part = rate / peak(machine["gpu"]).terabytes
        part = f"{rate:.2f} TB/s read from memory, {part:.0%} of its peak"
        print(f"{shape} {n:6,} {name:9} {row.read_hits:3.0f} % found in L2, {part}")

# %% [markdown]
# Even the order with the fewest hits asks memory for a small part of what it can give. So we guess: here a hit and a
# miss take the same time, because the load ends before the arithmetic does.
#
# To test that, put the H200 into the model: one die, one program on each of its 132 multiprocessors, and a miss that
# costs as much as a hit. Then only the schedule is left. What does the model say of each measured order, and what did
# the GPU?

# %%
model = {"a miss costs 1.6 hits": measured_orders.predictions(rows, measured_orders.H200)}
free = measured_orders.predictions(rows, measured_orders.H200_FREE)
model["a miss costs no more than a hit"] = free
for words, found in model.items():
    for name in ("all heads", "published"):
        off = [abs(speed / row.over_plain - 1) for row, speed in found if row.kernel == name]
        print(f"{words:32} {name:10} the model is off by {min(off):4.1%} to {max(off):4.1%}")
title = "Times as fast as the plain order: in the model, and on an H200"
measured_orders.model_against_gpu(model, title)

# %% [markdown]
# With misses that cost no more than hits, all but the crosses lie near the line, within about two percent. So these
# orders gain time on the H200 by a shorter tail. Six shapes with a head dim of 128 were measured: 16 heads, 32 heads,
# and 32 heads over 4 kv heads, each at 8k and 16k tokens. If a miss cost 1.6 hits, `all heads` would be slower than
# plain at two of the six. It is faster at all six. (At a seventh shape, with a head dim of 64, it runs at 0.99 times
# the plain order's speed: [ORDERS.md](../report/ORDERS.md).)
#
# Two things the model does not explain.
#
# - **Published**, the slow one on eight dies, is faster than plain here, and gains most where each head has its own K
#   and V. It piles up no work, since there are no dies. But the model gives it no gain either, and we do not know where
#   its gain comes from.
# - **Grouped heads** and **reversed** are the *same* order wherever each head has its own K and V. Only the kernel's
#   formula for it differs. Still, grouped heads is faster:

# %%
for n in (8192, 16384):
    for shape in ("B=1 H=16 D=128", "B=1 H=32 D=128"):
        cells = measured_orders.at(rows, shape, n)
        ratio = cells["grouped heads"].over_plain / cells["reversed"].over_plain
        heads = measured_orders.heads_of(shape)[0]
        tiles = n // 128
        same = listed(head_first, tiles, heads, 1) == listed(longest_first, tiles, heads)
        print(f"{shape} {n:6,}: same order: {same}; {ratio:.3f} times as fast")

# %% [markdown]
# So two kernels that differ in a line of integer arithmetic may differ by that much in time, and a difference of that
# size says nothing about orders. What `all heads` wins at 8k tokens and 16 heads is several times larger.
#
# ## What the model leaves out
#
# - **Bandwidth that is shared.** In the model a miss costs the same however many there are. On a GPU, loads are free
#   until together they ask for more than memory can give; then each costs more. That is where hits begin to matter.
# - **Loads during arithmetic.** A real GPU computes while it loads; the model only has its two prices.
# - **A cache behind the dies**, like MI300X's Infinity Cache; the traffic of Q and O; clocks that change.
#
# No GPU of several dies was measured for this page: all figures of eight dies are the model's. On a real MI300X, the
# authors of head-first mapping (the first reference) report up to 50 % more speed than with usual orders.
#
# ## The result does not change
#
# An order says who computes a tile, and nothing else: each output row is computed from the same numbers by the same
# steps. So it is the same to the last bit. The solution of X2:

# %% tags=["solution"]
import torch

from solutions.x2_program_order import flash_attention_forward

torch.manual_seed(0)
q, k, v = (torch.randn(1, 4, 100, 16) for _ in range(3))
one, eight = (flash_attention_forward(q, k, v, num_dies=dies) for dies in (1, 8))
print("equal bits in two orders:", torch.equal(one, eight))

# %% [markdown]
# ## Try it
#
# In Jupyter, the next cell has sliders for the order, the sizes, the number of dies, the cache and the price of a miss.
# Elsewhere the picture below it stands for them.

# %%
from notebooks.pictures.masks_and_phases import with_sliders

names = ["published", "head first", "reversed"]
sizes = {"tiles": (8, 128, 8), "heads": (8, 32, 4), "dies": [8, 4, 2, 1]}
sizes |= {"cache": (8, 1024, 8), "miss": (1, 30, 0.2)}
with_sliders(draw.chosen, order=names, **sizes)

# %%
draw.against_dies(["plain", "published", "head first"], [1, 2, 4, 8])

# %% [markdown]
# On one die the three take nearly the same time, 267 to 270 steps: all share one cache, and their tails take nearly the
# same time. Each time the GPU is divided into more dies, plain and published must load more copies of K and V, and
# published also gives the last die the most work. Head first keeps its hits, and its tail shrinks: a head on each die
# means more heads side by side.
#
# ## Exercises
#
# 1. On the sliders, make published faster than plain. There are two ways: a miss that is very expensive (as much as 30
#    hits), or few tiles (16). Why does balance cost so little with few tiles? (Count the programs and the slots of a
#    die.)
# 2. Take 12 heads on eight dies, for head first: `Launch("", head_first, heads=12).figures` has its hits and its time.
#    Eight heads stay whole. What happens to the other four? Compare with 8 heads and with 16.
# 3. How small can the cache be before head first loses its hits? Why is so little enough for all programs of a die?
# 4. Give `draw.schedules` more and more heads. Why does the tail matter less and less, and what else makes it matter
#    less?
# 5. Now build it: `problems/x2_program_order.py`, and `make grade P=x2`: write `place`, a few lines of integer
#    arithmetic that the kernel and Python share. Its check asks for every tile once, whole heads, level dies, and long
#    rows first.
#
# **Next:** [7. Reading a benchmark](07_reading_a_benchmark.ipynb): what a measured time says, and what it hides.
#
# ## References
#
# - Choudhary et al., [Optimizing Attention on GPUs by Exploiting GPU Architectural NUMA
#   Effects](https://arxiv.org/abs/2511.02132), 2025: head-first mapping, measured on an MI300X.
# - Graham, [Bounds on multiprocessing timing anomalies](https://doi.org/10.1137/0117039), 1969: long work first.
# - Zadouri et al., [FlashAttention-4](https://arxiv.org/abs/2603.05451), 2026. Its [tile
#   scheduler](https://github.com/Dao-AILab/flash-attention/blob/main/flash_attn/cute/tile_scheduler.py) takes the
#   longest rows first, of as many heads at a time as fit into L2.
# - Triton, [Matrix
#   multiplication](https://triton-lang.org/main/getting-started/tutorials/03-matrix-multiplication.html): the same idea
#   for a product of matrices, programs in groups that share rows and columns in L2.
# - AMD, [CDNA 3 white
#   paper](https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/white-papers/amd-cdna-3-white-paper.pdf),
#   2023: the dies of an MI300X and their caches.
# - The page behind the numbers: [ORDERS.md](../report/ORDERS.md).
