"""Baselines for every task, from a constant prediction to the best model without a trained recurrence."""

from collections.abc import Callable
from typing import Any, NamedTuple

from recurra.compare.baselines.sequences import (
    EchoStateClassifier,
    EchoStateRegressor,
    LinearClassifier,
    LinearRegressor,
    MajorityClassifier,
    MeanRegressor,
)
from recurra.compare.baselines.series import EchoStateForecaster, LinearForecaster, NaiveForecaster
from recurra.compare.baselines.text import MostFrequentTag, NGramModel, TagPerWord
from recurra.errors import UnknownNameError

__all__ = ["BASELINES", "Baseline", "baseline", "baselines_of"]


class Baseline(NamedTuple):
    """A constructor from the problem's options and a seed, and whether the seed matters."""

    make: Callable[[dict[str, Any], int], Any]
    random: bool = False


#: task → name → baseline
BASELINES: dict[str, dict[str, Baseline]] = {
    "classify": {
        "majority": Baseline(lambda options, seed: MajorityClassifier()),
        "linear": Baseline(lambda options, seed: LinearClassifier()),
        "ESN": Baseline(lambda options, seed: EchoStateClassifier(seed), random=True),
    },
    "regress": {
        "mean": Baseline(lambda options, seed: MeanRegressor()),
        "linear": Baseline(lambda options, seed: LinearRegressor()),
        "ESN": Baseline(lambda options, seed: EchoStateRegressor(seed), random=True),
    },
    "forecast": {
        "naive": Baseline(lambda options, seed: NaiveForecaster(options, period=1)),
        "seasonal naive": Baseline(lambda options, seed: NaiveForecaster(options, period=options.get("season", 1))),
        "linear AR": Baseline(lambda options, seed: LinearForecaster(options)),
        "ESN": Baseline(lambda options, seed: EchoStateForecaster(options, seed), random=True),
    },
    "tag": {
        "frequent tag": Baseline(lambda options, seed: MostFrequentTag()),
        "word's own tag": Baseline(lambda options, seed: TagPerWord()),
    },
    "language": {
        "unigram": Baseline(lambda options, seed: NGramModel(options.get("level", "character"), order=1)),
        "bigram": Baseline(lambda options, seed: NGramModel(options.get("level", "character"), order=2)),
    },
}


def baselines_of(task: str, options: dict[str, Any]) -> list[tuple[str, bool]]:
    """(name, whether a seed matters) of the task's baselines; no seasonal forecast without a season."""
    skipped = {"seasonal naive"} if options.get("season", 1) <= 1 else set()
    return [(name, entry.random) for name, entry in BASELINES[task].items() if name not in skipped]


def baseline(task: str, name: str, options: dict[str, Any], seed: int) -> Any:
    """A new, unfitted baseline."""
    if name not in BASELINES[task]:
        raise UnknownNameError("baseline", repr(name), BASELINES[task])
    return BASELINES[task][name].make(options, seed)
