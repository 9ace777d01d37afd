"""Baselines for every task, from a constant prediction to the best model without a trained recurrence."""

from collections.abc import Callable
from typing import Any, NamedTuple

from recurra.compare.baselines.features import RandomKernels, RawSteps, SummaryFeatures
from recurra.compare.baselines.neighbours import NearestNeighbour
from recurra.compare.baselines.sequences import (
    EchoStateClassifier,
    EchoStateRegressor,
    LinearClassifier,
    LinearRegressor,
    MajorityClassifier,
    MeanRegressor,
    RidgeOnFeatures,
)
from recurra.compare.baselines.series import (
    DriftForecaster,
    EchoStateForecaster,
    LinearForecaster,
    NaiveForecaster,
    SmoothingForecaster,
)
from recurra.compare.baselines.steps import MajorityLabel, MeanNumber, WindowClassifier, WindowRegressor
from recurra.compare.baselines.text import MostFrequentTag, NGramModel, TagPerWord
from recurra.compare.baselines.translation import CopiedSource, NearestSource
from recurra.errors import UnknownNameError

__all__ = ["BASELINES", "Baseline", "baseline", "baselines_of"]


RAW_PENALTY = 0.01  # the penalty of logistic regression on all steps, which has many features and few sequences


class Baseline(NamedTuple):
    """A constructor from the problem's options and a seed, and whether the seed matters."""

    make: Callable[[dict[str, Any], int], Any]
    random: bool = False


#: task → name → baseline
BASELINES: dict[str, dict[str, Baseline]] = {
    "classify": {
        "majority": Baseline(lambda options, seed: MajorityClassifier()),
        "linear": Baseline(lambda options, seed: LinearClassifier(SummaryFeatures())),
        "linear, raw": Baseline(lambda options, seed: LinearClassifier(RawSteps(), penalty=RAW_PENALTY)),
        "1-NN": Baseline(lambda options, seed: NearestNeighbour(warping=False)),
        "1-NN DTW": Baseline(lambda options, seed: NearestNeighbour(warping=True)),
        "random kernels": Baseline(lambda options, seed: RidgeOnFeatures(RandomKernels(seed)), random=True),
        "ESN": Baseline(lambda options, seed: EchoStateClassifier(seed), random=True),
    },
    "regress": {
        "mean": Baseline(lambda options, seed: MeanRegressor()),
        "linear": Baseline(lambda options, seed: LinearRegressor(SummaryFeatures())),
        "linear, raw": Baseline(lambda options, seed: LinearRegressor(RawSteps())),
        "1-NN": Baseline(lambda options, seed: NearestNeighbour(warping=False)),
        "1-NN DTW": Baseline(lambda options, seed: NearestNeighbour(warping=True)),
        "random kernels": Baseline(lambda options, seed: LinearRegressor(RandomKernels(seed)), random=True),
        "ESN": Baseline(lambda options, seed: EchoStateRegressor(seed), random=True),
    },
    "classify_steps": {
        "majority": Baseline(lambda options, seed: MajorityLabel()),
        "window": Baseline(lambda options, seed: WindowClassifier()),
    },
    "regress_steps": {
        "mean": Baseline(lambda options, seed: MeanNumber()),
        "window": Baseline(lambda options, seed: WindowRegressor()),
    },
    "forecast": {
        "naive": Baseline(lambda options, seed: NaiveForecaster(options, period=1)),
        "seasonal naive": Baseline(lambda options, seed: NaiveForecaster(options, period=options.get("season", 1))),
        "drift": Baseline(lambda options, seed: DriftForecaster(options, period=1)),
        "seasonal drift": Baseline(lambda options, seed: DriftForecaster(options, period=options.get("season", 1))),
        "smoothing": Baseline(lambda options, seed: SmoothingForecaster(options)),
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
    "translate": {
        "copy": Baseline(lambda options, seed: CopiedSource()),
        "nearest source": Baseline(lambda options, seed: NearestSource()),
    },
}


def baselines_of(task: str, options: dict[str, Any]) -> list[tuple[str, bool]]:
    """(name, whether a seed matters) of the task's baselines; no seasonal forecast without a season."""
    skipped = {"seasonal naive", "seasonal drift"} if options.get("season", 1) <= 1 else set()
    return [(name, entry.random) for name, entry in BASELINES[task].items() if name not in skipped]


def baseline(task: str, name: str, options: dict[str, Any], seed: int) -> Any:
    """A new, unfitted baseline."""
    if name not in BASELINES[task]:
        raise UnknownNameError("baseline", repr(name), BASELINES[task])
    return BASELINES[task][name].make(options, seed)
