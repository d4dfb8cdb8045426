"""What attention by tiles costs, by formula: the tiles that a kernel visits, its FLOPs, exponentials and bytes.

Counts are of one call, all batches and heads, for the kernels of P3 to P7 with tiles of block_q queries and block_k
keys. traced.py counts the same while a kernel runs; the report's tests hold the two against each other.
"""

from report.counting.traced import SIZES, Cost

PHASES = ("S", "E", ">", "D", "r")  # sinks, the window's edge, no mask, the diagonal, the ragged tail


def phases(case, q_start, block_q, block_k):
    """{letter of PHASES: range of first keys}: the tiles that the program of the queries from q_start on visits."""
    if not case.causal:
        full_end = case.num_keys // block_k * block_k
        return {">": range(0, full_end, block_k), "r": range(full_end, case.num_keys, block_k)}
    diagonal = q_start // block_k * block_k
    last = range(diagonal, min(q_start + block_q, case.N), block_k)
    if case.window is None:
        return {">": range(0, diagonal, block_k), "D": last}
    window = min(case.window, case.N)
    first = max(0, q_start - window + 1) // block_k * block_k
    inside = min(up(max(0, q_start + block_q - window), block_k), diagonal)
    return {
        "S": range(0, min(case.sinks or 0, first), block_k),
        "E": range(first, inside, block_k),
        ">": range(inside, diagonal, block_k),
        "D": last,
    }


def up(position, block):
    """A position rounded up to a tile."""
    return -(-position // block) * block


def cost(case, block_q, block_k):
    """The Cost of a kernel of P3 to P7 on a case."""
    heads, row = case.B * case.Hq, case.D * SIZES[case.dtype]
    starts = range(0, case.N, block_q)
    visited = [k for q in starts for tiles in phases(case, q, block_q, block_k).values() for k in tiles]
    keys = sum(min(block_k, case.num_keys - k) for k in visited)
    tiles = len(visited)
    return Cost(
        programs=heads * len(starts),
        tiles=heads * tiles,
        keys=heads * keys,
        dot_flops=heads * tiles * 4 * block_q * block_k * case.D,  # q k^T and p v
        exponentials=heads * tiles * (block_q * block_k + block_q),
        loaded=heads * row * (case.N + 2 * keys),  # q once; k and v with each tile
        stored=heads * row * case.N,
    )


def least_bytes(case):
    """Bytes of q, k, v and o, each moved once: what no kernel can do without."""
    rows = 2 * case.Hq * case.N + 2 * case.kv_heads * case.num_keys
    return case.B * rows * case.D * SIZES[case.dtype]


def matrix_bytes(case):
    """Bytes of one float32 matrix of scores, of all batches and heads."""
    return 4 * case.B * case.Hq * case.N * case.num_keys
