# %% [markdown]
# # 7. Reading a benchmark
#
# **A page says "27.6 times as fast". What does such a number hide?**
#
# Every bar below is true. All are about one kernel of this course, its fastest, at one shape, in one run on one GPU.
# Only what it is compared with differs. (P2 is left out: it takes over a thousand times as long.)

# %%
from notebooks.pictures import reading_a_benchmark as draw
from notebooks.pictures.png import folded, png
from report.pages import measured
from report.pages.measured import times_over

sweep = measured.load(measured.PUBLISHED)
points = sweep.points()
LONG = points["B=4 H=16 D=128", 16384, 16384, True, "float16"]
ours = LONG["fast"]
others = {n: row for n, row in LONG.items() if n not in ("fast", "P2") and row.median_ms}
ratios = {name: times_over(row, ours).middle for name, row in others.items()}
title = f"One call of {ours.median_ms:.1f} ms on an {sweep.device}: how many times as fast ..."
figure = draw.headlines(ratios, title)
png(figure, "Bars from many times as fast as PyTorch code down to hardly faster than a peer")

# %% [markdown]
# (SDPA is PyTorch's own function for attention; cuDNN, flash and efficient are kernels that it can call. FlexAttention
# makes a kernel for any mask.) The longest bars are about PyTorch code that was never meant to be fast, the shortest
# about the best that one can install. A speed-up is a fraction, and whoever chooses the denominator chooses the number.
# So the first question to a benchmark is: *than what?* Then: which number of many calls, in which state of the machine,
# at which shapes, and what was left out of the clock.
#
# All times of real kernels on this page come from two files in `report/results/h200/`, which the course's own sweeps
# wrote on a GPU. Nothing here needs one.
#
# ## Which number: means and medians
#
# ### Predict before you run
#
# A kernel is called 100 times. 99 calls take 11 microseconds, one takes 300: the operating system was busy. What is the
# mean, what the median?
#
# <details><summary>Answer</summary>
#
# One call in a hundred makes the mean a quarter larger; the median does not see it. The mean is right for another
# question: how long will a million calls take, disturbances included?
# </details>

# %%
from statistics import fmean, median

times = [11.0] * 99 + [300.0]
folded(f"mean   {fmean(times):5.1f} us", f"median {median(times):5.1f} us")

# %% [markdown]
# Such calls happen. Here are the rows of the sweep whose mean is furthest above their median.

# %%
done = [row for row in sweep.rows if row.median_ms is not None]
far = sorted(done, key=lambda row: row.avg_ms / row.median_ms, reverse=True)[:6]
shift = [abs(row.avg_ms / row.median_ms - 1) for row in done]
one, five = (sum(x > least for x in shift) for least in (0.01, 0.05))
print(f"{len(done):,} rows: the mean is over 1 % from the median in {one}, 5 % in {five}")
figure = draw.summaries(far, "The six rows whose mean is furthest above their median")
png(figure, "In six rows the mean lies far to the right of the median")

# %% [markdown]
# The bar goes from p20 to p80, the 20th and the 80th percentile: a fifth of the calls were faster than its left end,
# and a fifth slower than its right end. A mean (diamond) outside the bar was moved by a few slow calls. Where the bar
# itself reaches far to the right, at least a fifth of the calls were slow. Ask for the median *and* two percentiles.
# (`triton.testing.do_bench` gives the mean by default.)
#
# ## In which state: cold and warm caches
#
# Call a kernel again and again on the same tensors, and they may still lie in a cache from the call before. In a model,
# other layers use the cache in between; only what the layer just before wrote may still be there. The grader and the
# sweep overwrite the GPU's L2 cache before each call, and start the clock after that. What a cold cache costs on a CPU:

# %% tags=["varies"]
import torch

from grader.core.run.stopwatch import Stopwatch
from grader.gpu.timing import Timing

torch.set_num_threads(1)
watch, numbers, scrap = Stopwatch("cpu"), torch.ones(1 << 16), torch.ones(1 << 26)
warm, cold = Timing(), Timing()
for _ in range(30):
    numbers.sum()
    warm.rounds.append([watch.sample(numbers.sum)])
    scrap.add_(1)  # 256 MiB: what was cached is gone
    cold.rounds.append([watch.sample(numbers.sum)])
warm_us, cold_us = (1e3 * timing.summary().median_ms for timing in (warm, cold))
print(f"{len(numbers):,} numbers added on a CPU: warm {warm_us:.0f} us, cold {cold_us:.0f} us")

# %% [markdown]
# ### Predict before you run
#
# On a GPU with a cold cache, q, k and v must come from memory at least once, and o must go there. For which sequences
# is that a large part of the time: short or long ones?
#
# <details><summary>Answer</summary>
#
# Short ones. Bytes grow with N, FLOPs with N x N. At 512 tokens cold tensors take a good part of the time, even at the
# full speed of the memory; at 16,384 a cold start is nearly free. So a benchmark of short sequences must say whether
# its cache was cold. Neither a cold nor a warm measurement is wrong: they answer different questions.
# </details>

# %%
from grader.gpu.peaks import peak

bars = {}
for n in (512, 1024, 2048, 4096, 8192, 16384):
    row = points["B=4 H=16 D=128", n, n, True, "float16"]["fast"]
    moved = 4 * row.batch * row.heads * n * row.head_dim * 2  # bytes of q, k, v and o
    bars[n] = moved / (peak(sweep.device).terabytes * 1e9) / row.median_ms
folded(*(f"{n:6,} tokens: at least {share:6.1%} of the time" for n, share in bars.items()))

# %% [markdown]
# ## Ratios: who was measured when
#
# A GPU grows warm and lowers its clock; another job comes and goes. If all calls of A come first and all of B
# afterwards, the drift of the machine becomes a difference between A and B. Here two pretended kernels run on a
# pretended GPU that slows down by a fifth in 100 calls. A is truly 1.05 times as fast as B. The panels show two orders
# of the calls.

# %%
from grader.gpu import timing
from notebooks.pictures import drifting

truth = {"A": 1.0, "B": 1.05}  # ms of a call
# Both lines return the same two things: each kernel's times by round, and all calls in order.
turns, turns_calls = drifting.in_turns(truth, 50)
after, after_calls = drifting.one_after_the_other(dict(reversed(truth.items())), 50)  # B first
runs = {"B, then A": drifting.by_name(after_calls), "in turns": drifting.by_name(turns_calls)}
figure = draw.calls(runs, "The same two kernels on a machine that slows down")
png(figure, "Call times rise; in turns, B stays above A; one after the other, A looks slower")

# %%
found = {"B, then A": timing.ratio(after, "A", "B"), "in turns": timing.ratio(turns, "A", "B")}
for how, ratio in found.items():
    interval = f"({ratio.low:.3f} to {ratio.high:.3f})"
    print(f"{how:10} A is {ratio.median:.3f} times as fast as B {interval}")

# %% [markdown]
# Both intervals are narrow, and one of them is wrong: an interval knows only the noise that it has seen. In turns, in
# an order that changes, the drift hits both alike and cancels in each round's ratio. That is how `grader/gpu/timing.py`
# measures your kernel in P3 to P7, and every row of the sweep.
#
# ## Over many shapes: which mean, and where is the worst?
#
# ### Predict before you run
#
# A is twice as fast as B at one shape and half as fast at another. What is the arithmetic mean of A's two speed-ups
# over B? And of B's over A?
#
# <details><summary>Answer</summary>
#
# By arithmetic means each is 25 % faster than the other. The geometric mean says what is so: neither is. For ratios it
# is the one mean that does not depend on which of the two is the baseline (Fleming and Wallace, 1986).
# </details>

# %%
a_over_b = [2.0, 0.5]
b_over_a = [1 / ratio for ratio in a_over_b]
means = {"arithmetic": fmean, "geometric": measured.geometric_mean}
found = {name: (mean(a_over_b), mean(b_over_a)) for name, mean in means.items()}
folded(*(f"{name:10}: A {a:.2f}, B {b:.2f}" for name, (a, b) in found.items()))

# %% [markdown]
# Even the right mean is one number for many. Here is every point where the sweep has our fast kernel and
# FlashAttention-4's: shapes and lengths, causal or not, in both dtypes. "Far ahead of FlashAttention-4", "a little
# faster on average" and "slower at some shapes" can all be printed from this one picture.

# %%
both = [cells for cells in points.values() if "FlashAttention-4" in cells]
pairs = [times_over(cells["FlashAttention-4"], cells["fast"]) for cells in both]
pairs = [pair for pair in pairs if pair]
worst, *_, best = sorted(pair.middle for pair in pairs)
even = sum(pair.low <= 1 <= pair.high for pair in pairs)
print(f"{len(pairs)} points: from {worst:.2f} to {best:.2f}; in {even} the interval holds 1")
figure = draw.all_ratios(pairs, "Our fast kernel over FlashAttention-4's: 95 % intervals")
png(figure, "Sorted ratios: most of the points lie above 1, some below")

# %% [markdown]
# ## What was left out of the clock
#
# **Work that nobody asked for.** Here are 512 tokens of several documents; each token sees its own document only. cuDNN
# computes all pairs; `fast` is now the course's block-sparse form. Which is better?

# %%
from report.studies import block_sparse

sparse = {row.key: row for row in measured.load_study(block_sparse.STUDY)[0]}
for kernel in ("cuDNN dense", "fast"):
    row = sparse["documents", 512, 64, kernel]
    print(f"{kernel:12} {row.tflops:5.1f} TFLOP/s")

# %% [markdown]
# ### Predict before you run
#
# Which of the two is done first?
#
# <details><summary>Answer</summary>
#
# The one with the lower rate. The dense kernel is credited with all pairs, the sparse one with the visible ones
# alone: it does less, and is done sooner. A rate counts what was done, not what was needed. Compare times; compare
# rates only where both do the same work.
# </details>

# %%
rows = [sparse["documents", 512, 64, kernel] for kernel in ("cuDNN dense", "fast")]
spread = [f"({row.p20_us:.2f} to {row.p80_us:.2f})" for row in rows]
lines = [f"{row.kernel:12} {row.median_us:5.2f} us" for row in rows]
lines = [f"{line} {p20_to_p80}" for line, p20_to_p80 in zip(lines, spread, strict=True)]
folded(*lines, f"of all pairs the mask hides {rows[1].sparsity:.0%}")

# %% [markdown]
# **Set-up.** A sparse kernel needs lists of tiles, made of the mask. They can be made once and used by every layer, so
# the sweep leaves them out. If your mask changes with every call, you pay for the lists each time:

# %%
row = sparse["documents", 16384, 64, "fast"]
build = sparse["map of documents", 16384, 64, "tiles_on_gpu and the fast form's lists"]
print(f"16k tokens: kernel {row.median_us:.0f} us, lists of its mask {build.median_us:.0f} us")

# %% [markdown]
# **The launch.** A kernel is started by the CPU, and the times so far are the GPU's alone: what the CPU needs to start
# a call is hidden while the GPU is busy with the call before. It is measured, in a column of its own, `host_ms`.

# %%
lengths = (512, 1024, 2048, 4096, 8192, 16384)
small = {n: points["B=1 H=12 D=64", n, n, True, "float16"] for n in lengths}
slow = sum(row.host_ms > row.median_ms for row in done if row.host_ms is not None)
print(f"in {slow} of {len(done):,} rows the CPU needs longer to launch than the GPU to run")
title = "B=1 H=12 D=64, causal, float16: the GPU's time and the CPU's"
figure = draw.launches(small, ("fast", "SDPA cuDNN"), title)
png(figure, "Up to 2k tokens our kernel takes the CPU longer to start than the GPU to run")

# %% [markdown]
# Our fast kernel wins at 512 tokens on the GPU, and would lose there in a program that starts one call after the other
# from Python: its launch takes far longer than its run. Long sequences hide that, and so does a CUDA graph, which
# starts many kernels at once. A benchmark that reports one of the two times has answered one of two questions.
#
# ## A list to keep
#
# - *Than what?* Is the baseline the best that one could use, at the settings its authors would choose?
# - *Right first?* Was the output compared with a careful answer before it was timed?
# - *Which number*, of how many calls, and how far apart are p20 and p80?
# - *Cold or warm?* Fresh inputs? In turns with the baseline?
# - *Every shape*, or the best one? Where is the worst, and does its interval hold 1?
# - *Whose FLOPs?* Those needed, or those done?
# - *What is outside the clock?* Set-up, launch, compilation, copies.
# - *Which machine*, driver, versions, commit? Can you run it again?
#
# ## Exercises
#
# 1. Take the last benchmark that impressed you through the list. How many questions does it answer?
# 2. Find in `report/BENCHMARKS.md` the shape at which this course looks worst. Does the page hide it?
# 3. `make report` without a GPU runs a quick sweep on your CPU. Are its means near its medians?
# 4. In `notebooks/pictures/drifting.py` let the drift be 0. Does the order still matter? With noise of 0.1, how many
#    turns does it take to see 5 %?
# 5. Now measure it: `make grade P=4` on a GPU measures your kernel in turns with PyTorch and the reference (P3 to P7
#    each ask for a speed). Its times stand in `results.json`: is the median far from the percentiles?
#
# **Next:** [8. The backward pass](08_backward.ipynb): what training needs of attention, and a mask seen from the other
# side.
#
# ## References
#
# - Fleming, Wallace, [How not to lie with statistics](https://doi.org/10.1145/5666.5673), 1986: why the geometric mean
#   for ratios.
# - Georges, Buytaert, Eeckhout, [Statistically rigorous Java performance
#   evaluation](https://doi.org/10.1145/1297027.1297033), 2007.
# - Hoefler, Belli, [Scientific benchmarking of parallel computing systems](https://doi.org/10.1145/2807591.2807644),
#   2015.
# - Chen, Revels, [Robust benchmarking in noisy environments](https://arxiv.org/abs/1608.04295), 2016.
# - Shah et al., [FlashAttention-3](https://arxiv.org/abs/2407.08608), 2024: a benchmark to try the list on.
# - The pages behind the numbers: [BENCHMARKS.md](../report/BENCHMARKS.md),
#   [BLOCK_SPARSE.md](../report/BLOCK_SPARSE.md).
