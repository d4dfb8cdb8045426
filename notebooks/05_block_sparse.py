# %% [markdown]
# # 5. Block-sparse patterns
#
# **When a mask has no formula, how does a kernel know which tiles to skip, and does skipping save the time it
# promises?**
#
# Four masks that follow from what the tokens are, not from how far apart they stand:

# %% tags=["solution"]
from grader.core import in_process
from grader.kinds.block_sparse import patterns, tile_map
from grader.kinds.block_sparse.cases import SparseCase
from notebooks.pictures import masks_and_phases
from report.counting import traced

in_process.begin()  # kernels run in the grader's machine: no GPU is needed
four = {"documents": (512, patterns.Documents((256, 68, 188)))}
four["text, image, text"] = (512, patterns.Interleaved((133, 309, 70)))
four["image, rows near by"] = (576, patterns.local(24, 24))
four["image with CLS, blocks"] = (577, patterns.local_and_global(10, 64))
cases = [SparseCase(name, N=n, D=16, of=of, block=(64, 64)) for name, (n, of) in four.items()]
masks_and_phases.masks(cases, 64, "Four masks, cut into tiles of 64 x 64")

# %% [markdown]
# - **Documents.** A batch is packed: three documents of 256, 68 and 188 tokens, one after the other, and none may
#   see another.
# - **Text, image, text.** Text is causal. An image is not read from left to right: it sees all of itself. Both see what
#   came before.
# - **An image, rows near by.** A vision transformer cuts a picture into patches: here 24 rows of 24. Each sees its own
#   row, and the rows above and below.
# - **An image with a CLS token, in blocks.** The first token stands for the whole picture. Its block sees all and is
#   seen by all; the others see their neighbours.
#
# A window is the same in every row, so arithmetic finds its tiles ([notebook 4](04_masks_and_phases.ipynb)). Here each
# row of tiles is different. The kernel is therefore told: the mask is cut into tiles once, and handed over as lists.

# %%
print(f"{'':23}  FULL CAUSAL PARTIAL  density  visible pairs")
for case in cases:
    cut = tile_map.cut(case.visibility, case.N, case.N, 64, 64)
    full, triangle, partial = (int((cut.kinds == kind).sum()) for kind in (1, 2, 3))
    print(f"{case.name:23} {full:5} {triangle:6} {partial:7}", end=" ")
    print(f"{cut.density:8.2f} {1 - cut.sparsity:14.2f}")

# %% [markdown]
# ## Density
#
# **Density** is the part of all *tiles* that must be visited. A tile is loaded as a whole, even for one visible pair,
# so where tiles divide the length, density is never less than the part of visible *pairs*. How well the pattern fits
# the grid of tiles decides how far the two are apart: compare the two images. (The last one seems to break the rule:
# its 577 tokens leave a row and a column of tiles with a single token. Most of these tiles are empty, and each counts
# as a whole tile, though it holds few pairs. So density comes out too low.)
#
# ### Predict before you run
#
# Two documents of 256 tokens each fit tiles of 64 exactly. Move the border between them by one token. What happens to
# the number of tiles, and to their kinds?
#
# <details><summary>Answer</summary>
#
# One row of tiles now has queries of both documents. The kernel must visit every tile of this row, and only some
# pairs of each tile are visible. The same holds for one column of tiles. The visible pairs hardly change; the tiles do.
# </details>

# %%
from notebooks.pictures.png import folded

found = ["border  FULL PARTIAL  density  visible pairs"]
for border in (256, 257, 288, 320):
    cut = tile_map.cut(patterns.Documents((border, 512 - border)), 512, 512, 64, 64)
    full, partial = (int((cut.kinds == kind).sum()) for kind in (1, 3))
    pairs = 1 - cut.sparsity
    found.append(f"{border:6} {full:5} {partial:7} {cut.density:8.3f} {pairs:14.3f}")
folded(*found)

# %% [markdown]
# ## The lists
#
# For each row of tiles, the list has the FULL ones first, then the CAUSAL ones, then the PARTIAL ones. So the kernel
# runs three loops, and asks of no tile what it is. Only PARTIAL tiles bring their mask along, a bit for each pair. Here
# are the lists of the documents, as the solution of X1 makes them (a lab of the course: a problem for no points):

# %%
from solutions.x1_block_sparse import tiles_of_predicate

documents = cases[0]
tiles = tiles_of_predicate(documents.visibility.mask, 512, 512)
for i, (full, triangle, partial, end) in enumerate(tiles.starts[0].tolist()):
    ends = ((full, triangle), (triangle, partial), (partial, end))
    lists = [tiles.columns[a:b].tolist() for a, b in ends]
    print(f"queries {64 * i:3} on: FULL {lists[0]}, CAUSAL {lists[1]}, PARTIAL {lists[2]}")

# %% [markdown]
# The kernel never sees the mask itself. Did it visit these tiles, and no others? The grader runs it and
# watches every load:

# %%
results = traced.run("x1", *cases)
for case, result in zip(cases, results, strict=True):
    visited, needed = traced.tiles_visited(result), traced.tiles_needed(result)
    print(f"{case.name:23} {result.outcome.value}: {visited} tiles visited, {needed} needed")
masks_and_phases.visits(cases, results, list(four))

# %% [markdown]
# ## Density against time
#
# Tiles counted are a promise. The next picture was measured on a GPU: FULL tiles at random places, from all tiles down
# to one in twenty. Each time is divided by the same kernel's time with all tiles. `fast` is written for Hopper GPUs;
# `longest_first` is the course's fastest kernel in plain Triton.
#
# ### Predict before you run
#
# If half of the tiles took half of the time, every kernel would lie on one straight line. Where does it leave that
# line, and why there?
#
# <details><summary>Answer</summary>
#
# Where few tiles are left for each program. There the fixed costs count more and more: starting a program, loading its
# queries, reading its lists, filling the pipeline of loads, writing the output. Half of the tiles cost little more than
# half of the time; one in twenty costs clearly more than a twentieth. The next two cells show it.
# </details>

# %% tags=["hide-output"]
from notebooks.pictures import block_sparse as draw

rows, machine = draw.measured()
print(f"{machine['gpu']}, triton {machine['triton']}, {machine['date']}")
draw.by_density(rows)

# %%
whole = draw.at(rows, "by density", 16384, 64, "fast at 1").median_us
for density in ("0.75", "0.5", "0.25", "0.1", "0.05"):
    row = draw.at(rows, "by density", 16384, 64, f"fast at {density}")
    part = f"{row.median_us / whole:.3f} of the time at density 1"
    print(f"density {row.density:.2f}: {row.median_us:7.1f} us, {part}")

# %% [markdown]
# That compares a kernel with itself. A fair judge compares it with the kernel one would use otherwise: here the
# course's own dense kernel, `fast_attention` without a mask. It computes every pair and needs no lists.

# %%
draw.against_dense(rows, 16384)

# %% [markdown]
# At density 1 all tiles are FULL: both kernels do the same work, one with lists and one without. How far the mark "full
# map" lies above 1 is the price of the lists. (In the dense kernel up to four groups of threads, each with its own
# queries, share each tile of K and V that is loaded. With lists, rows of tiles need different tiles, so here each group
# loads its own.) Every pattern lies above the dotted line. Furthest are the two random patterns. One has FULL and
# PARTIAL tiles (FP), the other CAUSAL ones as well (FCP). About half of FP's tiles and two thirds of FCP's need a mask,
# and the kernel computes the hidden pairs of such tiles too. (In published studies such patterns hide about half of all
# pairs. We rebuilt them: they hide 0.39 to 0.51 of all pairs. Our own patterns, those of this picture, hide 0.56 to
# 0.66. [BLOCK_SPARSE_ROWS.md](../report/BLOCK_SPARSE_ROWS.md) has both, measured.)
#
# Short sequences profit less: fewer tiles share the fixed costs.

# %%
for n in (512, 2048, 8192, 16384):
    row = draw.at(rows, "documents", n, 64, "fast")
    part = f"{1 / row.over_dense:.2f} of the dense kernel's time"
    print(f"documents, N = {n:5}: density {row.density:.2f}, {row.median_us:6.1f} us, {part}")

# %% [markdown]
# ## A pattern in a file
#
# To try a kernel of your own, take a pattern with its right answer. `make sample` writes one file for each pattern, 512
# to 2,048 tokens, blocks of 64 and 128; `python -m report saved samples/*.pt` runs every kernel of the course on them.
# Here one is made and compared with plain attention:

# %%
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from report.arms import sample

options = sample.parse(["random", "--kinds", "FCP", "--tokens", "256"])
with TemporaryDirectory() as folder:
    path = Path(folder) / "fcp.pt"
    torch.save(sample.example(options, *sample.pattern(options)), path)
    saved = torch.load(path, weights_only=True)
for name, held in saved.items():
    print(f"{name:9}", f"{tuple(held.shape)}" if isinstance(held, torch.Tensor) else held)

# %%
scores = saved["q"].double() @ saved["k"].double().mT / 8
weights = scores.masked_fill(~saved["mask"], -torch.inf).softmax(-1)
o = weights.nan_to_num(0.0) @ saved["v"].double()  # a row may see nothing
print("largest difference from the saved answer:", f"{(o - saved['o']).abs().max():.0e}")

# %% [markdown]
# ## Exercises
#
# 1. A query may see no key at all. What are its maximum, its sum and its output? (`make grade P=x1` asks.)
# 2. Sort the tokens of the third mask (image, rows near by), so that patches near each other in the image are near each
#    other in the sequence: blocks of 8 x 8 patches in place of rows. What would its tiles look like?
# 3. `python -m report vit_example` packs images of 197, 577 and 1,025 tokens into one batch. Its dense pattern has 405
#    tiles of 64 x 64 in each head. How many would it have if each image were padded to the longest?
# 4. Now build it: `problems/x1_block_sparse.py`, and `make grade P=x1`: the cut into tiles, the lists, and the kernel
#    that walks them.
#
# **Next:** [6. Program order and caches](06_program_order.ipynb): the same tiles, in which order?
#
# ## References
#
# - Dao et al., [FlashAttention](https://arxiv.org/abs/2205.14135), 2022: section 3.3 has the block-sparse form.
# - Dong et al., [FlexAttention](https://arxiv.org/abs/2412.05496), 2024: tiles that need a mask and tiles that do not.
# - Zaheer et al., [Big Bird](https://arxiv.org/abs/2007.14062), 2020: local, global and random blocks.
# - Dosovitskiy et al., [An Image is Worth 16x16 Words](https://arxiv.org/abs/2010.11929), 2020: vision transformers and
#   their CLS token.
# - Zhou et al., [Transfusion](https://arxiv.org/abs/2408.11039), 2024: images that see all of themselves between causal
#   text.
