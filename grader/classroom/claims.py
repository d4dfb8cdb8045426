"""Which student of the roster each submission belongs to: the surest claim counts, and nobody's takes another's place.

A platform's number is beyond a student's choice, a name less so, a word in a name not at all.
"""

import re
import unicodedata
from dataclasses import dataclass, replace

from grader.classroom import ids, names
from grader.classroom.record import Row
from grader.diagnosis import failures

NUMBER, NAME, WORD = 3, 2, 1  # what is surer is larger
HANDED_IN_TWICE = "Handed in twice; the latest, {}, was graded, not {}."
WEAKER = "Handed in twice; {}, which names the student more surely, was graded, not {}."
TWO_ACCOUNTS = "Two accounts claim {} ({}): each stands by itself, and you must say whose it is."
CLAIMED = "{} is claimed more surely by {}: this stands by itself."
CONTESTED = "Claimed by several submissions, which stand by themselves below: you must say which it is."
NOBODY = "No student of the roster is called so: it stands by itself."
FAULT = "It could not be told whose this is, and that is the grader's fault ({}: {}): it stands by itself."


@dataclass(frozen=True)
class Claim:
    """What a submission says of whose it is: a Student and how surely, or why it stands by itself."""

    student: object = None
    sure: int = 0
    why: str = ""


def join(submissions, students):
    """([Row], [Submission] to grade, notes): each student's own submission, and those whose student is not known.

    students: None where there is no roster. Students without a submission have a row too.
    """
    if students is None:
        return [row_of(submission, None) for submission in submissions], list(submissions), []
    by_number = numbered(submissions, students)
    of, by_itself = {}, []
    for submission in submissions:
        claim = find_safely(submission, students, by_number)
        if claim.student is None:
            by_itself.append(remarked(submission, claim.why))
        else:
            of.setdefault(claim.student.key, []).append((claim, submission))
    own, rows, graded, notes = {}, [], [], []
    for key, claims in of.items():
        own[key], others = settle(claims)
        by_itself += others
        if len(claims) > 1:
            first = own[key] or others[0]
            notes.append(f"{names.shortened(claims[0][0].student.title)}: {first.remarks[0]}")
    taken = {submission.id for submission in submissions}
    for student in students:
        submission = own.get(student.key)
        if submission is None:
            rows.append(row_of_absent(student, taken, CONTESTED if student.key in of else "Not handed in."))
            continue
        graded.append(submission)
        rows.append(row_of(submission, student))
    return rows + [row_of(submission, None) for submission in by_itself], graded + by_itself, notes


def find_safely(submission, students, by_number):
    """Its Claim; where the work on one submission fails, that one alone stands by itself."""
    try:
        return find(submission, students, by_number)
    except Exception as error:
        failures.log(f"the claim of {submission.id!r}", error)
        return Claim(why=FAULT.format(type(error).__name__, names.shortened(str(error))))


def remarked(submission, remark):
    return replace(submission, remarks=(remark, *submission.remarks))


def row_of(submission, student):
    roster, owner = None if student is None else vars(student).copy(), submission.owner
    return Row(
        submission.id, submission.title, submission.remarks, submission.modules, roster,
        folder=f"work/{submission.folder.name}", lms=owner.lms, owner=names.readable(owner.person),
    )  # fmt: skip


def row_of_absent(student, taken, why):
    id = ids.free(names.slug(student.title), student.key, taken)
    taken.add(id)
    return Row(id, student.title, (why,), (), vars(student).copy(), handed_in=False)


# Of several claims ----------------------------------------------------------------------------------------------------


def settle(claims):
    """(the submission that is the student's, with a remark where there are others, or None; those by themselves).

    claims: [(Claim, Submission)] for one student. Two accounts of one platform are two people.
    """
    surest = max(claim.sure for claim, _ in claims)
    first = [submission for claim, submission in claims if claim.sure == surest]
    accounts, student = {s.owner.account for s in first}, claims[0][0].student
    if len(accounts) > 1:
        who = " and ".join(words(s) for _, s in claims[:3])
        said = TWO_ACCOUNTS.format(names.shortened(student.title), who)
        return None, [remarked(s, said) for _, s in claims]
    rest = [submission for claim, submission in claims if claim.sure < surest]
    try:
        own = latest(first)
    except Exception as error:
        failures.log(f"the claims on {claims[0][0].student.key!r}", error)
        said = FAULT.format(type(error).__name__, names.shortened(str(error)))
        return None, [remarked(s, said) for _, s in claims]
    said = CLAIMED.format(names.shortened(student.title), words(own))
    others = [remarked(s, said) for s in rest if s.owner.account and s.owner.account not in accounts]
    if weaker := [words(s) for s in rest if not s.owner.account or s.owner.account in accounts]:
        own = remarked(own, WEAKER.format(words(own), " nor ".join(weaker)))
    return own, others


def words(submission):
    return names.shortened(submission.owner.words)


def latest(submissions):
    """The latest of one student's submissions, with a remark where there are others."""
    ordered = sorted(submissions, key=lambda s: (s.time, natural(s.owner.file)))
    last, others = ordered[-1], [words(s) for s in ordered[:-1]]
    return remarked(last, HANDED_IN_TWICE.format(words(last), " nor ".join(others))) if others else last


def natural(name):
    """A key that sorts `p10` behind `p2`: the odd parts are digits, and nothing else is."""
    return [int(part) if odd % 2 else part for odd, part in enumerate(re.split(r"([0-9]+)", name))]


# One claim ------------------------------------------------------------------------------------------------------------


def numbers_of(students):
    """The numbers by which a platform knows the roster's students, where it says them."""
    return frozenset(student.lms for student in students or () if student.lms)


def numbered(submissions, students):
    """True where the roster has the numbers of the platform that the submissions come from."""
    known = numbers_of(students)
    return any(s.owner.lms in known for s in submissions)


def find(submission, students, by_number=False):
    """The Claim of a submission. by_number: another number than a student's in the roster is another person's."""
    owner = submission.owner
    for value, what in ((owner.lms, "lms"), (owner.sid, "id"), (owner.email, "email")):
        column = what if any(getattr(s, what) for s in students) else "id"
        if value and (found := [s for s in students if getattr(s, column).lower() == value.lower()]):
            return one_of(found, NUMBER)
    if by_number and owner.lms:
        students = [s for s in students if not s.lms]
    said = plain(owner.title)
    if found := [s for s in students if said and said in ways_to_say(s)]:
        return one_of(found, NAME)
    said = words_of(owner.base)
    found = [s for s in students if said & marks_of(s)]
    if len(found) == 1 and (other := named_beside(said, found[0], students)):
        return Claim(why=several([found[0], other]))
    return one_of(found, WORD)


def one_of(found, sure):
    if len(found) == 1:
        return Claim(found[0], sure)
    return Claim(why=several(found) if found else NOBODY)


def several(students):
    who = ", ".join(f"{s.title} ({s.key})" for s in students[:3])
    return f"Several students of the roster could be meant ({who}): it stands by itself."


def named_beside(said, student, students):
    """Another student whom the other words of a name call, or None."""
    rest = said - marks_of(student) - words_of(student.name)
    return next((s for s in students if s is not student and rest & words_of(s.name)), None)


def marks_of(student):
    return {folded(value) for value in (student.id, student.login, student.email) if len(value) > 2}


def words_of(text):
    return {word for word in re.split(r"(?:[^\w@.]|_)+", folded(text)) if len(word) > 1}


def folded(name):
    """A name in small letters without accents."""
    text = unicodedata.normalize("NFKD", names.readable(name)).lower()
    return "".join(c for c in text if not unicodedata.combining(c))


def plain(name):
    """A name without case, accents and spaces, as Canvas writes it."""
    return "".join(c for c in folded(name) if c.isalnum())


def ways_to_say(student):
    """What a submission of this student may be called."""
    parts = student.name.replace(",", " ").split()
    swapped = {"".join(parts[-n:] + parts[:-n]) for n in range(len(parts))}
    ways = {plain(way) for way in (*swapped, student.name, student.id, student.login, student.email)}
    return ways | {plain(student.email.partition("@")[0])} - {""}
