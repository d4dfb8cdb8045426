"""Which row of the instructor's export belongs to which student: found, or reported; never guessed."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Key:
    """Something that tells who a student is: its name, and its text on either side, "" where it is not known.

    sure: False for what two students may share.
    """

    name: str
    of_row: Callable
    of_student: Callable
    sure: bool = True

    def differs(self, row, student):
        texts = self.of_row(row), self.of_student(student)
        return all(texts) and texts[0] != texts[1]


@dataclass
class Matched:
    """pairs: [(row of the sheet, Standing)], by row; said: what could not be matched, a sentence each."""

    pairs: list = field(default_factory=list)
    said: list = field(default_factory=list)


def match(rows, students, keys, where):
    """Match rows with students by the first key that finds one row for one student.

    rows: {row: what to call it}. keys: the surest first. A row where all keys that have found others say another
    student is not taken for a namesake. where: the sheet's name, for the sentences.
    """
    pairs, why, proven = {}, {}, []  # {row: student}, {id(student): reason}, keys that have found someone
    left = list(students)
    for key in keys:
        at, asking = defaultdict(list), defaultdict(list)
        for row in rows:
            at[key.of_row(row)].append(row)
        for student in left:
            asking[key.of_student(student)].append(student)
        found = {}
        for text, same in asking.items():
            candidates = at.get(text, ()) if text else ()
            reason = obstacle(key, text, same, candidates, pairs, proven)
            if candidates and reason is None:
                found[candidates[0]] = same[0]
            elif candidates:
                why |= {id(student): reason for student in same}
        pairs |= found
        proven += [key] if found else []
        left = [student for student in left if all(student is not placed for placed in found.values())]
    said = [f"{describe(s)} {why.get(id(s), f'is not in {where}')}; nothing was filled in" for s in left]
    said += [
        f"{title} in {where} has no submission or roster row here" for row, title in rows.items() if row not in pairs
    ]
    return Matched(sorted(pairs.items(), key=lambda pair: pair[0]), said)


def obstacle(key, text, same, candidates, pairs, proven):
    """Why these students cannot have these rows, in words; None where one student has one row."""
    if len(same) > 1:
        return f"shares the {key.name} {text!r} with {len(same) - 1} more here"
    if len(candidates) > 1:
        return f"could be any of {len(candidates)} rows with the {key.name} {text!r}"
    if candidates and candidates[0] in pairs:
        return f"has the {key.name} {text!r} of a row that is another student's"
    if key.sure or not candidates:
        return None
    known = [other for other in proven if other.of_row(candidates[0]) and other.of_student(same[0])]
    if known and all(other.differs(candidates[0], same[0]) for other in known):
        return f"has the {key.name} {text!r} of a row with another {known[0].name}"
    return None


def describe(student):
    """`Ada Lovelace (s0001)`, as far as it is known."""
    id = student.id or student.submission
    return f"{student.name} ({id})" if id and id != student.name else student.name


def cannot_fill(student):
    """Why no points are written for a student, or ""."""
    return "" if student.total is not None else f"{describe(student)} is left as it was: {student.status}"
