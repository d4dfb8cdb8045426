"""The bytes of a module -> one plain text in UTF-8, so that all who read a copy, Python first, read the same."""

import codecs
import re
import tokenize

from grader.classroom.names import shortened

BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig", None),
    (codecs.BOM_UTF32_LE, "utf-32", "UTF-32"), (codecs.BOM_UTF32_BE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16", "UTF-16"), (codecs.BOM_UTF16_BE, "utf-16", "UTF-16"),
)  # fmt: skip


def as_text(file):
    """(the module's bytes in UTF-8 with plain line ends, remarks); (None, remarks) where it is no Python text."""
    data, place, remarks = file.data, shortened(file.place), []
    encoding, said = next(((e, said) for bom, e, said in BOMS if data.startswith(bom)), (None, None))
    if encoding is None and (encoding := declared(data)) is None:
        return None, [f"{place} names an encoding that is not read here; it was left out. Save it as UTF-8."]
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        if said:
            return None, [f"{place} begins as {said} but is no text; it was left out."]
        text = data.decode("cp1252", "replace")
        remarks.append(f"{place} is not in UTF-8; it was read as Windows-1252.")
    if "\0" in text:
        return None, [f"{place} is no text but binary data; it was left out."]
    if re.match(r'\s*\{\s*"(cells|metadata|nbformat)"', text):
        return None, [f"{place} is a notebook under a module's name, and a notebook is not graded: hand in the code."]
    if said:
        remarks.append(f"{place} is in {said}; it was read all the same. Save it as UTF-8.")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        remarks.append("Windows line ends were changed to plain ones.")
    return in_utf8(text), remarks


def declared(data):
    """The encoding that Python would read these bytes in, by their first two lines; None where none but Python could.

    A text that says utf-7 or rot13 runs as another one than the one that people and the search for copies read.
    """
    _, cookie = cookie_of(re.split(r"\r\n?|\n", data.decode("latin-1"), maxsplit=2))
    try:
        first = f"# coding: {cookie[1] if cookie else 'utf-8'}\n".encode()
        name = codecs.lookup(tokenize.detect_encoding(iter([first]).__next__)[0]).name
    except (SyntaxError, LookupError, ValueError):
        return None
    if name in ("utf-8", "utf-8-sig", "ascii"):
        return "utf-8"
    return name if name == "cp1252" or name.startswith("iso8859-") else None


def cookie_of(lines):
    """(number of the line, match of an encoding's name in it) of the first two lines, as Python finds it, or Nones."""
    for number, line in enumerate(lines[:2]):
        if found := tokenize.cookie_re.match(line):
            return number, found
        if not re.match(r"[ \t\f]*(#|$)", line):
            break
    return None, None


def in_utf8(text):
    """The bytes of a text; where it names its encoding, it says UTF-8 on that line, and no other line moves."""
    lines = text.split("\n", 2)
    number, found = cookie_of(lines)
    if found:
        lines[number] = f"{lines[number][: found.start(1)]}utf-8{lines[number][found.end(1) :]}"
    return "\n".join(lines).encode("utf-8", "replace")
