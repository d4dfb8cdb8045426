"""Work counted: the keys that a kernel loaded against those that its mask needs."""

import torch

SLACK_TILES = 2  # a tile of queries may load this many tiles of keys more than it needs, for each stretch of the mask


def wasted(case, records):
    """(sentence, facts) where K or V is loaded more than the mask needs, else None.

    records: what visits.py counted, one for each tile of queries. What a tile of queries needs is the tiles of keys, of
    the kernel's own size, that hold a key which any of its queries sees; SLACK_TILES more are allowed for tiles that do
    not start at multiples of their size, twice where there are sinks apart from the window.
    """
    position = torch.arange(case.num_keys)
    mask = case.visibility.mask(torch.arange(case.N), position)
    stretches = 2 if case.sinks else 1
    needed = loaded = allowed = total = 0
    worst = None
    for record in records:
        first, last = record["q"]
        tile = record["span"]
        seen = mask[first : last + 1].any(0)
        tiles = int(torch.nn.functional.pad(seen, (0, -case.num_keys % tile)).view(-1, tile).any(1).sum())
        here = max(record["k"], record["v"]) / (case.D * tile * record["heads"])
        needed += tiles
        loaded += here
        allowed += tiles + SLACK_TILES * stretches
        total += -(-case.num_keys // tile)
        if worst is None or here - tiles > worst[0]:
            worst = here - tiles, record, here, tiles
    if not records or loaded <= allowed:
        return None
    _, record, here, tiles = worst
    sentence = (
        f"{record['kernel']} loads {loaded:.0f} tiles of keys where this mask needs {needed} of {total}: query rows "
        f"{record['q'][0]}-{record['q'][1]} load {here:.0f} tiles of {record['span']} and see keys in {tiles}."
    )
    return sentence, {"tiles_loaded": loaded, "tiles_needed": needed, "tiles_allowed": allowed, "tiles": total}
