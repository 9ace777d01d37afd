"""An ensemble of ridge regressions, one for each kind of feature, weighted by their predictions of left-out samples."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

from .banks import Bank, Competitions, DelayLines, LeakyNetworks, Resonators
from .overlaps import Held
from .ridge import Ridge
from .sequences import Sequences
from .summaries import Summary, WrittenOut
from .views import Views

CHUNK = 64  # sequences predicted at a time


@dataclass(frozen=True)
class Size:
    """How many units the banks have, for each scaling of a sequence and of its changes."""

    delay_lines: int
    heats: int
    resonators: int
    networks: int

    def scaled(self, factor: float) -> "Size":
        """More or fewer units, none below what one compiled loop runs side by side."""
        least = {"delay_lines": 84, "heats": 1, "resonators": 32, "networks": 32}
        return Size(**{name: max(low, int(getattr(self, name) * factor)) for name, low in least.items()})


@dataclass
class Member:
    """Banks whose features are read out together."""

    name: str
    banks: list[Any]
    ridge: Ridge | None = None

    def blocks(self, series: Sequence[np.ndarray], given: Sequences) -> tuple[list[np.ndarray], list[float]]:
        """Blocks of features, and how much each counts."""
        found, importance = [], []
        for bank in self.banks:
            blocks = bank.features(given if isinstance(bank, Bank) else series)
            found += blocks
            importance += [bank.weight] * len(blocks)
        return found, importance

    def scores(self, series: Sequence[np.ndarray], given: Sequences) -> np.ndarray:
        assert self.ridge is not None
        return self.ridge.scores(np.concatenate(self.blocks(series, given)[0], axis=1))


class FeatureEnsemble:
    """Random recurrent features with ridge readouts: sequences (T, D) → scores (n, q)."""

    def __init__(self, views: Views, steps: int, length: int, size: Size, draws: int, random: np.random.Generator):
        self.views, self.steps, self.length, self.size, self.draws = views, steps, length, size, draws
        size = size.scaled(1 / views.mixing.shape[1])  # mixtures of several features share the units
        self.members: list[Member] = []
        for draw in range(draws):
            end = "" if draws == 1 else f" {draw + 1}"
            arguments = views.count, steps
            self.members += [
                Member(
                    f"delay lines{end}",
                    [
                        DelayLines(*arguments, size.delay_lines, random),
                        Competitions(*arguments, size.heats, random),
                    ],
                ),
                Member(f"resonators{end}", [Resonators(*arguments, size.resonators, random)]),
                Member(f"leaky networks{end}", [LeakyNetworks(*arguments, size.networks, random)]),
            ]
        self.members += [Member("written out", [WrittenOut(length)]), Member("summary", [Summary()])]
        self.weights = np.ones(len(self.members)) / len(self.members)

    @classmethod
    def draw(cls, series: Sequence[np.ndarray], size: Size, draws: int, seed: int) -> "FeatureEnsemble":
        """Banks for sequences like these, with thresholds from their values."""
        random = np.random.default_rng(seed)
        views = Views.of(series, random)
        given = views.apply(series)
        length = max(1, min(given.typical_length, WrittenOut.longest // series[0].shape[1]))
        found = cls(views, given.typical_length, length, size, draws, random)
        for member in found.members:
            for bank in member.banks:
                if isinstance(bank, Bank):
                    bank.set_thresholds(given, random)
        return found

    def fit(
        self,
        series: Sequence[np.ndarray],
        targets: np.ndarray,
        weights: np.ndarray,
        progress: Callable[[Sequence[Member]], Iterable[Member]] = iter,
        held: Sequence[Held] | None = None,
    ) -> "FeatureEnsemble":
        """Fit every readout, then the weights of the members. `held` are sequences to leave out together."""
        given = self.views.apply(series)
        for member in progress(self.members):
            member.ridge = Ridge.fit(*member.blocks(series, given), targets, weights, held)
        self.weights = member_weights(self.left_out(), targets, weights)
        return self

    def named_weights(self) -> dict[str, float]:
        return {member.name: float(weight) for member, weight in zip(self.members, self.weights, strict=True)}

    def left_out(self) -> list[np.ndarray]:
        """What every member predicts of samples that were left out, (n, q) each."""
        return [member.ridge.left_out for member in self.members]  # pyrefly: ignore

    def left_out_scores(self) -> np.ndarray:
        """(n, q): what the members together predict of samples that were left out."""
        return sum(w * one for w, one in zip(self.weights, self.left_out(), strict=True))  # pyrefly: ignore

    def forget_left_out(self) -> None:
        """Free the predictions of left-out samples, which only fitting needs."""
        for member in self.members:
            if member.ridge is not None:
                member.ridge.left_out = None

    def scores(self, series: Sequence[np.ndarray]) -> np.ndarray:
        """(n, q); a member without weight is not run."""
        return np.concatenate(
            [self._scores_of_chunk(series[first : first + CHUNK]) for first in range(0, len(series), CHUNK)]
        )

    def _scores_of_chunk(self, series: Sequence[np.ndarray]) -> np.ndarray:
        given = self.views.apply(series)
        used = [(w, member) for w, member in zip(self.weights, self.members, strict=True) if w > 0]
        return sum(w * member.scores(series, given) for w, member in used) + np.zeros((len(series), 1))


def member_weights(left_out: Sequence[np.ndarray], targets: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weights ≥ 0 of members whose weighted sum is nearest to the targets, on left-out samples (Breiman 1996)."""
    root = np.sqrt(weights)[:, None]
    found, _ = nnls(np.stack([(root * one).ravel() for one in left_out], axis=1), (root * targets).ravel())
    return found if found.sum() > 0 else np.full(len(left_out), 1 / len(left_out))
