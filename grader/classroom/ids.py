"""ids.json: which id each owner of a submission has; an id that was once given is never given to another.

Pages, decisions and the journal know a submission by its id, so it must not depend on who else hands in.
"""

import json
from collections import Counter

from grader.classroom import names
from grader.commands.arguments import BadArguments
from grader.core.sandbox import files

NAME = "ids.json"


class BadIds(BadArguments):
    """The table cannot be read; the text is one sentence."""


def give(owners, out):
    """An id for each Owner, in their order; those that are new are added to the table in `out`."""
    table = read(out / NAME)
    times = Counter(owner.person for owner in owners)
    persons = [owner.person if times[owner.person] == 1 else owner.whole for owner in owners]
    slugs = {person: names.slug(owner.base) for person, owner in zip(persons, owners, strict=True)}
    new = [person for person in slugs if person not in table]
    wanted, taken = Counter(slugs[person] for person in new), set(table.values())
    for person in new:
        table[person] = free(slugs[person], person, taken, wanted[slugs[person]] > 1)
        taken.add(table[person])
    if new:
        files.write(out / NAME, json.dumps(table, indent=1) + "\n", durable=True)
    return [table[person] for person in persons]


def free(slug, person, taken, shared=False):
    """An id that nobody has: the slug, or where others might have it too, with digits of the person's hash."""
    if slug not in taken and not shared:
        return slug
    digits, length = names.hashed(person, 64), 8
    while (id := f"{slug[: names.LONGEST_ID - length - 1].strip('-.')}-{digits[:length]}") in taken:
        length += 1
    return id


def read(path):
    """{person: id}; raises BadIds."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(table, dict) and all(isinstance(id, str) for id in table.values()):
            return table
    except FileNotFoundError:
        return {}
    except ValueError:
        pass
    raise BadIds(
        f"{path} is damaged, and says which page and which decisions are whose: put back a copy of it; without one "
        "remove it, and look at each decision in decisions.csv anew"
    )
