"""What a page shows beyond a record, kept beside the journal: a problem graded again leaves the others drawn."""

import gzip
import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from grader.core.sandbox import files
from grader.result import Aspect, Outcome, Result


@dataclass(frozen=True)
class KnownCause:
    """What is left of a cause: enough to see that two results tell the same."""

    kind: str


def path_of(job, id):
    return Path(job.out) / "details" / job.submission / f"{id}.{job.keys[id][:16]}.json.gz"


def write(job, id, results):
    """Keep the results of one problem; those of its earlier versions go."""
    path = path_of(job, id)
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = [{**vars(r), "facts": facts_of(r)} for r in results]
    files.write(path, gzip.compress(json.dumps(encode(plain)).encode(), 5))
    for old in path.parent.glob(f"{id}.*.json.gz"):
        if old != path:
            old.unlink(missing_ok=True)


def facts_of(result):
    facts = {name: value for name, value in result.facts.items() if name != "causes"}
    return facts | {"kinds": [cause.kind for cause in result.facts.get("causes", ())]}


def read(job, id):
    """The results that were kept of one problem; none where they are missing or damaged."""
    try:
        found = json.loads(gzip.decompress(path_of(job, id).read_bytes()))
        return [whole(plain) for plain in found]
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        return []


def whole(plain):
    facts = plain["facts"]
    if kinds := facts.pop("kinds"):
        facts["causes"] = [KnownCause(kind) for kind in kinds]
    return Result(**{**plain, "aspect": Aspect(plain["aspect"]), "outcome": Outcome(plain["outcome"]), "facts": facts})


def encode(value):
    """Plain data of anything that a Result may hold."""
    if isinstance(value, dict):
        return {str(key): encode(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [encode(entry) for entry in value]
    if isinstance(value, Enum):
        return value.value
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
