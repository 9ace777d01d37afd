"""What a network has to beat: for every task, from the dullest answer to the best one without a trained recurrence."""

from collections.abc import Callable
from typing import Any, NamedTuple

from recurra.compare.baselines.sequences import Echo, EchoRegressor, LinearClassifier, LinearRegressor, Majority, Mean
from recurra.compare.baselines.series import EchoForecaster, LinearForecaster, NaiveForecaster
from recurra.compare.baselines.words import FrequentTag, TokenCounts, WordTag
from recurra.errors import UnknownNameError

__all__ = ["BASELINES", "Baseline", "baseline", "baselines_of"]


class Baseline(NamedTuple):
    """How to make it, from the options of the question and a seed; whether the seed matters."""

    make: Callable[[dict[str, Any], int], Any]
    random: bool = False


#: task → name → baseline
BASELINES: dict[str, dict[str, Baseline]] = {
    "classify": {
        "majority": Baseline(lambda options, seed: Majority()),
        "linear": Baseline(lambda options, seed: LinearClassifier()),
        "ESN": Baseline(lambda options, seed: Echo(seed), random=True),
    },
    "regress": {
        "mean": Baseline(lambda options, seed: Mean()),
        "linear": Baseline(lambda options, seed: LinearRegressor()),
        "ESN": Baseline(lambda options, seed: EchoRegressor(seed), random=True),
    },
    "forecast": {
        "naive": Baseline(lambda options, seed: NaiveForecaster(options, period=1)),
        "seasonal naive": Baseline(lambda options, seed: NaiveForecaster(options, period=options.get("season", 1))),
        "linear AR": Baseline(lambda options, seed: LinearForecaster(options)),
        "ESN": Baseline(lambda options, seed: EchoForecaster(options, seed), random=True),
    },
    "tag": {
        "frequent tag": Baseline(lambda options, seed: FrequentTag()),
        "word's own tag": Baseline(lambda options, seed: WordTag()),
    },
    "language": {
        "unigram": Baseline(lambda options, seed: TokenCounts(options.get("level", "character"), order=1)),
        "bigram": Baseline(lambda options, seed: TokenCounts(options.get("level", "character"), order=2)),
    },
}


def baselines_of(task: str, options: dict[str, Any]) -> list[tuple[str, bool]]:
    """Names, and whether a seed matters; without a season the seasonal forecast is the naive one."""
    without = {"seasonal naive"} if options.get("season", 1) <= 1 else set()
    return [(name, one.random) for name, one in BASELINES[task].items() if name not in without]


def baseline(task: str, name: str, options: dict[str, Any], seed: int) -> Any:
    """One of them, yet to learn."""
    if name not in BASELINES[task]:
        raise UnknownNameError("baseline", repr(name), BASELINES[task])
    return BASELINES[task][name].make(options, seed)
