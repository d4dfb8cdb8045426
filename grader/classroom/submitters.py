"""Gradescope's submission_metadata.yml: who handed each submission in.

A display name is its student's choice, and YAML writes a long one on several lines: a line is a key only at exactly the
depth of its submitter's first one, which no line of a value has.
"""

import re

from grader.classroom.names import readable

SUBMISSION = re.compile(r"^submission_(\d+)(?:\.zip)?:[ \t]*\r?$", re.M)
FIRST = re.compile(r"^  :submitters:[ \t]*\r?\n( *- )(?=:\w+:)", re.M)
KEY = re.compile(r":(\w+):(?: (.*))?")
KNOWN = ("name", "sid", "email")


def read(text):
    """{submission number: {"name", "sid", "email"}}, of the first submitter of each; "" for what is not there."""
    _, *parts = SUBMISSION.split(text)
    found = {}
    for number, of in zip(parts[::2], parts[1::2], strict=True):
        found.setdefault(number, first_submitter(of))
    return found


def first_submitter(text):
    """{"name", "sid", "email"} of one submission's part of the file."""
    fields, last = {}, None
    if start := FIRST.search(text):
        depth = len(start[1])
        for line in (" " * depth + text[start.end() :]).split("\n"):  # not splitlines: a name may hold odd line ends
            deep = len(line) - len(line.lstrip(" "))
            if line.strip() and deep < depth:
                break  # another submitter, or what follows them
            key = KEY.fullmatch(line[depth:].rstrip("\r")) if deep == depth else None
            if key and key[1] not in fields:
                last = fields[key[1]] = [key[2] or ""]
            elif last:
                last.append(line)  # a value that goes on
    return {name: scalar(fields.get(name, [])) for name in KNOWN}


def scalar(lines):
    """A value's lines as a text, without its quotes."""
    text = " ".join(line.strip() for line in lines if line.strip())
    if text[:1] in ("'", '"') and len(text) > 1 and text[-1] == text[0]:
        text = text[1:-1].replace("''", "'")
    return readable("" if text in ("~", "null") else text)
