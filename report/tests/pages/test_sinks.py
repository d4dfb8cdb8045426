"""The page on sinks: what it says of each outcome, and the committed rows."""

import json

import pytest

from report.pages import sinks
from report.places import PUBLISHED
from report.studies.sinks import ARMS, COLUMNS, bins

TRAINED = {"plan": {"tokens": 128, "steps": 10, "batch": 4}, "parameters": 1000}
FACTS = {
    "sequences": 3, "tokens": 256, "gpu": "a GPU",
    "models": {name: {"trained": TRAINED, "first_token": [0.005, 0.4], "learned_logit": [0.1, 0.2]}
               for name in ("full", "learned_sinks")},
}  # fmt: skip


def write(folder, less, error=0.01):
    """Rows in which every arm is 2 nats, and as far under the window as it says."""
    lines = [f'"{arm.name}",{start},{end},2.0,0.1,{less},{error}' for arm in ARMS for start, end in bins(256)]
    (folder / "sinks.csv").write_text("\n".join([",".join(COLUMNS), *lines]) + "\n", "utf-8")
    (folder / "sinks.json").write_text(json.dumps(FACTS), "utf-8")
    return folder


@pytest.mark.parametrize(
    "less, words",
    [(0.5, "this model needs its first token"), (-0.5, "the sinks do harm"), (0.015, "does not need its first token")],
)
def test_the_page_says_what_the_rows_say(tmp_path, less, words):
    made = sinks.files(write(tmp_path, less))
    assert "no result" not in made["SINKS.md"] and words in made["SINKS.md"] and "<svg" in made["figures/sinks.svg"]
    assert made["SINKS.md"].count("no difference that is sure") == 3 * (less == 0.015)
    assert f"{abs(less):.4f} ± 0.0100 {'under' if less > 0 else 'over'} the window's" in made["SINKS.md"]
    assert "0.50%, 40%" in made["SINKS.md"]


def test_the_ranges_cover_every_position_once():
    assert bins(8192)[-1] == (4096, 8192) and bins(300) == [(0, 64), (64, 128), (128, 256), (256, 300)]


def test_the_committed_rows_have_every_arm():
    arms, facts = sinks.load(PUBLISHED)
    assert list(arms) == [arm.name for arm in ARMS]
    assert {len(points) for points in arms.values()} == {len(bins(facts["tokens"]))}
    inside = [sinks.within(arms[name], facts["models"]["full"]["trained"]["plan"]["tokens"]).loss
              for name in ("full attention", "window")]  # fmt: skip
    assert inside[0] == inside[1]  # a window as long as the training hides nothing there
