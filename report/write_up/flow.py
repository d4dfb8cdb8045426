"""Paragraphs and lists of a Markdown page in lines of one width, once numbers have been put into them."""

import re
import textwrap

WIDTH = 120
ITEM = re.compile(r"(?:-|\d+\.) ")
FENCED = re.compile(r"(^```.*?^```$)", re.S | re.M)
AS_IT_IS = ("|", "#", "    ", "![", "```")  # tables, headings, code, pictures
LOOKS_LIKE_A_LIST = re.compile(r" (?=(?:[-+*>#]|\d+\.)(?: |$))")  # at the start of a line it would be one


def flowed(text):
    """The page with every paragraph and list item wrapped anew."""
    return "".join(part if part.startswith("```") else prose(part) for part in FENCED.split(text))


def prose(text):
    return "".join(part if not part.strip() else block(part) for part in re.split(r"(\n{2,})", text))


def block(text):
    before, body, after = re.fullmatch(r"(\n*)(.*?)(\n*)", text, re.S).groups()
    if body.startswith(AS_IT_IS):
        return text
    items = re.split(r"\n(?=(?:-|\d+\.) )", body) if ITEM.match(body) else [body]
    return before + "\n".join(map(wrapped, items)) + after


def wrapped(item):
    """One paragraph or item; what follows an item's mark is indented as far as its text."""
    found = ITEM.match(item)
    mark = found[0] if found else ""
    words = LOOKS_LIKE_A_LIST.sub("\0", " ".join(item[len(mark) :].split()))
    lines = textwrap.fill(words, WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark),
                          break_long_words=False, break_on_hyphens=False)  # fmt: skip
    return lines.replace("\0", " ")
