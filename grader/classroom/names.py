"""Whose submission is this? What the names of learning platforms say, and names that are safe for files."""

import hashlib
import os
import re
import unicodedata
from dataclasses import dataclass

LONGEST_ID = 60  # characters
# Moodle, "Download all submissions": in folders, or the files themselves after the same words.
MOODLE = re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)(?:_(?P<file>.*))?", re.S)
# Canvas, "Download submissions": the name without spaces, perhaps LATE, the user, the submission, the file.
CANVAS = re.compile(r"(?P<name>[^_]+)_(?:(?P<late>LATE)_)?(?P<id>\d+)_(?P<part>\d+)_(?P<file>.+)", re.S)
# Gradescope, "Export submissions": who is who stands in submission_metadata.yml.
GRADESCOPE = re.compile(r"submission_(?P<id>\d+)(?:\.zip)?")
# The modules themselves, each after its student's name.
PREFIXED = re.compile(r"(?P<name>.+?)[ _-]+(?P<file>[px]\d_\w+\.py)", re.S)
ALONE = "./"  # no name of a file has a slash, so that no other owner is taken for it
METADATA = "submission_metadata.yml"
ENDINGS = (".zip", ".py", ".ipynb", ".tar.gz", ".tgz", ".tar", ".7z", ".rar")


@dataclass(frozen=True)
class Owner:
    """Whom an entry of the submissions' folder belongs to, as far as its name says.

    base: what becomes the submission's id. whole: entries with the same one are parts of one submission. file: the
    name that the student gave it. lms, sid, email: what a platform knows the student by.
    """

    base: str
    title: str
    whole: str
    file: str
    lms: str = ""
    sid: str = ""
    email: str = ""
    late: bool = False

    @property
    def alone(self):
        """True for an entry that is a submission by itself."""
        return self.whole.startswith(ALONE)

    @property
    def words(self):
        """The same as a person knows it."""
        return self.whole.removeprefix(ALONE)


def platform_of(entries, metadata=None):
    """The one way in which the entries of a folder are named: that of most of them, plain names where none fits.

    A student may choose a file's name, and so imitate another platform; most entries no single student can choose.
    Of equally many the one comes first whose words stand before all that a student can choose.
    """
    count = {platform: sum(OF[platform](readable(name), metadata) for name in entries) for platform in OF}
    best = max(count, key=count.get)
    return best if count[best] else PLAIN


def is_gradescopes(shown, metadata):
    found = GRADESCOPE.fullmatch(shown)
    return bool(found) and found["id"] in (metadata or {})


PLAIN = "names"
OF = {
    "gradescope": is_gradescopes,
    "canvas": lambda shown, metadata: bool(CANVAS.fullmatch(shown)),
    "moodle": lambda shown, metadata: bool(MOODLE.fullmatch(shown)),
    "files": lambda shown, metadata: bool(PREFIXED.fullmatch(shown)),
}


def owner_of(name, metadata=None, platform=None):
    """The Owner of a file or folder of the submissions' folder, whose entries are named as this platform does it.

    metadata: read_metadata's.
    """
    shown, platform = readable(name), platform or platform_of([name], metadata)
    if platform == "moodle" and (found := MOODLE.fullmatch(shown)):
        base = f"{found['name']}-{found['id']}"
        return Owner(base, found["name"], f"moodle {found['id']}", found["file"] or name, found["id"])
    if platform == "canvas" and (found := CANVAS.fullmatch(shown)):
        base = f"{found['name']}-{found['id']}"
        return Owner(base, found["name"], f"canvas {found['id']}", found["file"], found["id"], late=bool(found["late"]))
    if platform == "gradescope" and (found := GRADESCOPE.fullmatch(shown)) and found["id"] in (metadata or {}):
        known = metadata[found["id"]]
        base = known["sid"] or known["email"] or found["id"]
        return Owner(base, known["name"] or shown, f"{ALONE}{name}", name, sid=known["sid"], email=known["email"])
    if platform == "files" and (found := PREFIXED.fullmatch(name)):
        return Owner(found["name"], readable(found["name"]), f"files {found['name']}", found["file"])
    base = without_ending(name)
    return Owner(base, readable(base).strip() or "(no name)", f"{ALONE}{name}", name)


def without_ending(name):
    ending = next((e for e in ENDINGS if name.lower().endswith(e) and len(name) > len(e)), "")
    return name[: len(name) - len(ending)]


def read_metadata(text):
    """{submission number: {"name", "sid", "email"}} of Gradescope's submission_metadata.yml, of the first submitter."""
    found, known = {}, None
    for line in text.splitlines():
        if start := re.fullmatch(r"submission_(\d+)(?:\.zip)?:\s*", line):
            known = found.setdefault(start[1], {"name": "", "sid": "", "email": ""})
        elif known is not None and (field := re.match(r"[ -]+:(name|sid|email):(.*)", line)):
            known[field[1]] = known[field[1]] or readable(field[2].strip().strip("'\""))
    return found


# Safe names ----------------------------------------------------------------------------------------------------------


def readable(name):
    """A name of the disk as text that can be shown on one line: what is no character, or breaks lines, is marked."""
    text = os.fsencode(name).decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def shortened(name, limit=80):
    text = readable(name)
    return text if len(text) <= limit else f"{text[: limit // 2]}...{text[-limit // 2 + 3 :]}"


def slug(name):
    """A name of small letters, digits, dots and dashes; with digits of a hash where others might give the same."""
    plain = unicodedata.normalize("NFKD", readable(name)).encode("ascii", "ignore").decode().lower()
    safe = re.sub(r"[^a-z0-9.]+", "-", plain).strip("-.")
    safe = re.sub(r"\.\.+", ".", safe)
    same = re.sub(r"[ _@-]", "-", name.lower()) == safe  # nothing was lost but what people do not tell apart
    if same and 0 < len(safe) <= LONGEST_ID:
        return safe
    return f"{safe[: LONGEST_ID - 9].strip('-.') or 'submission'}-{hashed(name)}"


def hashed(name):
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:8]


def slugs(names):
    """{name: its slug}: two that come out the same, as by case alone, get digits of their hashes."""
    first = {name: slug(name) for name in dict.fromkeys(names)}
    count = {}
    for safe in first.values():
        count[safe] = count.get(safe, 0) + 1
    alone = {name: count[safe] == 1 for name, safe in first.items()}
    return {name: s if alone[name] else f"{s[: LONGEST_ID - 9]}-{hashed(name)}" for name, s in first.items()}
