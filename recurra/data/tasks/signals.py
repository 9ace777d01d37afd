"""Signal tasks: sines, Mackey-Glass, NARMA10, memory capacity, multiple time scales."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import InputError
from ..sequences import Batch
from . import scores
from .base import CanonicalTask, check_sizes, register, uniform, unpadded_batch
from .mackey_glass_solver import mackey_glass_series

FREQUENCIES = (0.2, 0.311, 0.42, 0.51, 0.74)  # radians a step (Schmidhuber et al. 2007)


@register("sines")
@dataclass(frozen=True)
class Sines(CanonicalTask):
    """Predict the next value of superimposed sines, sin(0.2 x) + sin(0.311 x) + … (Schmidhuber et al. 2007).

    The trivial answer, the current value, has error Σ (1 - cos ω).

    **Arguments**

    - `components`: how many sines, 1 to 5. `length`: steps of a sequence.

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.sines(length=50)
        >>> next(task.batches(4).epoch(0)).inputs.shape  # (T, B, D)
        torch.Size([50, 4, 1])
    """

    components: int = 2
    length: int = 300

    kind, metric, better = "next_step", "mse", "lower"
    input_size = output_size = 1

    def __post_init__(self):
        check_sizes(components=self.components, length=self.length)
        if self.components > len(FREQUENCIES):
            raise InputError("components", self.components, f"at most {len(FREQUENCIES)}")

    @property
    def baseline(self) -> float:
        return sum(1 - math.cos(frequency) for frequency in FREQUENCIES[: self.components])

    def draw(self, count: int, random: torch.Generator) -> Batch:
        x = uniform((count,), random, 0, 1e4) + torch.arange(self.length + 1, dtype=torch.float64)[:, None]
        series = torch.stack([torch.sin(frequency * x) for frequency in FREQUENCIES[: self.components]]).sum(dim=0)[
            ..., None
        ]
        return unpadded_batch(series[:-1], series[1:])

    def trivial(self, batch: Batch) -> Tensor:
        return batch.inputs

    def score(self, outputs: Tensor, batch: Batch) -> float:
        return scores.mse(outputs, batch.targets, batch.mask)


@register("mackey_glass")
@dataclass(frozen=True)
class MackeyGlass(CanonicalTask):
    """Predict the Mackey-Glass series x' = 0.2 x(t-τ) / (1 + x(t-τ)^10) - 0.1 x (Jaeger & Haas 2004).

    The target is the value `horizon` steps ahead; with 84 the score is the NRMSE_84 of the literature. The mean scores
    1.

    **Arguments**

    - `length`: steps of a sequence, one unit of time each. `horizon`: steps ahead. `delay`: τ.
    - `washout`: steps to drop after the random constant past.

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.mackey_glass(length=50, washout=20)
        >>> next(task.batches(4).epoch(0)).inputs.shape  # (T, B, D)
        torch.Size([50, 4, 1])
    """

    length: int = 1000
    horizon: int = 84
    delay: float = 17.0
    washout: int = 500

    kind, metric, better = "next_step", "nrmse", "lower"
    input_size = output_size = 1
    baseline = 1.0

    def __post_init__(self):
        check_sizes(length=self.length, horizon=self.horizon)
        if self.washout < 0 or self.delay < 1:
            raise InputError("mackey_glass", f"washout {self.washout}, delay {self.delay}", "washout ≥ 0, delay ≥ 1")

    def series(self, steps: int, count: int, random: torch.Generator) -> Tensor:
        """(steps, count) float64: series from random constant pasts, after the washout."""
        past = uniform((count,), random, 0.9, 1.5)
        return mackey_glass_series(past, self.washout + steps, self.delay)[self.washout :]

    def draw(self, count: int, random: torch.Generator) -> Batch:
        series = self.series(self.length + self.horizon, count, random)[..., None]
        return unpadded_batch(series[: self.length], series[self.horizon :])

    def trivial(self, batch: Batch) -> Tensor:
        return batch.targets.mean().expand_as(batch.targets)

    def score(self, outputs: Tensor, batch: Batch) -> float:
        return scores.nrmse(outputs, batch.targets, batch.mask)


@register("narma10")
@dataclass(frozen=True)
class Narma10(CanonicalTask):
    """NARMA10: y_{t+1} = 0.3 y_t + 0.05 y_t Σ_{i=0..9} y_{t-i} + 1.5 u_{t-9} u_t + 0.1 (Atiya & Parlos 2000).

    The input u is uniform on (0, 0.5); before the first step all values are zero. Inputs for which the system diverges
    are drawn again.

    **Arguments**

    - `length`: steps of a sequence.

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.narma10(length=50)
        >>> next(task.batches(4).epoch(0)).inputs.shape  # (T, B, D)
        torch.Size([50, 4, 1])
    """

    length: int = 500

    kind, metric, better = "transduction", "nrmse", "lower"
    input_size = output_size = 1
    baseline = 1.0

    def __post_init__(self):
        check_sizes(length=self.length)

    def draw(self, count: int, random: torch.Generator) -> Batch:
        inputs = uniform((self.length, count), random, 0, 0.5)
        targets = narma10(inputs)
        while bool((wild := ~(targets.abs() < 1e3).all(dim=0)).any()):
            inputs[:, wild] = uniform((self.length, int(wild.sum())), random, 0, 0.5)
            targets = narma10(inputs)
        return unpadded_batch(inputs[..., None], targets[..., None])

    def trivial(self, batch: Batch) -> Tensor:
        return batch.targets.mean().expand_as(batch.targets)

    def score(self, outputs: Tensor, batch: Batch) -> float:
        return scores.nrmse(outputs, batch.targets, batch.mask)


def narma10(inputs: Tensor) -> Tensor:
    """(T, B) inputs u → (T, B) of y_{t+1}."""
    past = inputs.new_zeros(10, inputs.shape[1])  # y_t, y_{t-1}, …, y_{t-9}
    delayed = torch.cat([inputs.new_zeros(9, inputs.shape[1]), inputs])  # delayed[t] is u_{t-9}
    outputs = []
    for now, then in zip(inputs, delayed[: len(inputs)], strict=True):
        following = 0.3 * past[0] + 0.05 * past[0] * past.sum(dim=0) + 1.5 * then * now + 0.1
        past = torch.cat([following[None], past[:-1]])
        outputs.append(following)
    return torch.stack(outputs)


@register("memory_capacity")
@dataclass(frozen=True)
class MemoryCapacity(CanonicalTask):
    """Memory capacity: recall independent noise of 1, 2, …, `delays` steps ago (Jaeger 2001).

    The score is MC = Σ_k corr²(u_{t-k}, ŷ_k) without the first `delays` steps. It is at most the number of units of a
    linear network, and 0 without memory.

    **Arguments**

    - `delays`: the largest delay. `length`: steps of a sequence.

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.memory_capacity(delays=5, length=50)
        >>> next(task.batches(4).epoch(0)).inputs.shape  # (T, B, D)
        torch.Size([50, 4, 1])
    """

    delays: int = 20
    length: int = 1000

    kind, metric, better = "transduction", "memory_capacity", "higher"
    input_size, baseline = 1, 0.0

    def __post_init__(self):
        check_sizes(delays=self.delays, length=self.length)
        if self.length <= self.delays:
            raise InputError("length", self.length, f"more than the {self.delays} delays")

    @property
    def output_size(self) -> int:
        return self.delays

    def draw(self, count: int, random: torch.Generator) -> Batch:
        noise = uniform((self.length, count), random, -1, 1)
        padded = torch.cat([noise.new_zeros(self.delays, count), noise])
        ago = [padded[self.delays - k : self.delays - k + self.length] for k in range(1, self.delays + 1)]
        return unpadded_batch(noise[..., None], torch.stack(ago, dim=-1))

    def trivial(self, batch: Batch) -> Tensor:
        return torch.zeros_like(batch.targets)

    def score(self, outputs: Tensor, batch: Batch) -> float:
        mask = batch.mask.clone()
        mask[: self.delays] = False
        return scores.memory_capacity(outputs, batch.targets, mask)


@register("multi_timescale")
@dataclass(frozen=True)
class MultiTimescale(CanonicalTask):
    """Two time scales: the target is a slow sine plus a fast response to noise.

    Inputs: noise u_t, uniform on (-1, 1), and a pulse at each start of a period. Target: sin(2π (t - t0) / period) +
    f_t with f_t = (f_{t-1} + u_t) / 2, stationary from the start. The trivial answer 0 has error 1/2 + 1/9. The exact
    form is our reading of a family of tasks.

    **Arguments**

    - `period`: of the sine, in steps. `length`: steps of a sequence.

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.multi_timescale(length=50)
        >>> next(task.batches(4).epoch(0)).inputs.shape  # (T, B, D)
        torch.Size([50, 4, 2])
    """

    period: int = 100
    length: int = 400

    kind, metric, better = "transduction", "mse", "lower"
    input_size, output_size = 2, 1
    baseline = 1 / 2 + 1 / 9

    def __post_init__(self):
        check_sizes(period=self.period, length=self.length)
        if self.period < 3:
            raise InputError("period", self.period, "at least 3, so that the samples of a sine have its variance")

    def draw(self, count: int, random: torch.Generator) -> Batch:
        before = 64  # after 64 halvings the unknown past is below rounding
        noise = uniform((before + self.length, count), random, -1, 1)
        fast = [noise[0]]
        for u in noise[1:]:
            fast.append((fast[-1] + u) / 2)
        phase = torch.randint(0, self.period, (count,), generator=random)
        steps = torch.arange(self.length)[:, None] + phase
        slow = torch.sin(2 * math.pi * steps.double() / self.period)
        pulse = (steps % self.period == 0).double()
        targets = slow + torch.stack(fast[before:])
        return unpadded_batch(torch.stack([noise[before:], pulse], dim=-1), targets[..., None])

    def trivial(self, batch: Batch) -> Tensor:
        return torch.zeros_like(batch.targets)

    def score(self, outputs: Tensor, batch: Batch) -> float:
        return scores.mse(outputs, batch.targets, batch.mask)
