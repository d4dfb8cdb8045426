"""A graded class in the forms that others read: each module one form, none of them decides anything."""


def write(out):
    """Write all forms that need no other program's file; the lines that say so, one at a time."""
    from grader.classroom.export import everything

    return everything.write(out)
