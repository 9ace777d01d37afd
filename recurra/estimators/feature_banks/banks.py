"""Banks of random units over views of sequences. A bank is drawn once; its features are read out by a ridge regression.

| bank | a unit | its memory |
|---|---|---|
| `DelayLines` | a balanced sum of nine delayed values: 2 for three of them, -1 for six | 8 dilations |
| `Competitions` | eight random filters on a delay line, of which the largest and the smallest count | 8 dilations |
| `Resonators` | a complex leaky integrator that rotates, less a slower leaky integrator | a few time constants |
| `LeakyNetworks` | one of eight leaky tanh units that are connected at random | leak, spectral radius |

Dilations follow Dempster et al. (ROCKET, 2020; MiniRocket, 2021), as do thresholds at quantiles of a unit's values;
the four counters are those of MultiRocket (Tan et al. 2022) and the competing filters those of Hydra (Dempster et al.
2023). Here the counters run along the sequence as recurrent units do, over recurrent units as over filters.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from . import kernel, reference
from .reference import FILTERS, RIVALS, TAPS, UNITS
from .sequences import Sequences

LANES = 16  # units, or networks, that a compiled loop runs side by side
MOST_DILATIONS = 32
GOLDEN = (np.sqrt(5) + 1) / 2  # its multiples modulo 1 are spread evenly: the quantiles of thresholds
MARGIN = 1e-5  # above a quantile, so that rounding errors do not decide where a sequence is flat
SAMPLE = 16  # training sequences whose values thresholds are taken from


class Bank(ABC):
    """Random units. `arrays` are what a saved model stores."""

    arrays: ClassVar[tuple[str, ...]] = ()
    #: how much the features count, together, in the ridge regression beside other banks
    weight: ClassVar[float] = 1.0

    @abstractmethod
    def features(self, given: Sequences) -> list[np.ndarray]:
        """Blocks of features, (n, p) in float32, one block for each counter."""

    @abstractmethod
    def width(self, features: int) -> int:
        """The number of features, for sequences with so many features per step."""

    def set_thresholds(self, given: Sequences, random: np.random.Generator) -> None:
        """Place thresholds at quantiles of the values that units have on training sequences."""
        return  # a bank without thresholds has none to place


def _dilations(steps: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Dilations 1 … (T - 1) / 8 on a logarithmic scale, and how often each was drawn."""
    top = np.log2(max((steps - 1) / (TAPS - 1), 1))
    return np.unique((2 ** np.linspace(0, top, most)).astype(np.int64), return_counts=True)


class DelayLines(Bank):
    """All 84 balanced filters of nine taps at many dilations."""

    arrays = ("thresholds",)

    def __init__(self, views: int, steps: int, units: int, random: np.random.Generator):
        per_filter = max(1, units // len(FILTERS))  # thresholds of one filter and view, over all dilations
        dilations, drawn = _dilations(steps, min(per_filter, MOST_DILATIONS))
        counts = np.maximum(1, drawn * per_filter // drawn.sum())
        counts[: max(0, per_filter - int(counts.sum()))] += 1
        self.views = np.repeat(np.arange(views), len(dilations))
        self.dilations, self.counts = np.tile(dilations, views), np.tile(counts, views).astype(np.int64)
        self.offsets = np.concatenate([[0], np.cumsum(len(FILTERS) * self.counts)]).astype(np.int64)
        self.thresholds = np.zeros(int(self.offsets[-1]), dtype=np.float32)

    def set_thresholds(self, given: Sequences, random: np.random.Generator) -> None:
        filters = np.arange(len(FILTERS))
        for view, dilation, count, offset in zip(self.views, self.dilations, self.counts, self.offsets, strict=False):
            chosen = [given.items[k] for k in random.integers(len(given), size=SAMPLE)]
            for k, rows in enumerate(chosen):
                mine = filters[k::SAMPLE]
                values = np.sort(reference.delay_line_values(rows[view], dilation, mine), axis=1)
                numbers = offset + mine[:, None] + len(FILTERS) * np.arange(count)
                self.thresholds[numbers] = _quantiles(values, (numbers + 1) * GOLDEN % 1)

    def width(self, features: int) -> int:
        return 4 * self.thresholds.size

    def features(self, given: Sequences) -> list[np.ndarray]:
        out = np.empty((len(given), 4, len(self.thresholds)), dtype=np.float32)
        plan = self.views, self.dilations, self.counts
        if kernel.is_compiled():
            kernel.run(
                "delay_lines", given, len(self.views), *plan, self.offsets, self.thresholds, len(self.thresholds), out
            )
        else:
            reference.delay_lines(given, *plan, self.offsets[:-1], self.thresholds, out)
        return [out[:, k] for k in range(4)]


class Competitions(Bank):
    """Random filters in heats of eight, of which the largest and the smallest count at every step."""

    arrays = ("weights",)
    weight = 4.0  # one block beside the four of `DelayLines`

    def __init__(self, views: int, steps: int, heats: int, random: np.random.Generator):
        dilations = 2 ** np.arange(max(1, int(np.log2(max((steps - 1) / (TAPS - 1), 1))) + 1))
        self.views, self.dilations = np.repeat(np.arange(views), len(dilations)), np.tile(dilations, views)
        weights = random.normal(size=(len(self.views), heats, RIVALS, TAPS))
        weights -= weights.mean(axis=-1, keepdims=True)
        weights /= np.abs(weights).sum(axis=-1, keepdims=True)
        self.weights = weights.astype(np.float32)

    def width(self, features: int) -> int:
        return len(self.views) * self.weights.shape[1] * 2 * RIVALS

    def features(self, given: Sequences) -> list[np.ndarray]:
        groups, heats = self.weights.shape[:2]
        out = np.empty((len(given), groups, heats, 2 * RIVALS), dtype=np.float32)
        if kernel.is_compiled():
            kernel.run("competitions", given, groups, heats, self.views, self.dilations, self.weights, out)
        else:
            reference.competitions(given, self.views, self.dilations, self.weights, out)
        return [np.sqrt(np.maximum(out, 0)).reshape(len(given), -1)]


class Resonators(Bank):
    """Complex leaky integrators that rotate, forward and backward in time, at time constants from one step to T / 4."""

    arrays = ("parameters", "thresholds")

    def __init__(self, views: int, steps: int, units: int, random: np.random.Generator):
        self.views, self.backward = _both_directions(views, units)
        count = LANES * len(self.views)
        tau = np.exp(random.uniform(np.log(0.7), np.log(max(steps / 4, 2)), count))
        period = np.maximum(2.0, tau * np.exp(random.uniform(0, np.log(6), count)))
        angle = np.where(random.random(count) < 0.15, 0.0, 2 * np.pi / period)
        a, c = np.exp(-1 / tau + 1j * angle), np.exp(1j * random.uniform(0, 2 * np.pi, count))
        b = np.exp(-1 / (tau * np.exp(random.uniform(0, 1.2, count))))
        # g removes the level of the input, but for a fifth of the units.
        g = np.where(random.random(count) < 0.2, 0.0, (np.conj(c) / (1 - a)).real * (1 - b))
        size = np.sqrt(1 + 1 / (1 - np.abs(a) ** 2))
        self.parameters = np.stack([a.real, a.imag, c.real / size, c.imag / size, b, g / size]).astype(np.float32)
        self.thresholds = np.zeros(count, dtype=np.float32)

    def set_thresholds(self, given: Sequences, random: np.random.Generator) -> None:
        for block, (view, turned) in enumerate(zip(self.views, self.backward, strict=True)):
            rows = given.items[int(random.integers(len(given)))][view]
            at = np.arange(LANES * block, LANES * (block + 1))
            values = _resonator_values(rows[::-1] if turned else rows, self.parameters[:, at])
            self.thresholds[at] = _quantiles(np.sort(values, axis=1), (at * GOLDEN % 1)[:, None])[:, 0]

    def width(self, features: int) -> int:
        return 4 * self.thresholds.size

    def features(self, given: Sequences) -> list[np.ndarray]:
        out = np.empty((len(given), 4, len(self.thresholds)), dtype=np.float32)
        plan = self.views, self.backward, self.parameters, self.thresholds, out
        if kernel.is_compiled():
            kernel.run("resonators", given, len(self.thresholds), *plan)
        else:
            reference.resonators(given, *plan)
        return [out[:, k] for k in range(4)]


class LeakyNetworks(Bank):
    """Small random networks of leaky tanh units, forward and backward in time, at many time scales."""

    arrays = ("W", "U", "bias", "leak", "thresholds")

    def __init__(self, views: int, steps: int, networks: int, random: np.random.Generator):
        self.views, self.backward = _both_directions(views, networks)
        blocks = len(self.views)
        count = LANES * blocks
        W = random.normal(size=(count, UNITS, UNITS))
        W *= (random.uniform(0.1, 1.2, count) / np.abs(np.linalg.eigvals(W)).max(axis=-1))[:, None, None]
        U = random.normal(size=(count, UNITS)) * np.exp(random.uniform(-2.3, 2.3, count))[:, None]
        bias, leak = 0.5 * random.normal(size=(count, UNITS)), np.exp(random.uniform(np.log(0.007), 0, count))
        self.W, self.U, self.bias, self.leak = (_network_last(x, blocks) for x in (W, U, bias, leak))
        self.thresholds = np.zeros((blocks, UNITS, LANES), dtype=np.float32)

    def set_thresholds(self, given: Sequences, random: np.random.Generator) -> None:
        below = -2.0  # all states lie above it, so that the mean excess is the mean plus 2
        self.thresholds[:] = below
        sample = Sequences([given.items[k] for k in random.integers(len(given), size=min(SAMPLE, len(given)))])
        means = self.features(sample)[1] + below  # (n, units)
        chosen = means[random.integers(len(sample), size=means.shape[1]), np.arange(means.shape[1])]
        kept = random.random(len(chosen)) < 0.3  # these count how often a unit is positive
        self.thresholds[:] = np.where(kept, 0.0, chosen).reshape(self.thresholds.shape)

    def width(self, features: int) -> int:
        return 4 * self.thresholds.size

    def features(self, given: Sequences) -> list[np.ndarray]:
        out = np.empty((len(given), 4, self.thresholds.size), dtype=np.float32)
        plan = self.views, self.backward, self.W, self.U, self.bias, self.leak, self.thresholds, out
        if kernel.is_compiled():
            kernel.run("leaky_networks", given, len(self.views), *plan)
        else:
            reference.leaky_networks(given, *plan)
        return [out[:, k] for k in range(4)]


def _resonator_values(x: np.ndarray, parameters: np.ndarray) -> np.ndarray:
    """(16, T) of one row."""
    if not kernel.is_compiled():
        return reference.resonator_values(x, parameters)
    out = np.empty((len(x), LANES), dtype=np.float32)
    row = Sequences([np.ascontiguousarray(x[None])])
    kernel.run("resonator_values", row, np.ascontiguousarray(parameters), out)
    return out.T


def _both_directions(views: int, units: int) -> tuple[np.ndarray, np.ndarray]:
    """For blocks of 16 units: the view that a block reads, and 1 if it reads it from the end."""
    blocks = max(1, units // (2 * LANES))
    return np.repeat(np.arange(views), 2 * blocks), np.tile(np.repeat(np.arange(2), blocks), views)


def _network_last(x: np.ndarray, blocks: int) -> np.ndarray:
    """(networks, …) → (blocks, …, 16) in float32."""
    return np.ascontiguousarray(np.moveaxis(x.reshape(blocks, LANES, *x.shape[1:]), 1, -1), dtype=np.float32)


def _quantiles(values: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """(F, k): just above the quantiles of sorted values (F, T) at levels (F, k)."""
    place = levels * (values.shape[1] - 1)
    low = place.astype(np.int64)
    high = np.minimum(low + 1, values.shape[1] - 1)
    rows = np.arange(len(values))[:, None]
    return values[rows, low] + (place - low) * (values[rows, high] - values[rows, low]) + MARGIN
