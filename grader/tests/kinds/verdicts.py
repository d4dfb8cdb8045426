"""Verdicts that tell when the grader judges otherwise than it did: some submissions, a few cases of each.

python -m grader.tests.kinds.verdicts writes verdicts.json anew, after JUDGE_VERSION of a kind was raised or a
submission was changed; it refuses where a verdict differs and neither was.
"""

import hashlib
import json
import sys
import tempfile
from pathlib import Path

from classroom.jobs import judge_version
from grader.registry import EVERY
from grader.tests.submissions.corpus import BROKEN, cheating, source_of
from grader.tests.support import grade_text, honest

KEPT = Path(__file__).with_name("verdicts.json")
WRITE = "python -m grader.tests.kinds.verdicts"
CHOSEN = {
    "p1_heads_flattened": ("whole tiles", "one token"),
    "p1 input mutated": ("one token",),
    "p2 the whole matrix": ("ragged tail", "never the whole score matrix"),
    "p3_sdpa": ("one token",),
    "p3_decoy_kernel": ("one token",),
    "p3_cached_by_shape": ("fewer tokens than a tile",),
    "p3 no bfloat16": ("whole tiles", "bfloat16"),
    "p4 a break": ("whole tiles",),
    "p4 no causal skip": ("work",),
    "p5 O moved by the kv head": ("ragged tail", "one token"),
    "p6 a sum with the window overflows int32": ("whole tiles", "window of everything"),
    "p7 sinks missing": ("ragged tail", "one token"),
    "w3 zeros past the end": ("whole tiles", "ragged tail"),
    "x1 the triangle without its diagonal": ("lists of a causal mask", "causal"),
    "x2 every tile of keys": ("whole tiles", "many tiles"),
    "x3 delta left out of dk": ("ragged tail", "one token"),
    "x4 pieces by share of the room": ("one piece", "the same bits with more room"),
}  # fmt: skip


def text_of(name):
    """The module of a submission, by its name in corpus.py."""
    return source_of(BROKEN[name]) if name in BROKEN else cheating(name) if name.startswith("p3_") else honest(name)


def judge(name, folder):
    """{"version", "text": a hash of the module, "verdicts": {case: aspect and outcome}} of a submission."""
    text, problem = text_of(name), name[:2]
    results = grade_text(folder, problem, text, names=CHOSEN[name])
    verdicts = {result.case: f"{result.aspect.value}: {result.outcome.value}" for result in results}
    hashed = hashlib.sha256(text.encode()).hexdigest()[:16]
    return {"version": judge_version(EVERY[problem]), "text": hashed, "verdicts": verdicts}


def kept():
    return json.loads(KEPT.read_text(encoding="utf-8"))


def differs(name, now, before):
    """Why what is kept of a submission is no longer so, with what to do, or None."""
    if now["version"] != before["version"] or not before["verdicts"].keys() >= set(CHOSEN[name]):
        return f"{name}: its cases or the judge's version are others than in {KEPT.name}: write that anew with {WRITE}"
    if not (said := changes(now, before)):
        return None
    if now["text"] != before["text"]:
        return f"{name}: the verdict changed ({said}), but so did the submission: if that is why, {WRITE}"
    return (
        f"{name}: the verdict changed ({said}), and classes keep grades that this grader would not give: if it is "
        f"meant, raise JUDGE_VERSION of the kind that judges {name[:2]}, then {WRITE}"
    )


def changes(now, before):
    """`"one token" was correct: passed, is correct: wrong`, of the cases that were asked then."""
    found = [(case, was, now["verdicts"].get(case, "not asked")) for case, was in before["verdicts"].items()]
    return ", ".join(f'"{case}" was {was}, is {said}' for case, was, said in found if said != was)


def main():
    before, found = kept() if KEPT.exists() else {}, {}
    for name in CHOSEN:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            now = found[name] = judge(name, Path(folder))
        was = before.get(name)
        same = was and all(now[part] == was[part] for part in ("version", "text"))
        if same and changes(now, was):
            sys.exit(differs(name, now, was))
    lines = (f" {json.dumps(name)}: {json.dumps(one)}" for name, one in found.items())
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    print(f"{KEPT}: {len(found)} submissions")


if __name__ == "__main__":
    main()
