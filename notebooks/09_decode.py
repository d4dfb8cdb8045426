# %% [markdown]
# # 9. Decode
#
# **One new token, a long cache: what limits the speed, and why may the batch change the bits?**
#
# A model that writes makes one token at a time. The keys and values of all tokens so far lie in a *cache*. Each step
# asks for attention of one query, the newest token, over the whole cache: that is *decode*. Here is what one step reads
# and computes, in one layer with 32 query heads and 8 heads of keys and values.

# %%
from grader.gpu.peaks import peak
from notebooks.pictures import decode as draw
from notebooks.pictures import memory_wall
from notebooks.pictures.png import folded, png

Hq, Hkv, D = 32, 8, 128
for N in (4096, 16384, 131072):
    MB, GFLOP = 2 * 2 * N * Hkv * D / 1e6, 4 * N * Hq * D / 1e9
    move, compute = MB / peak("H200").terabytes, GFLOP / peak("H200").tflops * 1e3
    print(f"{N:7,} tokens: {MB:5.0f} MB in {move:5.1f} us,", end=" ")
    print(f"{GFLOP:4.1f} GFLOP in {compute:4.1f} us")

# %% [markdown]
# The times are the least by the data sheet of an H200. Moving takes about fifty times as long as computing.
#
# ## Bound by memory
#
# The roofline of [notebook 1](01_memory_wall.ipynb) needs one number: FLOPs for each byte moved. A head of keys and
# values is read once for all the query heads that share it, here 4.
#
# ### Predict before you run
#
# The ridge of an H200 lies at 206 FLOPs per byte. Where do these lie, and which one reaches the ridge?
#
# 1. One new token, every query head with keys and values of its own.
# 2. One new token, groups of 4 query heads.
# 3. The same for 64 sequences at once.
# 4. Groups of 4, and 8 new tokens (guesses of a smaller model that are checked at once).
#
# <details><summary>Answer</summary>
#
# At about 1, 4, 4 and 32: none. Each key takes part in 4 FLOPs for a number of 2 bytes and its value, for each query
# that shares it, so the FLOPs per byte are the number of rows that share a load: heads of the group times new tokens.
# A larger batch does not help: every sequence has a cache of its own. (It does help with the *weights* of the model,
# which all sequences share.) So a decode kernel is good when it reads each byte of the cache once, at the full
# bandwidth.
# </details>


# %%
def per_byte(batch, group, new, N=16384):
    """FLOPs for each byte if q, the caches and o are moved once, in 16 bits."""
    return batch * 4 * group * new * N * D / (batch * 2 * D * (2 * N + 2 * group * new))


asked = {"1 head": (1, 1, 1), "4 heads": (1, 4, 1), "64 sequences": (64, 4, 1)}
asked["8 new tokens"] = (1, 4, 8)
folded(*(f"{name:13} {per_byte(*sizes):5.1f}" for name, sizes in asked.items()))

# %% tags=["hide-output"]
places = {name: per_byte(*asked[name]) for name in ("1 head", "4 heads", "8 new tokens")}
places["all 16,384 tokens at once"] = per_byte(1, 1, 16384)
figure = memory_wall.roofline(places, [], "Where decode sits: under the slopes")
png(figure, "Decode lies left of every ridge, attention of all tokens right of it")

# %% [markdown]
# ## Which keys a new token sees
#
# `length` counts the tokens of a sequence, the new ones included. Of `Nq` new tokens, token i is at position `length -
# Nq + i`. It sees the keys up to its own position, and with a window only the newest of these. Keys outside of that
# must not be *read*: a hidden key that is loaded costs as much time as any other.

# %%
length, Nq, window = 11, 3, 6
print("key           ", *(f"{j:2}" for j in range(length)))
for i in range(Nq):
    p = length - Nq + i
    sees = [0 <= p - j < window for j in range(length)]
    print(f"position {p:2}   ", *(" #" if seen else " ." for seen in sees))
print("first key that any of them sees:", max(0, length - Nq - window + 1))

# %% [markdown]
# ## Pieces and their merge
#
# An H200 has 132 multiprocessors. With one program for each sequence and kv head, a batch of one keeps 8 of them busy,
# and these alone cannot use the full bandwidth. So the cache of a sequence is cut into *pieces*, with a program for
# each ("split-KV"). A program does the online softmax of its piece, and stores two things for each row: the piece's own
# output o and its lse ([notebook 2](02_online_softmax.ipynb)). A second kernel merges:
#
# $$\text{weight}_i = e^{\text{lse}_i - \max \text{lse}} \qquad
# o = \frac{\sum_i \text{weight}_i\, o_i}{\sum_i \text{weight}_i}$$

# %%
import torch


def attend(q, k, v, piece):
    """o and lse of each piece: (pieces, D) and (pieces,)."""
    scores = k @ q / q.shape[0] ** 0.5
    each = list(zip(scores.split(piece), v.split(piece), strict=True))
    o = torch.stack([torch.softmax(s, 0) @ x for s, x in each])
    return o, torch.stack([torch.logsumexp(s, 0) for s, _ in each])


def merge(o, lse):
    weight = torch.exp(lse - lse.max())
    return weight @ o / weight.sum()


# %%
torch.manual_seed(3)
q, k, v = 2 * torch.randn(16), torch.randn(20, 16), torch.randn(20, 16)
o, lse = attend(q, k, v, 6)
right = torch.softmax(k @ q / 4, 0) @ v
agree = torch.allclose(merge(o, lse), right, atol=1e-6)
print("merged pieces are attention over all keys:", agree)
draw.pieces(k @ q / 4, 6, lse, torch.softmax(lse, 0), o[:, :6])

# %% [markdown]
# The mean of the four outputs would be wrong: a piece with large scores counts for more, and lse says how much. The
# last piece has two keys, and is no special case.
#
# ### A piece that a row does not see
#
# With a window, one row may see no key of a piece that another row needs. All its scores are $-\infty$, and a maximum
# of $-\infty$ must not be subtracted from them. Such a piece must hand over o = 0 and lse = $-\infty$: its weight in
# the merge is then 0. An o that is NaN would spoil the row, as 0 times NaN is NaN.

# %%
nothing = torch.full((4,), -torch.inf)
print("without care:", torch.exp(nothing - nothing.max()).tolist())
p = torch.exp(nothing - 0.0)  # 0 in the place of the maximum
print("with care:   ", p.tolist(), "their sum's logarithm:", p.sum().log().item())

# %% [markdown]
# ## Pages
#
# A server does not know how long a text will become. Room for the longest text for every sequence would be mostly
# empty. So the cache is made of *pages* of a few tokens, and a *block table* says for each sequence which page has
# which of its tokens. A new page is taken when the last one is full.

# %%
table, lengths, page_size = [[4, 1, 6], [2, 0]], [40, 23], 16
draw.pages(table, lengths, page_size, there=8)

# %% [markdown]
# ### Predict before you run
#
# Where is key 37 of sequence 0? And must a tile of keys lie in one page?
#
# <details><summary>Answer</summary>
#
# Entry 37 // 16 = 2 of its row is page 6, and there it is row 37 % 16 = 5. A tile may cross pages: the kernel loads an
# entry of the table for *each key* of the tile, not one for the tile. Entries past a length may hold anything: they
# are not to be loaded.
# </details>

# %%
cache = torch.zeros(8, page_size, 16)
kept = torch.randn(lengths[0], 16)  # the keys of sequence 0
j = torch.arange(lengths[0])
page, row = torch.tensor(table[0])[j // page_size], j % page_size
cache[page, row] = kept
same = torch.equal(cache[page, row], kept)
place = f"key 37: page {page[37]}, row {row[37]}"
folded(place, f"read through the table, the same keys: {same}")

# %% [markdown]
# ## The same bits in any batch
#
# A float32 keeps 24 bits of a sum; the rest is rounded away at every addition. So the order of a sum decides which bits
# are lost:

# %%
a, b, c = torch.tensor([1e8, 1.0, -1e8])
print("(a + b) + c =", ((a + b) + c).item(), "  (a + c) + b =", ((a + c) + b).item())

# %% [markdown]
# Pieces are sums, and where a piece ends decides the order. It is usual to cut a cache into as many pieces as the GPU
# has room for: few sequences get many short pieces, many sequences get few long ones.
#
# ### Predict before you run
#
# The same query and the same cache stand in batches of 1 to 64 sequences. Does its output stay the same, bit for bit,
# if each piece is a *share* of the cache? And if each piece has 256 tokens?
#
# <details><summary>Answer</summary>
#
# With shares, the batch decides how many pieces there are, and so the order of the sum: the last bits change with the
# *other* sequences. A fixed number of tokens, counted from the start of the sequence, depends on nothing but the
# sequence. Both results are equally right. But a token is chosen by comparing logits, and a last bit can decide between
# two that are close; from there on the text is another one.
# </details>

# %% tags=["varies", "hide-output"]
torch.manual_seed(0)
N, room = 2048, 2 * 132  # programs that an H200 has room for, two for each multiprocessor
q, k, v = torch.randn(16), torch.randn(N, 16), torch.randn(N, 16)
batches = [1, 2, 4, 8, 16, 32, 64]
shares = [-(-N // -(-room // (B * Hkv))) for B in batches]  # tokens of a piece
by_share = [merge(*attend(q, k, v, piece)) for piece in shares]
fixed = merge(*attend(q, k, v, 256))  # asks nothing of the batch
for B, piece, o in zip(batches, shares, by_share, strict=True):
    other = (o != by_share[0]).sum().item()
    print(f"batch of {B:2}: pieces of {piece:4} tokens, {other:2} of 16 with other bits")
exact = torch.softmax(k.double() @ q.double() / 4, 0) @ v.double()
draw.results(batches, [o[0] for o in by_share], fixed[0], exact[0])

# %% [markdown]
# A kernel whose result for a sequence has the same bits in any batch is *batch invariant*. It needs three things: a
# piece is a fixed number of tokens and begins at a multiple of it, pages or a window change nothing of that, and the
# pieces are merged in one order. The solution of the lab:

# %% tags=["solution"]
from grader.core import in_process

in_process.begin()  # no GPU is needed
from solutions.x4_decode import decode_attention

torch.manual_seed(1)
q, k, v = torch.randn(3, 4, 1, 16), torch.randn(3, 2, 300, 16), torch.randn(3, 2, 300, 16)
lengths = torch.tensor([150, 300, 7], dtype=torch.int32)
together = decode_attention(q, k, v, lengths)
alone = [decode_attention(*(x[b : b + 1] for x in (q, k, v, lengths))) for b in range(3)]
print("alone and together, the same bits:", torch.equal(torch.cat(alone), together))

# %% [markdown]
# ## A learned sink logit
#
# A softmax must give away all of its weight, even where no key fits. Two cures have like names. A *sink token* (P7) is
# a key: the first tokens stay visible, with their values. A *learned sink logit* is a number for each head, learned in
# training. It joins the denominator as `exp(sink)`, once for a row, and has no key and no value; no scale touches it.
# In the merge it is one more lse, whose o is 0.

# %%
scores, sink = torch.tensor([0.5, 2.0, 1.0]), torch.tensor(1.5)
plain, total = torch.softmax(scores, 0), scores.exp().sum()
with_sink = scores.exp() / (total + sink.exp())
for name, weights in (("without", plain), ("with a sink logit", with_sink)):
    print(f"{name:18}", *(f"{x:.3f}" for x in weights), f" sum {weights.sum():.3f}")

# %% [markdown]
# ## Exercises
#
# 1. On paper: two pieces, lse 0 and ln 3, outputs 4 and 8. What is the merged output? With a sink logit of ln 4?
# 2. Give `merge` a lse in base 2. Which function must replace `exp`? What comes out if it does not?
# 3. A window of 512 over 16,384 tokens: how many bytes must be read, and how many does a kernel read that masks and
#    does not skip?
# 4. In the cell of the batches, add up the pieces in the reverse order. Are the bits the same? Which order would you
#    choose for a kernel, and what must it not depend on?
# 5. A prompt that two texts share can lie in the same pages. What must a server then take care of when one of the two
#    goes on?
# 6. Now build it: `problems/x4_decode.py`, and `make grade P=x4`. Its six gaps can be tried in order. Then `make
#    generate` has a small model write with your kernels.
#
# On an H200, X4's solution and a form for its GPU alone, beside cuDNN and a plain copy: [DECODE](../report/DECODE.md).
#
# **Next:** the problems themselves, `make grade P=1` first; and [the report](../report/REPORT.md) on all seven.
#
# ## References
#
# - Dao et al., [Flash-Decoding for long-context inference](https://pytorch.org/blog/flash-decoding/), 2023: pieces.
# - Kwon et al., [PagedAttention](https://arxiv.org/abs/2309.06180), 2023: pages and block tables.
# - He, [Defeating nondeterminism in LLM
#   inference](https://thinkingmachines.ai/blog/defeating-nondeterminism-in-llm-inference/), 2025: batch invariance.
# - OpenAI, [gpt-oss](https://arxiv.org/abs/2508.10925), 2025: learned sink logits.
# - Leviathan et al., [Speculative decoding](https://arxiv.org/abs/2211.17192), 2022: several new tokens at once.
