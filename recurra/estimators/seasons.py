"""The argument `season` of forecasters: the length of a season in steps, or several."""

from typing import Any

from ..argument_checks import positive_int
from ..errors import InputError
from .training_options import to_int


def seasons(season: Any) -> tuple[int, ...]:
    """The lengths, the shortest first; (1,) for none."""
    given = season if isinstance(season, list | tuple) else (season,)
    if not len(given):
        raise InputError("season", season, "the steps of a season, or of several such as (24, 168); 1 for none")
    return tuple(sorted({positive_int("season", to_int(one)) for one in given}))
