"""Names from anywhere: made fit for one line, and for files."""

import hashlib
import re
import unicodedata
from collections.abc import Sequence

LONGEST_ID = 60  # characters
DIGITS = 16  # of a hash: nobody finds another name with the same


def readable(name: str) -> str:
    """A name of the disk as text that can be shown on one line: what is no character, or breaks lines, is marked."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def shortened(name: str, limit: int = 80) -> str:
    text = readable(name)
    return text if len(text) <= limit else f"{text[: limit // 2]}...{text[-limit // 2 + 3 :]}"


def list_some(texts: Sequence[str], most: int = 5) -> str:
    """`a, b and 3 more`"""
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more} more" if more > 0 else "")


def slug(name: str) -> str:
    """A name of small letters, digits, dots and dashes; with digits of a hash where others might give the same."""
    plain = unicodedata.normalize("NFKD", readable(name)).encode("ascii", "ignore").decode().lower()
    safe = re.sub(r"\.\.+", ".", re.sub(r"[^a-z0-9.]+", "-", plain).strip("-."))
    same = re.sub(r"[ _@-]", "-", name.lower()) == safe  # nothing was lost but what people do not tell apart
    if same and 0 < len(safe) <= LONGEST_ID:
        return safe
    hashed = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:DIGITS]
    return f"{safe[: LONGEST_ID - 1 - DIGITS].strip('-.') or 'submission'}-{hashed}"


def squashed(name: str) -> str:
    """A name without case, accents, blanks and marks, as platforms write it into the names of files."""
    text = unicodedata.normalize("NFKD", readable(name)).casefold()
    return "".join(c for c in text if c.isalnum())
