"""Hidden sizes at which cells have equal numbers of parameters."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from torch import nn

from recurra.compare.plan import REFERENCE_CELL, RunConfig
from recurra.errors import InputError, UnknownNameError
from recurra.models.tagging import Tagger
from recurra.train import randomness
from recurra.train.fit_arguments import OPTIMIZERS

MAX_SIZE = 1 << 14
NEIGHBOURS = 4  # sizes tried to either side of the best one, for cells that do not take every size


class _NetworkBuilt(Exception):
    """Raised in place of the first training step: the network exists."""


def _stop_before_training(parameters: Any) -> Any:
    """Stands in for an optimizer, which a training run creates first."""
    raise _NetworkBuilt


class NetworkFactory:
    """Builds untrained networks of any cell and size for one problem."""

    def __init__(self, problem: Any, settings: dict[str, Any]):
        if settings.get("optimizer", "adam") not in OPTIMIZERS:
            raise UnknownNameError("optimizer", repr(settings["optimizer"]), OPTIMIZERS)
        given = {**settings, "hidden_size": 2, "optimizer": _stop_before_training, "lr": None}
        self.prepared: Any = problem.estimator("rnn", **given)
        with suppress(_NetworkBuilt):
            self.prepared.fit(*problem.train)
        self.params = self.prepared.get_params(deep=False)

    def network(self, cell: str, hidden_size: int, **settings: Any) -> nn.Module:
        """The network the estimator would build; the random state is left as it was."""
        made = self.prepared.set_params(**{**self.params, "cell": cell, "hidden_size": hidden_size, **settings})
        with randomness.preserve_rng():
            if hasattr(made, "tagger_"):
                return Tagger(made.tagger_.vocabulary, **made._options(made._elmo()))
            if hasattr(made, "model_") and hasattr(made.model_, "vocabulary"):
                return made._build(made.model_.vocabulary)
            return made._build()

    def parameters(self, cell: str, hidden_size: int, **settings: Any) -> int:
        return count_parameters(self.network(cell, hidden_size, **settings))


def matched_hidden_size(networks: NetworkFactory, config: RunConfig, cell: str, **settings: Any) -> int:
    """The hidden size at which a cell has about as many parameters as the reference cell."""
    target = networks.parameters(REFERENCE_CELL, config.hidden_size)
    return nearest_size(lambda size: networks.parameters(cell, size, **settings), target)


def count_parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def nearest_size(count: Callable[[int], int], target: int) -> int:
    """The size at which `count`, which increases with it, is nearest to `target`."""
    low, high = 1, 2
    while _next_valid_size(count, high)[1] < target and high < MAX_SIZE:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _next_valid_size(count, middle)[1] < target else (low, middle)
    near = {_next_valid_size(count, size) for size in range(max(1, low - NEIGHBOURS), high + NEIGHBOURS + 1)}
    return min(near, key=lambda found: (abs(found[1] - target), found[0]))[0]


def _next_valid_size(count: Callable[[int], int], size: int) -> tuple[int, int]:
    """The next size that the cell accepts, and its parameters: some need a multiple of their number of heads."""
    for more in range(64):
        try:
            return size + more, count(size + more)
        except InputError:
            continue
    return size, count(size)
