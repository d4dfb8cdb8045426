"""Trains the model on the source text of Python's standard library, with the course's own attention.

    python -m model.train full               on a GPU; weights, loss curve and facts into model/weights/
    python -m model.train learned_sinks      the same with a learned sink logit in each head
    python -m model.train full --smoke       a minute on a CPU, by PyTorch's attention; into model/smoke/

Ctrl-C stops and keeps what is trained so far; the same command goes on from there. Batches are drawn from the seed and
the number of the step alone. It needs torch and triton, and on another machine corpus.zip (model/corpus.py).
"""

import argparse
import csv
import importlib
import json
import platform
import sys
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import torch
from torch.nn import functional

from model import corpus, weights
from model.transformer import START, Transformer, Whole

HERE = Path(__file__).parent
SEED, SHOWN, KEPT, SIDES = 40, 50, 500, 64  # steps between lines and checkpoints; held-out rows that a line is of
BETAS, DECAY, CLIP, WARM_UP = (0.9, 0.95), 0.1, 1.0, 200


@dataclass(frozen=True)
class Plan:
    """steps, rows of a batch, tokens of a row, and the highest rate, which falls to a tenth along a cosine."""

    steps: int = 8000
    batch: int = 64
    tokens: int = 512
    rate: float = 3e-3

    def rate_of(self, step):
        fallen = 0.5 + 0.5 * torch.tensor(step / self.steps * torch.pi).cos().item()
        return self.rate * min(1.0, (step + 1) / WARM_UP) * (0.1 + 0.9 * fallen)


SMOKE = Plan(steps=80, batch=4, tokens=256)


@dataclass
class Run:
    """A training: what it is made of, what it has reached, and the rows of its loss curve."""

    model: Transformer
    optimiser: torch.optim.Optimizer
    plan: Plan
    step: int = 0
    seconds: float = 0.0
    rows: list = None

    def state(self):
        kept = {name: getattr(self, name) for name in ("step", "seconds", "rows")}
        kept |= {"model": self.model.state_dict(), "optimiser": self.optimiser.state_dict()}
        return kept | {"plan": asdict(self.plan)}

    def resume(self, path):
        """Go on from a checkpoint of the same plan; another plan's is left alone."""
        kept = torch.load(path, weights_only=True, map_location=next(self.model.parameters()).device)
        if kept["plan"] != asdict(self.plan):
            raise SystemExit(f"{path} is of another plan, {kept['plan']}: move it, or train with that plan")
        self.model.load_state_dict(kept["model"])
        self.optimiser.load_state_dict(kept["optimiser"])
        self.step, self.seconds, self.rows = kept["step"], kept["seconds"], kept["rows"]


def attention_of(name):
    """attend(q, k, v, **options) by its name."""
    if name == "sdpa":
        from model.sdpa import attend

        return attend
    from kernels.attention_op import attention

    return attention


def batch_of(text, plan, number, device):
    """Rows of a text at places drawn from the seed and `number`, START before each: (B, N + 1), int64."""
    generator = torch.Generator().manual_seed(SEED * 1_000_003 + number)
    starts = torch.randint(len(text) - plan.tokens, (plan.batch,), generator=generator).to(device)
    rows = text[starts[:, None] + torch.arange(plan.tokens, device=device)].long()
    return functional.pad(rows, (1, 0), value=START)


def loss_of(model, attend, rows, dtype):
    """The mean cross-entropy of the next byte, in nats."""
    with torch.autocast(rows.device.type, dtype, enabled=dtype is torch.bfloat16):
        logits = model(rows[:, :-1], Whole(attend), dtype)
    return functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())


def optimiser_of(model, plan, device):
    """AdamW; vectors are not decayed."""
    groups = [
        {"params": [p for p in model.parameters() if (p.dim() > 1) == matrix], "weight_decay": DECAY * matrix}
        for matrix in (True, False)
    ]
    return torch.optim.AdamW(groups, plan.rate, BETAS, fused=device == "cuda")


def train(run, step_loss, text, held_out, device, keep):
    """Train to the end of the plan; calls keep(run) now and then, and when it is stopped."""
    plan, started = run.plan, time.perf_counter() - run.seconds
    sides = batch_of(held_out, Plan(batch=SIDES, tokens=plan.tokens), 0, device)
    losses = []
    try:
        while run.step < plan.steps:
            for group in run.optimiser.param_groups:
                group["lr"] = plan.rate_of(run.step)
            loss = step_loss(batch_of(text, plan, run.step + 1, device))
            run.optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(run.model.parameters(), CLIP)
            run.optimiser.step()
            losses.append(loss.detach())
            run.step += 1
            if run.step % SHOWN == 0 or run.step == plan.steps:
                with torch.no_grad():
                    apart = torch.stack([step_loss(rows) for rows in sides.split(plan.batch)]).mean().item()
                run.rows.append([run.step, torch.stack(losses).mean().item(), apart])
                run.seconds, losses = time.perf_counter() - started, []
                show(run)
            if run.step % KEPT == 0:
                keep(run)
    finally:
        run.seconds = time.perf_counter() - started
        keep(run)


def show(run):
    step, loss, apart = run.rows[-1]
    each = run.seconds / step
    rate = run.plan.batch * run.plan.tokens / each
    left = each * (run.plan.steps - step)
    print(f"step {step} of {run.plan.steps}: loss {loss:.4f}, held out {apart:.4f} nats a byte; "
          f"{rate:,.0f} tokens/s, {left:.0f} s left", flush=True)  # fmt: skip


def facts_of(run, name, attention, dtype, source):
    """What a card says of a training."""
    device = next(run.model.parameters()).device
    return {
        "variant": name, "seed": SEED, "plan": asdict(run.plan), "shape": asdict(run.model.shape),
        "parameters": sum(p.numel() for p in run.model.parameters()), "attention": attention,
        "dtype": str(dtype).removeprefix("torch."), "seconds": round(run.seconds, 1), "corpus": str(source),
        "held_out": list(corpus.HELD_OUT), "loss": run.rows[-1][1], "held_out_loss": run.rows[-1][2],
        "machine": torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {platform.machine()}",
        "torch": torch.__version__, "triton": version("triton"), "python": platform.python_version(),
    }  # fmt: skip


def write(folder, name, run, facts):
    """Weights, loss curve and facts of a training that has ended."""
    weights.save(folder / f"{name}.safetensors", run.model)
    with open(folder / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["step", "loss", "held_out_loss"])
        lines.writerows([step, *(f"{loss:.5f}" for loss in losses)] for step, *losses in run.rows)
    (folder / f"{name}.json").write_text(json.dumps(facts, indent=2) + "\n", "utf-8")


def parse(argv):
    parser = argparse.ArgumentParser("python -m model.train", description=__doc__.partition("\n")[0])
    parser.add_argument("variant", choices=weights.VARIANTS)
    parser.add_argument("--smoke", action="store_true", help="a small training on the CPU")
    for name in ("steps", "batch", "tokens"):
        parser.add_argument(f"--{name}", type=int, help="in place of the plan's")
    parser.add_argument("--attention", choices=("ours", "sdpa"), help="default: ours on a GPU, sdpa on a CPU")
    parser.add_argument("--compile", action="store_true", help="by torch.compile; a minute to begin, then faster")
    parser.add_argument("--out", type=Path, help="a folder (default: model/weights, or model/smoke)")
    return parser.parse_args(argv)


def main(argv):
    options = parse(argv)
    device = "cuda" if torch.cuda.is_available() and not options.smoke else "cpu"
    attention = options.attention or {"cuda": "ours", "cpu": "sdpa"}[device]
    if device == "cpu" and attention == "ours":
        importlib.import_module("grader.core.in_process").begin()  # kernels run in the grader's machine
    given = {name: getattr(options, name) for name in ("steps", "batch", "tokens") if getattr(options, name)}
    plan = Plan(**asdict(SMOKE if options.smoke else Plan()) | given)
    folder = options.out or HERE / ("smoke" if options.smoke else "weights")
    folder.mkdir(parents=True, exist_ok=True)
    source = corpus.load()
    print(f"{options.variant}: {source}", flush=True)
    torch.manual_seed(SEED)
    torch.set_float32_matmul_precision("high")
    model = Transformer(weights.VARIANTS[options.variant]).to(device)
    run = Run(model, optimiser_of(model, plan, device), plan, rows=[])
    checkpoint = folder / f"{options.variant}.checkpoint"
    if checkpoint.is_file():
        run.resume(checkpoint)
        print(f"going on from step {run.step} of {checkpoint}", flush=True)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32  # on a CPU bfloat16 is slow
    attend = attention_of(attention)

    def step_loss(rows):
        return loss_of(model, attend, rows, dtype)

    texts = [source.tensor(held_out).to(device) for held_out in (False, True)]
    step_loss = torch.compile(step_loss) if options.compile else step_loss
    try:
        train(run, step_loss, *texts, device, lambda run: torch.save(run.state(), checkpoint))
    except KeyboardInterrupt:
        print(f"\nstopped at step {run.step}; the same command goes on from there", flush=True)
        return 130
    write(folder, options.variant, run, facts_of(run, options.variant, attention, dtype, source))
    checkpoint.unlink()
    print(f"written: {folder / options.variant}.safetensors, .csv, .json")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
