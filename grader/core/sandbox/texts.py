"""Texts that may come from a submission, made harmless: they are shown on terminals and pages."""

import os
import re
import shlex
import unicodedata
from typing import Any

SENTENCE = 2000  # characters

KEPT = "\n\t"
# Escape sequences of terminals; no part of one can be matched in two ways.
ESCAPES = re.compile(r"\x1b(?:\[[0-?]{0,32}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,500}(?:\x07|\x1b\\)|[@-Z\\-_])")
# Control characters, lone surrogates, and what turns the direction of a line round.
_hidden = [code for code in range(0x3000) if unicodedata.category(chr(code)) in ("Cc", "Cf") and chr(code) not in KEPT]
NOTHING = dict.fromkeys([*_hidden, 0xFEFF, *range(0xFFF9, 0xFFFC)])
SURROGATES = dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}")
TABLE = NOTHING | SURROGATES


def clean(text: str) -> str:
    """`text` without control characters, escape sequences and lone surrogates."""
    return text if text.isascii() and text.isprintable() else ESCAPES.sub("", text).translate(TABLE)


def cleaned(value: Any) -> Any:
    """Plain data with all its texts clean; raises RecursionError where it is too deep."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [cleaned(inner) for inner in value]
    if isinstance(value, dict):
        return {clean(name): cleaned(inner) for name, inner in value.items()}
    return value


def shortened(text: str, most: int = SENTENCE) -> str:
    return text if len(text) <= most else f"{text[: most - 6]} [...]"


def quoted(text: object) -> str:
    """One word of a shell's command line; what a terminal would obey is written out, as bash and zsh read it."""
    text = str(text)
    if text.isprintable():
        return shlex.quote(text)
    letters = (c if c.isprintable() and c not in "'\\" else escaped(c) for c in text)
    return f"$'{''.join(letters)}'"


def escaped(letter: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(letter))
