"""The model's card, model/README.md, of the facts beside the weights: python -m model.card; --check only compares.

Model cards: Mitchell et al., "Model cards for model reporting", 2019.
"""

import json
import sys
from pathlib import Path

from model import weights

CARD = Path(__file__).with_name("README.md")
HEAD = """# A small model that writes Python

`make generate` has it write with your kernels, and [report/SINKS.md](../report/SINKS.md) shows with it what sinks are
for. It is of no other use: do not run what it writes. Made by `python -m model.card`; edit nothing here.

- **Form**: a decoder-only transformer with {parameters:,} parameters: {layers} layers of width {width}, {heads} query
  heads of {head_dim} over {kv_heads} kv heads, rotary positions. A token is a byte; byte 0, START, comes first.
- **Data**: {corpus}, without its tests. [corpus.csv](corpus.csv) lists the
  files with their hashes. No training saw these modules: {held_out}.
- **Training**: seed {seed}, {steps:,} steps of {batch} x {tokens} bytes, AdamW, rate {rate:g}; attention in {dtype}
  {by}.
- **Weights**: float16, as safetensors. `learned_sinks` has in each head a learned logit that joins the softmax's
  denominator; all else is the same.

"""
EMPTY = "# A small model that writes Python\n\nNobody has trained it yet: `python -m model.train full`.\n"


def read(folder):
    """[facts of each variant that is trained]"""
    paths = [folder / f"{name}.json" for name in weights.VARIANTS]
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.is_file()]


def text(trained):
    if not trained:
        return EMPTY
    facts = trained[0]
    by = "by `kernels/attention_op.py`" if facts["attention"] == "ours" else "by PyTorch's SDPA"
    about = {**facts, **facts["shape"], **facts["plan"], "by": by, "held_out": ", ".join(facts["held_out"])}
    lines = ["| variant | loss | held out | seconds | machine | torch, triton |", "|---|---:|---:|---:|---|---|"]
    for each in trained:
        name = f"[`{each['variant']}`](weights/{each['variant']}.csv)"
        losses = f"{each['loss']:.3f} | {each['held_out_loss']:.3f} | {each['seconds']:.0f}"
        lines.append(f"| {name} | {losses} | {each['machine']} | {each['torch']}, {each['triton']} |")
    end = "\n\nLosses are in nats a byte, at the end of the training."
    for name in weights.VARIANTS:
        if name not in (each["variant"] for each in trained):
            end += f" The weights of `{name}` are not kept here: `python -m model.train {name}` makes them on a GPU."
    return HEAD.format(**about) + "\n".join(lines) + end + "\n"


def main(argv):
    written = text(read(weights.FOLDER))
    if argv == ["--check"]:
        same = CARD.is_file() and CARD.read_text(encoding="utf-8") == written
        print("model/README.md is what the facts give" if same else "model/README.md is old: python -m model.card")
        return 0 if same else 1
    CARD.write_text(written, "utf-8")
    print(f"written: {CARD}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
