"""The edit distance between two texts (Levenshtein 1966)."""

from collections.abc import Sequence


def edit_distance(truth: Sequence[object], found: Sequence[object]) -> int:
    """The fewest insertions, deletions and replacements that turn one sequence into the other.

    >>> from recurra.problem.edit_distance import edit_distance
    >>> edit_distance("kitten", "sitting")
    3
    """
    above = list(range(len(found) + 1))
    for row, one in enumerate(truth, start=1):
        here = [row]
        for column, other in enumerate(found, start=1):
            here.append(min(above[column] + 1, here[-1] + 1, above[column - 1] + (one != other)))
        above = here
    return above[-1]
