"""The machine's facts beside the rows that were measured on it: read, compared, and written. No torch."""

import csv
import io
import json
import re
import sys
from datetime import datetime, timezone

from grader.core.sandbox import files
from report.measuring.rows import BadTable
from report.places import RESULTS

SAME_MACHINE = ("gpu", "torch", "triton")  # rows of one CSV share these


def slug(gpu):
    """`NVIDIA H200` -> `h200`: the name of the folder."""
    words = re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-").removeprefix("nvidia-")
    return words or "gpu"


def read(path):
    """The facts in a JSON file; raises BadTable where they are missing or name no machine."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadTable(f"there is no {path}, and numbers without their machine mean nothing; measure anew") from None
    except OSError as error:
        raise BadTable(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise BadTable(f"{path} is no JSON ({error}); mend it, or measure anew") from None
    if not isinstance(facts, dict) or "gpu" not in facts:  # null: a quick run on a CPU
        raise BadTable(f'{path} does not name the machine: "gpu" is missing; mend it, or measure anew')
    return facts


def check(path, machine):
    """Raise BadTable where the rows beside `path` were measured on another machine or with other versions."""
    try:
        before = read(path) if path.exists() else machine
    except BadTable as error:
        raise BadTable(f"{error}; or delete it if the rows beside it are of this machine") from None
    for name in SAME_MACHINE:
        if before.get(name) != machine.get(name):
            raise BadTable(
                f"the rows in {path.parent} were measured with {name} {before.get(name)}, and here it is "
                f"{machine.get(name)}; choose another folder with --out"
            )


def earlier_commits(path, machine):
    """The commits, other than this one, at which rows beside `path` were measured."""
    before = read(path) if path.exists() else {}
    commits = [*before.get("earlier_commits", []), before.get("commit")]
    return [commit for commit in dict.fromkeys(commits) if commit and commit != machine.get("commit")]


def write(path, machine, after, options):
    """machine, after: the facts before and after measuring, the latter None before; options: device, budget, limit."""
    facts = {
        **machine,
        "clocks": {"before": machine.get("clocks"), "after": (after or {}).get("clocks")},
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "protocol": {
            **machine.get("protocol", {}),
            "device": options.device,
            "budget_s": options.budget,
            "limit_s": options.limit,
        },
    }
    if earlier := earlier_commits(path, machine):
        facts["earlier_commits"] = earlier  # of rows measured before this run went on
    files.write(path, json.dumps(facts, indent=2) + "\n")


def write_both(options, name, rows, facts):
    """NAME.csv of rows with their head, and NAME.json: facts of this machine, with torch, then those that are given.

    They go to the folder `options.out`, or else to report/results/ and the GPU's name, `quick` on a CPU.
    """
    from grader.gpu import machine

    facts, text = machine.facts() | facts, io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    folder = options.out or RESULTS / (slug(facts["gpu"]) if options.device == "cuda" else "quick")
    folder.mkdir(parents=True, exist_ok=True)
    files.write(folder / f"{name}.csv", text.getvalue())
    files.write(folder / f"{name}.json", json.dumps(facts, indent=2) + "\n")
    print(f"written: {folder / name}.csv", file=sys.stderr)
