"""How many units give a cell as many parameters as the others have."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from torch import nn

from recurra.compare.plan import REFERENCE, Rules
from recurra.errors import InputError, UnknownNameError
from recurra.models.tagging import Tagger
from recurra.train import randomness
from recurra.train.fit_arguments import OPTIMIZERS

WIDEST = 1 << 14
NEAR = 4  # units to either side of the best size, where a cell does not take every number


class _Built(Exception):
    """The network is there; nothing was learned yet."""


def _stop(parameters: Any) -> Any:
    """In the place of an optimizer, the first thing a training asks for."""
    raise _Built


class Blank:
    """Networks of any cell and size for one question, without training."""

    def __init__(self, question: Any, settings: dict[str, Any]):
        if settings.get("optimizer", "adam") not in OPTIMIZERS:
            raise UnknownNameError("optimizer", repr(settings["optimizer"]), OPTIMIZERS)
        given = {**settings, "hidden_size": 2, "optimizer": _stop, "lr": None}
        self.fitted: Any = question.estimator("rnn", **given)
        with suppress(_Built):
            self.fitted.fit(*question.train)
        self.plain = self.fitted.get_params(deep=False)

    def network(self, cell: str, hidden_size: int, **settings: Any) -> nn.Module:
        """As the estimator would build it."""
        made = self.fitted.set_params(**{**self.plain, "cell": cell, "hidden_size": hidden_size, **settings})
        with randomness.undisturbed():
            if hasattr(made, "tagger_"):
                return Tagger(made.tagger_.vocabulary, **made._options())
            if hasattr(made, "model_"):
                return made._build(made.model_.vocabulary)
            return made._build()

    def parameters(self, cell: str, hidden_size: int, **settings: Any) -> int:
        return parameters(self.network(cell, hidden_size, **settings))


def equal_size(blank: Blank, rules: Rules, cell: str, **settings: Any) -> int:
    """Units with which a cell has as many parameters as the reference."""
    wanted = blank.parameters(REFERENCE, rules.hidden_size)
    return matching_size(lambda units: blank.parameters(cell, units, **settings), wanted)


def parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def matching_size(count: Callable[[int], int], wanted: int) -> int:
    """The size at which `count`, which grows with it, is nearest to `wanted`."""
    low, high = 1, 2
    while _counted(count, high)[1] < wanted and high < WIDEST:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _counted(count, middle)[1] < wanted else (low, middle)
    near = {_counted(count, size) for size in range(max(1, low - NEAR), high + NEAR + 1)}
    return min(near, key=lambda found: (abs(found[1] - wanted), found[0]))[0]


def _counted(count: Callable[[int], int], size: int) -> tuple[int, int]:
    """The next size that the cell takes, and its parameters: some want a multiple of their heads."""
    for more in range(64):
        try:
            return size + more, count(size + more)
        except InputError:
            continue
    return size, count(size)
