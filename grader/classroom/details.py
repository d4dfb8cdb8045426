"""What a page shows beyond a record, kept beside the journal: a problem graded again leaves the others drawn."""

import gzip
import json
from pathlib import Path

from msgspec import ValidationError, convert

from grader.core.sandbox import files
from grader.result import Result, to_plain


def path_of(job, id):
    return Path(job.out) / "details" / job.submission / f"{id}.{job.keys[id][:16]}.json.gz"


def write(job, id, results):
    """Keep the results of one problem; those of its earlier versions go."""
    path = path_of(job, id)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, gzip.compress(json.dumps(to_plain(results)).encode(), 5))
    for old in path.parent.glob(f"{id}.*.json.gz"):
        if old != path:
            old.unlink(missing_ok=True)


def read(job, id):
    """The results that were kept of one problem; none where they are missing or damaged."""
    try:
        return convert(json.loads(gzip.decompress(path_of(job, id).read_bytes())), list[Result])
    except (OSError, EOFError, ValueError, ValidationError):
        return []
