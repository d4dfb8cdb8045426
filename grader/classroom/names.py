"""Whose submission is this? What the names of learning platforms say, and names that are safe for files."""

import hashlib
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass

LONGEST_ID = 60  # characters
# Where the platform's own words stand in a name; before them is the display name, after them the student's file.
# Moodle, "Download all submissions": in folders, or the files themselves after the same words.
MOODLE = re.compile(r"_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)(?:_(?P<file>.*))?$", re.S)
# Canvas, "Download submissions": perhaps late, the user, the submission, the file.
CANVAS = re.compile(r"_(?P<id>\d+)_\d+_(?P<file>.+)$", re.S)
MARKS = {"canvas": CANVAS, "moodle": MOODLE}
LATE = re.compile(r"(?P<name>.+)_late", re.S | re.I)  # what Canvas says behind the display name
# Gradescope, "Export submissions": who is who stands in submission_metadata.yml.
GRADESCOPE = re.compile(r"submission_(?P<id>\d+)(?:\.zip)?")
# The modules themselves, each after its student's name.
PREFIXED = re.compile(r"(?P<name>.+?)(?P<gap>[ _-]+)(?P<file>[a-z]\d_\w+\.py)", re.S)
PLAIN, FILES = "names", "files"
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

    @property
    def account(self):
        """What tells two people of one platform apart; "" where no platform knows the student."""
        return self.whole if self.lms else f"gradescope {self.sid} {self.email}" if self.sid or self.email else ""

    @property
    def person(self):
        """What an id is given to, and stays with: the account, whatever was handed in, or else the entry."""
        return self.account or self.whole


def platform_of(entries, metadata=None):
    """The one way in which the entries of a folder are named: as a platform does it, where at least half are.

    A student may choose a file's name, and a display name, and so imitate another platform; most entries no single
    student can choose. Names before modules count where no platform does, and plain names where nothing has a form.
    """
    forms = Counter(form_of(name, metadata) for name in entries)
    every, some = forms.total(), forms.total() - forms[PLAIN]
    likely = max(("gradescope", *MARKS), key=lambda platform: forms[platform])
    if 2 * forms[likely] >= every and 2 * forms[likely] > some:
        return likely
    return FILES if forms[FILES] else PLAIN


def form_of(name, metadata=None):
    """The form of one name. Of two platforms that one whose words come first: what follows is the student's."""
    shown = readable(name)
    if (found := GRADESCOPE.fullmatch(shown)) and found["id"] in (metadata or {}):
        return "gradescope"
    places = {platform: min((r.place for r in readings(shown, platform)), default=None) for platform in MARKS}
    marked = [platform for platform in MARKS if places[platform] is not None]
    if marked:
        return min(marked, key=places.get)
    return FILES if PREFIXED.fullmatch(shown) else PLAIN


@dataclass(frozen=True)
class Reading:
    """One way to read a platform's name: where its words begin, and what they say."""

    place: int
    name: str
    id: str
    file: str


def readings(shown, platform):
    """Every way to read a name: a display name and a file's name may hold such words too."""
    places = (at for at, letter in enumerate(shown) if at and letter == "_")
    found = ((at, MARKS[platform].match(shown, at)) for at in places)
    return [Reading(at, shown[:at], mark["id"], mark["file"] or "") for at, mark in found if mark]


def find_owner(name, metadata, platform, numbers=frozenset()):
    """(the Owner of an entry, why it is taken by itself, as a clause, where that must be said).

    metadata: submitters.read's. platform: as which the folder's entries are named. numbers: of the roster's students on
    the platform. They decide where a name can be read in several ways: all that the folder itself says may be a
    student's choice.
    """
    shown, form = readable(name), form_of(name, metadata)
    if platform in MARKS and (ways := readings(shown, platform)):
        sure = ways if len(ways) == 1 else [way for way in ways if way.id in numbers]
        if len(sure) == 1:
            return owner_on(platform, sure[0], name), ""
        said = " or ".join(f"{way.name} with the number {way.id}" for way in ways[:3])
        return alone(name), f"may be of {shortened(said, 160)}"
    if platform == form == "gradescope":
        known = metadata[GRADESCOPE.fullmatch(shown)["id"]]
        base = known["sid"] or known["email"] or without_ending(name)
        return Owner(base, known["name"] or shown, f"{ALONE}{name}", name, sid=known["sid"], email=known["email"]), ""
    if platform == FILES and (found := PREFIXED.fullmatch(name)):
        whole = f"files {found['name']}{found['gap']}"  # another gap may be another student's choice
        return Owner(found["name"], readable(found["name"]), whole, found["file"]), ""
    if form not in (PLAIN, platform):
        return alone(name), f"is not named as most entries are ({platform})"
    return alone(name), ""


def owner_on(platform, reading, name):
    said = LATE.fullmatch(reading.name) if platform == "canvas" else None
    title = said["name"] if said else reading.name
    # The name too: under one number it is always the same, where it was read rightly.
    whole = f"{platform} {reading.id} {title}"
    return Owner(f"{title}-{reading.id}", title, whole, reading.file or name, reading.id, late=bool(said))


def alone(name):
    """The Owner of an entry of which nothing is known but its name."""
    base = without_ending(name)
    return Owner(base, readable(base).strip() or "(no name)", f"{ALONE}{name}", name)


def without_ending(name):
    ending = next((e for e in ENDINGS if name.lower().endswith(e) and len(name) > len(e)), "")
    return name[: len(name) - len(ending)]


# Safe names ----------------------------------------------------------------------------------------------------------


def raw(name):
    """The bytes of a name as the disk has it, in any locale."""
    return name.encode("utf-8", "surrogateescape")


def readable(name):
    """A name of the disk as text that can be shown on one line: what is no character, or breaks lines, is marked."""
    text = raw(name).decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def shortened(name, limit=80):
    text = readable(name)
    return text if len(text) <= limit else f"{text[: limit // 2]}...{text[-limit // 2 + 3 :]}"


def list_some(texts, most=5):
    """`a, b and 3 more`"""
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more} more" if more > 0 else "")


def slug(name):
    """A name of small letters, digits, dots and dashes; with digits of a hash where others might give the same."""
    plain = unicodedata.normalize("NFKD", readable(name)).encode("ascii", "ignore").decode().lower()
    safe = re.sub(r"[^a-z0-9.]+", "-", plain).strip("-.")
    safe = re.sub(r"\.\.+", ".", safe)
    same = re.sub(r"[ _@-]", "-", name.lower()) == safe  # nothing was lost but what people do not tell apart
    if same and 0 < len(safe) <= LONGEST_ID:
        return safe
    return f"{safe[: LONGEST_ID - 9].strip('-.') or 'submission'}-{hashed(name)}"


def hashed(name, digits=8):
    return hashlib.sha256(raw(name)).hexdigest()[:digits]
