"""What sinks are for: the loss of our own small model by position, far past the length that it was trained on.

    python -m report sinks                              on a GPU, rows into report/results/
    python -m report sinks --tokens 2048 --sequences 4 --device cpu       fewer, by PyTorch's attention

The texts are the modules of the standard library that no training saw, cut into sequences. On a GPU the course's own
operator computes all attention, in bfloat16. Method: Xiao et al., "Efficient streaming language models with attention
sinks", 2023, section 4.1; learned logits: OpenAI, "gpt-oss", 2025.
"""

import argparse
import hashlib
import json
from pathlib import Path

import torch
from torch.nn import functional

from model import corpus, sdpa, weights
from model.transformer import START, Whole, rotate, turns
from report.measuring.machine import write_both
from report.places import Refused
from report.studies.sinks import ARMS, BESIDE, COLUMNS, bins


def attention_on(device):
    """(attend(q, k, v, **options), the dtype that it computes in)."""
    if device == "cpu":
        return sdpa.attend, torch.float32
    from kernels.attention_op import attention

    return attention, torch.bfloat16


def attention_of(arm, attend, shape, window):
    """attend(q, k, v, **options) through the mask of an arm."""

    def plain(q, k, v, sink_logits=None, **model_options):
        return attend(q, k, v, window_size=window, sink_size=arm.sinks, sink_logits=sink_logits)

    def near(q, k, v, sink_logits=None, **model_options):
        """Queries past the cache's end see the sinks from its end: another part of the head dim holds that score.

        The head dim is four times as large, for which the scale is half of the right one: twice q mends it exactly.
        """
        position, nothing = torch.arange(q.shape[2], device=q.device), torch.zeros_like(v)
        moved = rotate(q, *turns(position.clamp(max=window + arm.sinks - 1) - position, shape)).to(q.dtype)
        is_sink, no_q = (position < arm.sinks)[:, None], torch.zeros_like(q)
        keys = torch.cat([k.masked_fill(is_sink, 0), k.masked_fill(~is_sink, 0), nothing, nothing], 3)
        queries, values = torch.cat([q, moved, no_q, no_q], 3) * 2, torch.cat([v, nothing, nothing, nothing], 3)
        return attend(queries, keys, values, window_size=window, sink_size=arm.sinks)[..., : v.shape[3]]

    return near if arm.near else plain


def sequences_of(source, tokens, most, device):
    """Rows of held-out modules, each of one module, the first of each first, START before each: (rows, tokens + 1)."""
    texts = [torch.frombuffer(bytearray(source.texts[name]), dtype=torch.uint8) for name in corpus.HELD_OUT]
    rows = [(n, row) for text in texts if len(text) >= tokens for n, row in enumerate(text.unfold(0, tokens, tokens))]
    if not rows:
        raise Refused(f"no held-out module has {tokens} bytes; give fewer --tokens")
    chosen = torch.stack([row for _, row in sorted(rows, key=lambda each: each[0])][:most]).long()
    return functional.pad(chosen, (1, 0), value=START).to(device)


def losses_of(model, rows, attend, dtype):
    """The loss of each byte, in nats: (sequences, tokens), one sequence after the other."""
    found = []
    for row in rows:
        logits = model(row[None, :-1], Whole(attend), dtype)[0]
        found.append(functional.cross_entropy(logits, row[1:], reduction="none").cpu())
    return torch.stack(found).double()


def rows_of(losses):
    """Lines of the table, of {arm: losses}."""
    for name, every in losses.items():
        for start, end in bins(every.shape[1]):
            each, beside = (by[:, start:end].mean(1) for by in (every, losses[BESIDE]))
            yield [name, start, end, *(f"{value:.5f}" for by in (each, beside - each) for value in mean_and_error(by))]


def mean_and_error(values):
    """The mean and its standard error; of one value no error is known."""
    return float(values.mean()), float(values.std() / len(values) ** 0.5) if len(values) > 1 else float("nan")


def shares_of(model, rows, tokens):
    """(of the first token, of the learned logit) by layer: the mean share of the attention of a row's second half."""
    shares = []

    def attend(q, k, v, sink_logits=None, **model_options):
        k_each = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        hidden = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).triu(1)
        scores = (q @ k_each.transpose(2, 3) / q.shape[3] ** 0.5).masked_fill(hidden, float("-inf"))
        logits = torch.full_like(q[0, :, 0, 0], float("-inf")) if sink_logits is None else sink_logits
        logits = logits[None, :, None, None].expand(*scores.shape[:3], 1)
        p = torch.cat([scores, logits], 3).softmax(3)[:, :, tokens // 2 :]
        shares.append((float(p[..., 0].mean()), float(p[..., -1].mean())))
        return sdpa.attend(q, k, v, sink_logits=sink_logits)

    model(rows[:, :tokens], Whole(attend), torch.float32)
    return [list(each) for each in zip(*shares, strict=True)]


def measure(options):
    """(lines of the table, facts)."""
    source, (attend, dtype) = corpus.load(), attention_on(options.device)
    rows = sequences_of(source, options.tokens, options.sequences, options.device)
    losses, facts = {}, {"corpus": str(source), "sequences": len(rows), "tokens": options.tokens, "models": {}}
    for arm in ARMS:
        path = options.models / f"{arm.model}.safetensors"
        model, trained = weights.load(path, options.device), json.loads(path.with_suffix(".json").read_text("utf-8"))
        tokens = trained["plan"]["tokens"]
        if arm.model not in facts["models"]:
            first, logit = shares_of(model, rows[:8], tokens)
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            about = {"trained": trained, "sha256": digest, "first_token": first, "learned_logit": logit}
            facts["models"][arm.model] = about
        mask = attention_of(arm, attend, model.shape, tokens - arm.sinks if arm.window else None)
        losses[arm.name] = losses_of(model, rows, mask, dtype)
        start, end = bins(options.tokens)[-1]
        loss = float(losses[arm.name][:, start:end].mean())
        print(f"{arm.name}: {loss:.4f} nats a byte at positions {start} to {end}", flush=True)
    return list(rows_of(losses)), facts


def main(argv):
    parser = argparse.ArgumentParser("python -m report sinks", description=__doc__.partition("\n")[0])
    parser.add_argument("--tokens", type=int, default=8192, help="of a sequence")
    parser.add_argument("--sequences", type=int, default=64, help="at most so many")
    parser.add_argument("--models", type=Path, default=weights.FOLDER, help="the folder of both trainings")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--out", type=Path, help="the folder of sinks.csv (default: report/results/GPU'S NAME)")
    options = parser.parse_args(argv)
    if options.device == "cuda" and not torch.cuda.is_available():
        raise Refused("PyTorch sees no GPU here; --device cpu --tokens 2048 --sequences 4 needs none")
    try:
        with torch.no_grad():
            lines, facts = measure(options)
    except weights.BadWeights as error:
        raise Refused(str(error)) from None
    write_both(options, "sinks", [COLUMNS, *lines], facts)
    return 0
