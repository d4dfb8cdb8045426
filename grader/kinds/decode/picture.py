"""The numbers behind the picture of a case: which keys of one sequence each program reads, and which are seen.

It has the form of the ladder's picture: a row is a program, the pairs that the mask shows are the keys that it must
read, and the tiles are what it read.
"""

MOST_PROGRAMS = 64


def draw(case, lines, errors):
    """{"size", "mask", "visits"} beside what is known of errors; a failure costs only the picture."""
    return errors


def draw_right(case, shown):
    return None
