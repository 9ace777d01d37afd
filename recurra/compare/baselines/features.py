"""Features of a sequence for linear models: summary statistics, the raw steps, random convolution kernels.

Each extractor has `fit(series)` and is then called with series, (T, D) arrays, and gives (n, features).
"""

from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from torch.nn.functional import conv1d

from recurra.estimators.scaling import Scaling

MAX_RAW = 6000  # raw features; longer sequences are averaged over pieces of equal length
KERNELS, KERNEL_LENGTH, CHANNELS = 500, 9, 8
BATCH = 2**22  # numbers of one convolution


class SummaryFeatures:
    """Mean, std, minimum, maximum, first and last value of every column, and the length: 6 D + 1."""

    def fit(self, series: Sequence[np.ndarray]) -> Self:
        return self

    def __call__(self, series: Sequence[np.ndarray]) -> np.ndarray:
        rows = [
            np.concatenate([x.mean(axis=0), x.std(axis=0), x.min(axis=0), x.max(axis=0), x[0], x[-1], [len(x)]])
            for x in series
        ]
        return np.stack(rows)


class RawSteps:
    """Every value of every step; sequences are aligned at their ends, shorter ones padded in front with the mean."""

    def fit(self, series: Sequence[np.ndarray]) -> Self:
        self.steps_ = max(map(len, series))
        self.kept_ = max(1, min(self.steps_, MAX_RAW // series[0].shape[1]))
        self.mean_ = Scaling.of(series).mean
        return self

    def __call__(self, series: Sequence[np.ndarray]) -> np.ndarray:
        return np.stack([self._row(x) for x in series])

    def _row(self, x: np.ndarray) -> np.ndarray:
        end = x[-self.steps_ :]
        padded = np.concatenate([np.tile(self.mean_, (self.steps_ - len(end), 1)), end])
        return np.concatenate([piece.mean(axis=0) for piece in np.array_split(padded, self.kept_)])


class RandomKernels:
    """ROCKET-like features (Dempster, Petitjean & Webb 2020): random dilated convolutions of standardised sequences.

    Of each kernel, the share of positive values and the largest value. Each kernel reads a few of the columns.
    """

    def __init__(self, seed: int):
        self.seed = seed

    def fit(self, series: Sequence[np.ndarray]) -> Self:
        rng = np.random.default_rng(self.seed)
        self.scaling_, width = Scaling.of(series), series[0].shape[1]
        longest = int(np.quantile([len(x) for x in series], 0.5))
        most = max(0.0, np.log2(max(1, (longest - 1)) / (KERNEL_LENGTH - 1)))
        dilations = np.floor(2 ** rng.uniform(0, most, KERNELS)).astype(int)
        self.groups_ = []  # (dilation, weights (k, D, length), biases (k,))
        for dilation in np.unique(dilations).tolist():
            count = int((dilations == dilation).sum())
            weights = rng.normal(size=(count, width, KERNEL_LENGTH))
            weights -= weights.mean(axis=2, keepdims=True)
            for kernel in weights:
                kernel[rng.permutation(width)[CHANNELS:]] = 0.0
            tensors = torch.tensor(weights, dtype=torch.float32), torch.tensor(rng.uniform(-1, 1, count)).float()
            self.groups_.append((dilation, *tensors))
        return self

    @torch.no_grad()
    def __call__(self, series: Sequence[np.ndarray]) -> np.ndarray:
        scaled = [torch.tensor(self.scaling_.apply(x), dtype=torch.float32) for x in series]
        order = np.argsort([len(x) for x in scaled], kind="stable")
        size = max(1, BATCH // (KERNELS * len(scaled[order[-1]])))
        found = np.empty((len(scaled), 2 * KERNELS))
        for first in range(0, len(order), size):
            chosen = order[first : first + size]
            found[chosen] = self._batch([scaled[k] for k in chosen]).double().numpy()
        return found

    def _batch(self, some: list[torch.Tensor]) -> torch.Tensor:
        lengths = torch.tensor([len(x) for x in some])
        x = torch.nn.utils.rnn.pad_sequence(some, batch_first=True).transpose(1, 2)  # (B, D, T)
        real = (torch.arange(x.shape[2]) < lengths[:, None])[:, None]  # (B, 1, T)
        shares, maxima = [], []
        for dilation, weights, biases in self.groups_:
            reach = dilation * (KERNEL_LENGTH - 1) // 2
            y = conv1d(x, weights, biases, padding=reach, dilation=dilation)
            shares.append(((y > 0) & real).sum(dim=2) / lengths[:, None])
            maxima.append(y.masked_fill(~real, -torch.inf).amax(dim=2))
        return torch.cat([*shares, *maxima], dim=1)
