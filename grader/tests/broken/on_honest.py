"""Mistakes in kernels of other shapes: one idea each, applied to an honest kernel instead of our solution.

Format and meaning are those of mistakes.py. Where `because` is empty the grader is asked for nothing but facts: a cause
that is not the true one would send the student astray, so none may be named.
"""

from grader.tests.broken.mistakes import Mistake


def on(base, name, was, now, case, because="", **rest):
    """A mistake in grader/tests/honest/{base}.py; its problem is the first word of that name."""
    pair = ((was,), (now,)) if isinstance(was, str) else (was, now)
    return Mistake(base.split("_")[0], name, *pair, case, because=because, base=base, **rest)


P1 = (
    on(
        "p1_heads_flattened", "softmax over the queries", ("max(dim=-1", "sum(dim=-1"), ("max(dim=-2", "sum(dim=-2"),
        "whole tiles", "a softmax over the queries",
    ),
    on("p1_heads_flattened", "multiplied by sqrt(D)", "1 / math.sqrt(D)", "math.sqrt(D)", "whole tiles", "by sqrt(D)"),
    on("p1_heads_flattened", "mask turned round", "cols > rows", "cols < rows", "causal", "sees the future only"),
    on(
        "p1_heads_flattened", "lse without a logarithm", "total.log()", "total", "whole tiles",
        "the maximum plus the sum, without a logarithm",
    ),
    on("p1_torch_softmax", "divided by D", "q.size(-1) ** 0.5", "q.size(-1)", "whole tiles", "1 / D"),
    on(
        "p1_torch_softmax", "mask after the softmax",
        ("scores = scores + torch.full", "p = torch.softmax(scores, dim=-1)"),
        ("bias = torch.full", "p = torch.softmax(scores, dim=-1)\n    p = p.tril() if is_causal else p"),
        "causal", "after the sum was taken",
    ),
    on(
        "p1_torch_softmax", "mask of zeros",
        "scores = scores + torch.full((n, n), float(\"-inf\"), device=q.device).triu(1)", "scores = scores.tril()",
        "causal", "hidden scores are 0",
    ),
    on("p1_torch_softmax", "softmax over dim 2", "softmax(scores, dim=-1)", "softmax(scores, dim=-2)", "whole tiles", "queries"),
    on("p1_torch_softmax", "own key hidden", "triu(1)", "triu(0)", "causal", "own key"),
    on(
        "p1_torch_softmax", "lse over the queries", "logsumexp(scores, dim=-1)", "logsumexp(scores, dim=-2)", "whole tiles",
        "over the queries",
    ),
    on("p1_written_for_cuda", "K for V", "@ v.float()", "@ k.float()", "whole tiles", "K in the place of V"),
    on(
        "p1_written_for_cuda", "lse less the maximum", "(top + torch.log(total))", "(torch.log(total) - top)", "whole tiles",
        "the logarithm of the sum less the maximum",
    ),
    on("p1_written_for_cuda", "not divided", "((p / total) @", "(p @", "whole tiles", "not divided by the sum"),
)

P2 = (
    on("p2_keys_outside", "acc not rescaled", "l_old[..., None] * Oi", "li[..., None] * Oi", "many tiles", "acc is not rescaled"),
    on("p2_keys_outside", "diagonal skipped", "j > i + Br - 1", "j >= i", "causal, ragged", "that begin before its tile of 32 queries"),
    on("p2_keys_outside", "row_sum not rescaled", "l_old + P.sum(dim=-1)", "li + P.sum(dim=-1)", "many tiles", "row_sum is not rescaled"),
    on(
        "p2_merge_by_logaddexp", "average not weighed down", "out * torch.exp(total - known)[..., None]", "out", "many tiles",
    ),
    on(
        "p2_merge_by_logaddexp", "first tile skipped", "reversed(range(0, end", "reversed(range(CHUNK_K, end", "many tiles",
        "without the first 64 keys",
    ),
    on("p2_merge_by_logaddexp", "causal one ahead", "cols[None, :] > rows", "cols[None, :] > 1 + rows", "causal", "one key too many"),
    on("p2_one_pair_at_a_time", "row_sum not rescaled", "total * fade + w", "total + w", "many tiles", "row_sum is not rescaled"),
    on(
        "p2_one_pair_at_a_time", "acc rescaled late", "torch.addmm(out * fade.unsqueeze(1), w, v_tile)",
        "(out + w @ v_tile) * fade.unsqueeze(1)", "many tiles", "acc is rescaled after",
    ),
    on("p2_one_pair_at_a_time", "lse in base 2", "(top + total.log2()) * LN2", "top + total.log2()", "whole tiles", "base 2"),
    on(
        "p2_one_pair_at_a_time", "log of the sum in base 2", "(top + total.log2()) * LN2", "top * LN2 + total.log2()",
        "whole tiles", "the logarithm of the sum in base 2",
    ),
    on("p2_one_pair_at_a_time", "log2(e) forgotten", "1 / (LN2 * math.sqrt(D))", "1 / math.sqrt(D)", "whole tiles", "log2(e) missing"),
    on(
        "p2_one_pair_at_a_time", "maximum from zero", "torch.full((len(rows),), -math.inf, device=q.device)",
        "torch.zeros(len(rows), device=q.device)", "rows of very different size", "starts at 0",
    ),
    on(
        "p2_written_for_cuda", "causal by tile", "k_pos[None, :] > q_pos[:, None]",
        "k_pos[None, :] // BLOCK_K > q_pos[:, None] // BLOCK_K", "causal", "a causal mask by tiles of 48",
    ),
    on(
        "p2_written_for_cuda", "row_sum of the last tile alone", "row_sum = row_sum * alpha + p", "row_sum = p", "many tiles",
        "row_sum is that of the last tile alone",
    ),
    on(
        "p2_written_for_cuda", "maximum of the tile alone", "torch.maximum(row_max, scores.amax(-1, keepdim=True))",
        "scores.amax(-1, keepdim=True)", "scores falling along the keys", "that of the last tile alone",
    ),
)

P3 = (
    on("p3_natural_exp", "multiplied by sqrt(D)", "/ sqrt_d", "* sqrt_d", "fewer tokens than a tile", "scaled by sqrt(D)"),
    on(
        "p3_natural_exp", "exp2 with a natural scale", ("tl.exp(m_i", "tl.exp(qk"), ("tl.exp2(m_i", "tl.exp2(qk"), "many tiles",
        "log2(e) missing",
    ),
    on("p3_natural_exp", "alpha in base 2", "tl.exp(m_i", "tl.exp2(m_i", "many tiles", "alpha is taken with exp2"),
    on("p3_natural_exp", "multiplied by the sum", "acc * (1.0 / l_i)[:, None]", "acc * l_i[:, None]", "fewer tokens than a tile", "multiplied by the sum"),
    on("p3_running_lse", "not divided at the end", "acc_o = acc_o * o_scale[:, None]", "pass", "fewer tokens than a tile", "not divided by the sum"),
    on("p3_running_lse", "acc not rescaled", "acc_o * acc_o_scale[:, None]", "acc_o", "many tiles"),
    on("p3_running_lse", "no scale", "or 1.0 / math.sqrt(d)", "or 1.0", "fewer tokens than a tile", "without a scale"),
    on("p3_running_lse", "tail not masked", "if not EVEN_N:", "if EVEN_N:", "fewer tokens than a tile", "zeros"),
    on("p3_transposed_scores", "sum over the queries", "tl.sum(p, 0)", "tl.sum(p, 1)", "whole tiles"),
    on("p3_transposed_scores", "maximum over the queries", "tl.max(scores, 0)", "tl.max(scores, 1)", "rows of very different size"),
    on("p3_transposed_scores", "K for V", "tl.load(V + batch * vb + head * vh + k_row[None, :] * vn", "tl.load(K + batch * kb + head * kh + k_row[None, :] * kn", "fewer tokens than a tile", "K in the place of V"),
    on("p3_lazy_rescaling", "acc not rescaled", "            acc *= alpha[:, None]\n", "", "many tiles"),
    on("p3_lazy_rescaling", "threshold of the wrong row", "tl.max(tile_max - pivot, 0)", "tl.min(tile_max - pivot, 0)", "scores rising along the keys"),
    on("p3_all_float32", "divided by D", "tl.sqrt(D + 0.0)", "D", "fewer tokens than a tile", "1 / D"),
    on("p3_all_float32", "score mask one too far", "tl.where(k_pos[None, :] < N", "tl.where(k_pos[None, :] <= N", "fewer tokens than a tile", "the last of them zeros"),
    on("p3_block_pointers", "V not advanced", "v_ptr = tl.advance(v_ptr, (BLOCK_N, 0))", "pass", "many tiles", "V of the first tile"),
    on("p3_block_pointers", "K not advanced", "kt_ptr = tl.advance(kt_ptr, (0, BLOCK_N))", "pass", "many tiles", "K of the first tile"),
    on("p3_block_pointers", "head 0 for K", "base=K + b * skb + h * skh", "base=K + b * skb", "every batch and head its own", "kv head 0 for every query head for K alone"),
    on("p3_block_pointers", "tail not masked", "qk = tl.where((start_n + tl.arange(0, BLOCK_N))[None, :] < N, qk, float(\"-inf\"))", "pass", "ragged tail", "zeros"),
    on("p3_head_dim_halves", "half of the columns", "tl.trans(k_hi), scores)", "tl.trans(k_hi))", "whole tiles"),
    on("p3_head_dim_halves", "second half not rescaled", "acc_hi * alpha[:, None]", "acc_hi", "whole tiles"),
    on("p3_split_keys_merged", "weights in another base", "weight = tl.exp2(lse", "weight = tl.exp(lse", "whole tiles"),
    on("p3_split_keys_merged", "last tile of each part", "end = tl.minimum(begin + keys_per_split, N)", "end = tl.minimum(begin + keys_per_split - BLOCK_K, N)", "many tiles", "never meets"),
    on("p3_split_keys_merged", "parts not weighed", "tl.exp2(lse - tl.max(lse, 0))", "tl.where(lse > float(\"-inf\"), 1.0, 0.0)", "whole tiles"),
    on("p3_static_range", "same tile four times", "group_start + i * BLOCK_K +", "group_start +", "many tiles", "never meets"),
    on("p3_static_range", "tail not masked", "scores = tl.where(k_pos[None, :] < N, scores, float(\"-inf\"))", "pass", "fewer tokens than a tile", "zeros"),
    on("p3_tiles_16x64", "alpha turned round", "tl.exp2(m - m_new)", "tl.exp2(m_new - m)", "whole tiles", "alpha is turned round"),
    on("p3_tiles_16x64", "row_sum of the last tile", "l = l * alpha + tl.sum", "l = tl.sum", "many tiles", "row_sum is that of the last tile alone"),
    on("p3_tiles_16x64", "acc of the last tile", "acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])", "acc = tl.dot(p.to(v.dtype), v)", "many tiles", "acc is that of the last tile alone"),
    on("p3_transposed_k", "alpha not scaled", "tl.exp2((row_max - new_max) * scale_log2)", "tl.exp2(row_max - new_max)", "many tiles", "maxima that are not scaled"),
    on("p3_transposed_k", "scores not scaled again", "tl.exp2((scores - new_max[:, None]) * scale_log2)", "tl.exp2(scores * scale_log2 - new_max[:, None])", "many tiles"),
    on("p3_query_scaled_first", "log2(e) forgotten", "1.44269504 / tl.sqrt", "1.0 / tl.sqrt", "fewer tokens than a tile", "log2(e) missing"),
    on("p3_written_for_cuda", "next head", ("head * kh", "head * vh"), ("(head + 1) % H * kh", "(head + 1) % H * vh"), "every batch and head its own", "the kv head after the right one"),
    on("p3_written_for_cuda", "q of head 0", "batch * qb + head * qh", "batch * qb", "every batch and head its own", "queries of head 0"),
    on("p3_padded_in_wrapper", "padded length in the mask", "cols[None, :] < N,", "cols[None, :] < N_padded,", "fewer tokens than a tile", "zeros"),
    on("p3_padded_in_wrapper", "the last rows returned", "o[:, :, :N]", "o[:, :, extra:]", "many tiles"),
    on("p3_helper_functions", "row_sum rescaled late", "row_sum * alpha + tl.sum(p, 1)", "(row_sum + tl.sum(p, 1)) * alpha", "many tiles", "row_sum is rescaled after"),
    on("p3_helper_functions", "rows one late", "tl.store(o_ptrs, (acc", "o_ptrs = tl.where(q_pos[:, None] > 0, o_ptrs - on, o_ptrs + (N - 1) * on)\n    tl.store(o_ptrs, (acc", "fewer tokens than a tile", "row"),
    on("p3_addresses_kept_inside", "tail not masked", "tl.where((k_pos < N)[None, :], tl.dot(q, tl.trans(k)) * scale_log2, float(\"-inf\"))", "tl.dot(q, tl.trans(k)) * scale_log2", "fewer tokens than a tile", "counts the last key"),
    on("p3_addresses_kept_inside", "last key hidden", "(k_pos < N)[None, :]", "(k_pos < N - 1)[None, :]", "fewer tokens than a tile", "without the last key"),
    on("p3_host_descriptors_4d", "V of the first tile", "v = v_desc.load([batch, head, k_start, 0])", "v = v_desc.load([batch, head, 0, 0])", "many tiles", "V of the first tile"),
    on("p3_host_descriptors_4d", "no batch for K", "k = k_desc.load([batch, head", "k = k_desc.load([0, head", "every batch and head its own", "batch 0"),
)

P4 = (
    on("p4_backwards", "NaN from hidden rows", "tl.where(new_max > float(\"-inf\"), new_max, 0.0)", "new_max", "whole tiles", "NaN for rows whose first tile"),
    on("p4_backwards", "own key hidden", "k_pos[None, :] <= q_pos", "k_pos[None, :] < q_pos", "fewer tokens than a tile", "own key"),
    on("p4_backwards", "diagonal dropped", "tl.cdiv(tl.minimum(q_start + BLOCK_Q, N), BLOCK_K)", "tl.cdiv(q_start, BLOCK_K)", "whole tiles", "without its diagonal"),
    on("p4_backwards", "acc not rescaled", "acc=acc * alpha[:, None]", "acc=acc", "many tiles", "acc is not rescaled"),
    on("p4_normalised_at_each_step", "average not weighed", "o * (before / l)[:, None]", "o", "many tiles"),
    on("p4_normalised_at_each_step", "no mask", "s = tl.where(q_pos[:, None] >= k_pos[None, :], s, float(\"-inf\"))", "pass", "fewer tokens than a tile", "inside a tile the future is seen"),
    on("p4_flat_grid", "batch ignored for K", "batch * stride_kb + ", "", "every batch and head its own", "batch 0 in every batch for K alone"),
    on("p4_flat_grid", "own key hidden", "cols[None, :] > rows", "cols[None, :] >= rows", "fewer tokens than a tile", "own key"),
    on("p4_flat_grid", "row_sum not rescaled", "tl.fma(l, scale, tl.sum(p, 1))", "l + tl.sum(p, 1)", "many tiles", "row_sum is not rescaled"),
    on("p4_flat_grid", "V not moved", "        v_ptrs += BLOCK_K * stride_vn\n", "", "many tiles", "V of the first tile"),
    on("p4_persistent", "q of head 0", "Q + b * qb + h * qh", "Q + b * qb", "every batch and head its own", "queries of head 0"),
    on("p4_paired_tiles", "light tiles not masked", "if k_tile == tile:", "if k_tile == last:", "many tiles"),
    on("p4_tutorial_stages", "own key hidden", "offs_m[:, None] >= offs_n", "offs_m[:, None] > offs_n", "fewer tokens than a tile", "own key"),
    on("p4_tutorial_stages", "diagonal in both stages", "lo, hi = 0, start_m * BLOCK_M", "lo, hi = 0, tl.minimum((start_m + 1) * BLOCK_M, N_CTX)", "whole tiles", "once without a mask"),
    on("p4_tutorial_stages", "first stage missing", "STAGE=3", "STAGE=2", "many tiles", "without the phase that needs no mask"),
    on("p4_tutorial_stages", "sum from 1, maximum from 0", "tl.zeros([BLOCK_M], dtype=tl.float32) - float(\"inf\")", "tl.zeros([BLOCK_M], dtype=tl.float32)", "fewer tokens than a tile"),
    on("p4_other_grid_order", "causal one ahead", "(q_pos >= k_row)", "(q_pos + 1 >= k_row)", "fewer tokens than a tile", "one key too many"),
    on("p4_atomic_add", "diagonal not added", "if k_start < q_start + BLOCK_Q:", "if k_start < q_start:", "whole tiles"),
    on("p4_atomic_add", "natural logarithm", "m + tl.log2(l)", "m + tl.log(l)", "fewer tokens than a tile"),
    on("p4_loads_without_other", "hidden scores are 0", "tl.where(q_pos >= k_pos[None, :], scores, float(\"-inf\")) * scale_log2", "tl.where(q_pos >= k_pos[None, :], scores, 0.0) * scale_log2", "whole tiles", "hidden scores are 0"),
    on("p4_host_descriptors_flattened", "first head of all", ("k_desc.load([base + start", "v_desc.load([base + start"), ("k_desc.load([start", "v_desc.load([start"), "every batch and head its own", "the keys of batch 0 and head 0"),
    on("p4_autotune", "divided by D", "math.log2(math.e) / math.sqrt(D)", "math.log2(math.e) / D", "fewer tokens than a tile", "1 / D"),
    on("p4_autotune", "mask after the maximum", ("(k_pos[None, :] <= q_pos[:, None]) & (k_pos[None, :] < N)", "p = tl.exp2(scores - m_new[:, None])"), ("k_pos[None, :] < N", "p = tl.where(k_pos[None, :] <= q_pos[:, None], tl.exp2(scores - m_new[:, None]), 0.0)"), "scores rising along the keys"),
)

P5 = (
    on("p5_tiles_128x16", "kv head by modulo", "head * num_kv_heads // num_q_heads", "head % num_kv_heads", "groups of four", "head % Hkv"),
    on("p5_contiguous_copies", "kv row by modulo", "kv = bh // GROUP", "kv = bh % GROUP", "groups of four"),
    on("p5_five_dimensions", "heads unflattened the other way", ("q.unflatten(1, (Hkv, Hq // Hkv)), o.unflatten(1, (Hkv, Hq // Hkv))",), ("(t.unflatten(1, (Hq // Hkv, Hkv)).transpose(1, 2) for t in (q, o))",), "groups of four", "head % Hkv"),
    on("p5_group_in_rows", "mask by row of the tile", "token[:, None] >= k_pos", "r[:, None] >= k_pos", "groups of four"),
    on("p5_device_descriptors", "kv head by modulo", "kv_head = head // group", "kv_head = head % (heads // group)", "groups of four", "head % Hkv"),
    on("p5_device_descriptors", "batch ignored for V", "V + batch * v_b + ", "V + ", "no sharing", "batch 0 in every batch for V alone"),
    on("p5_device_descriptors", "diagonal not masked", "if k_start + BLOCK_K > q_start:", "if k_start > q_start:", "whole tiles", "inside a tile the future is seen"),
    on("p5_autograd_function", "log2(e) forgotten", "(scale * LOG2E)", "scale", "fewer tokens than a tile", "log2(e) missing"),
    on("p5_scaled_query_in_two_parts", "scaled twice", "tl.dot(rest, tl.trans(k)))", "tl.dot(rest, tl.trans(k))) * scale_log2", "fewer tokens than a tile", "twice"),
    on("p5_scaled_query_in_two_parts", "acc late", "tl.dot(p.to(v.dtype), v, acc * alpha[:, None])", "tl.dot(p.to(v.dtype), v, acc) * alpha[:, None]", "many tiles", "acc is rescaled after"),
)

P6 = (
    on("p6_one_masked_loop", "window one wide", "k_pos[None, :] > q_pos[:, None] - WINDOW", "k_pos[None, :] >= q_pos[:, None] - WINDOW", "window smaller than a tile", "a window of 6"),
    on("p6_one_masked_loop", "window of the tile's first query", "k_pos[None, :] > q_pos[:, None] - WINDOW", "k_pos[None, :] > q_start - WINDOW", "window smaller than a tile", "first query"),
    on("p6_one_masked_loop", "start of the last query", "tl.maximum(0, q_start - WINDOW + 1)", "tl.maximum(0, q_start + BLOCK_Q - WINDOW)", "window not a multiple of a tile", "last query"),
    on("p6_padded_in_wrapper", "one tile too few", "1 + triton.cdiv(window_size - 1, BLOCK)", "triton.cdiv(window_size, BLOCK)", "window not a multiple of a tile", "first tile"),
    on("p6_padded_in_wrapper", "keys before the first", " & (k_pos[None, :] >= 0)", "", "window smaller than a tile", "before the first"),
    on("p6_skips_by_if", "edge tiles skipped", "(q_start - k_last < window_size)", "(q_last - k_start < window_size)", "window not a multiple of a tile", "never meets"),
    on("p6_skips_by_if", "edge not masked", "(k_last <= q_start) & (q_last - k_start < window_size)", "k_last <= q_start", "window not a multiple of a tile", "too old for the window are not masked"),
    on("p6_transposed_output", "last tile missed", "range(first, last + 1)", "range(first, last)", "many tiles", "never meets"),
    on("p6_unaligned_tiles", "window one wide", "q_pos[:, None] < k_pos[None, :] + window_size", "q_pos[:, None] <= k_pos[None, :] + window_size", "window smaller than a tile", "a window of 6"),
    on("p6_transposed_output", "NaN from rows that see nothing", "tl.where(m_new == float(\"-inf\"), 0.0, m_new)", "m_new", "window of one", "NaN for rows"),
    on("p6_while_loop", "NaN from rows that see nothing", "tl.where(m_new == float(\"-inf\"), 0.0, m_new)", "m_new", "whole tiles", "NaN for rows"),
    on("p6_unaligned_tiles", "acc not rescaled", "acc * alpha[:, None]", "acc", "window not a multiple of a tile", "acc is not rescaled"),
    on("p6_while_loop", "edge tile missed", "while k_start + BLOCK_K > oldest", "while k_start > oldest", "window not a multiple of a tile", "never meets"),
    on("p6_while_loop", "window one narrow", "age < window_size", "age < window_size - 1", "window smaller than a tile", "a window of 4"),
    on("p6_while_loop", "row_sum not rescaled", "l = l * alpha +", "l = l +", "window not a multiple of a tile", "row_sum is not rescaled"),
)

P7 = (
    on("p7_one_masked_loop", "one sink more", "k_pos[None, :] < sink_size", "k_pos[None, :] <= sink_size", "one sink", "2 sinks"),
    on("p7_one_masked_loop", "sink tiles met twice", "tl.minimum(tl.cdiv(sink_size, BLOCK_K), window_tile)", "tl.cdiv(sink_size, BLOCK_K)", "sinks overlapping the window", "twice"),
    on("p7_one_masked_loop", "last sink tile dropped", "tl.cdiv(sink_size, BLOCK_K), window", "sink_size // BLOCK_K, window", "sinks not a multiple of a tile", "partly filled tile"),
    on("p7_one_masked_loop", "window less the sinks", "(age < window_size)", "(age < window_size - sink_size)", "one sink", "a window of 39"),
    on("p7_sinks_last", "sinks in the window again", "(q_pos[:, None] - k_pos[None, :] >= window_size)", "(q_pos[:, None] - k_pos[None, :] >= 0)", "sinks overlapping the window", "twice"),
    on("p7_sinks_last", "window one narrow", "(age < window_size)", "(age < window_size - 1)", "sinks larger than the window", "hides the key 8 tokens back"),
    on("p7_two_kernels_merged", "sinks in the window again", "attention_part(q, k, v, window_size, N", "attention_part(q, k, v, 0, N", "sinks overlapping the window", "twice"),
    on("p7_two_kernels_merged", "merged in another base", " * math.log(2.0)", "", "one sink", ""),
    on("p7_unaligned_window", "window over the sinks", "tl.maximum(q_start - window_size + 1, sink_end)", "tl.maximum(q_start - window_size + 1, 0)", "sinks overlapping the window", "twice"),
    on("p7_unaligned_window", "sinks not causal", "q_pos[:, None] >= k_pos[None, :], m", "k_pos[None, :] >= 0, m", "sinks larger than the window", "visible to queries before them"),
    on("p7_window_masks_sinks_out", "sinks not masked out", "(k_pos[None, :] >= sink_size) & ", "", "sinks overlapping the window", "twice"),
    on("p7_window_masks_sinks_out", "sinks in whole tiles", "(k_pos[None, :] < sink_size) & ", "", "one sink", "rounded up to whole tiles"),
    on("p7_window_masks_sinks_out", "sinks missing", "range(0, tl.minimum(sink_size, k_end), BLOCK_K)", "range(0, 0, BLOCK_K)", "one sink", "without its first 1 keys"),
)

PAIRS = (
    on("p3_natural_exp", "no scale, K of head 0", ("/ sqrt_d", "pid_h * skh"), ("", "0"), "every batch and head its own", "together with"),
    on("p3_helper_functions", "no scale, acc not rescaled", ("math.log2(math.e) / math.sqrt(D)", "acc * alpha[:, None]"), ("math.log2(math.e)", "acc"), "many tiles", "together with"),
    on("p2_one_pair_at_a_time", "log2(e) forgotten, row_sum not rescaled", ("1 / (LN2 * math.sqrt(D))", "total * fade + w"), ("1 / math.sqrt(D)", "total + w"), "many tiles", "together with"),
    on("p4_backwards", "own key hidden, divided by D", ("k_pos[None, :] <= q_pos", "/ math.sqrt(D)"), ("k_pos[None, :] < q_pos", "/ D"), "fewer tokens than a tile", "together with"),
    on("p4_flat_grid", "log2(e) forgotten, batch ignored for K", ("math.log2(math.e) / ", "batch * stride_kb + "), ("1.0 / ", ""), "every batch and head its own", "together with"),
    on("p5_tiles_128x16", "modulo, own key hidden", ("head * num_kv_heads // num_q_heads", "q_pos[:, None] >= k_pos"), ("head % num_kv_heads", "q_pos[:, None] > k_pos"), "groups of four", "together with"),
    on("p5_contiguous_copies", "acc not rescaled, no scale", ("acc * alpha[:, None]", " / math.sqrt(D)"), ("acc", ""), "many tiles", "together with"),
    on("p6_one_masked_loop", "window one wide, no scale", ("k_pos[None, :] > q_pos[:, None] - WINDOW", " / math.sqrt(D)"), ("k_pos[None, :] >= q_pos[:, None] - WINDOW", ""), "window smaller than a tile", "together with"),
    on("p6_while_loop", "window one narrow, row_sum not rescaled", ("age < window_size", "l = l * alpha +"), ("age < window_size - 1", "l = l +"), "window not a multiple of a tile", "together with"),
    on("p7_one_masked_loop", "one sink more, V of head 0", ("k_pos[None, :] < sink_size", "head // group * vh"), ("k_pos[None, :] <= sink_size", "0"), "every batch and head its own", "together with"),
)

ON_HONEST = (*P1, *P2, *P3, *P4, *P5, *P6, *P7, *PAIRS)
