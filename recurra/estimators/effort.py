"""How many random features an effort takes, and which effort suits the size of a training set."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import UnknownNameError
from .feature_banks.ensemble import Size


@dataclass(frozen=True)
class Effort:
    """The size of the banks, and how often they are drawn."""

    size: Size
    draws: int = 1


#: a few seconds, half a minute and some minutes for 500 sequences of 500 steps on two cores
EFFORTS = {
    "quick": Effort(Size(delay_lines=840, heats=8, resonators=512, networks=64)),
    "balanced": Effort(Size(delay_lines=3360, heats=32, resonators=1536, networks=256)),
    "best": Effort(Size(delay_lines=6720, heats=64, resonators=3072, networks=512), draws=3),
}
BALANCED_SEQUENCES, BALANCED_STEPS = 1500, 1_000_000  # "auto" is balanced up to these, and quick beyond
QUICK_STEPS = 8_000_000  # beyond, there are fewer units in proportion
MANY_SEQUENCES = 2500  # beyond, features are so few that a regression solves for them, not for the sequences


def choose_effort(name: str, series: Sequence[np.ndarray]) -> tuple[str, Effort]:
    """The name and the effort itself; "auto" depends on the number of sequences and steps."""
    if name != "auto" and name not in EFFORTS:
        raise UnknownNameError("effort", repr(name), ("auto", *EFFORTS))
    steps = sum(len(x) for x in series)
    is_small = len(series) <= BALANCED_SEQUENCES and steps <= BALANCED_STEPS
    chosen = name if name != "auto" else "balanced" if is_small else "quick"
    effort = EFFORTS[chosen]
    if name != "auto":
        return chosen, effort
    factor = min(1.0, QUICK_STEPS / steps, 0.25 if len(series) > MANY_SEQUENCES else 1.0)
    return chosen, Effort(effort.size.scaled(factor), effort.draws) if factor < 1 else effort
