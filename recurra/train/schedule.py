"""Learning rates over a run. A schedule is a plain function `factor(step, total) -> float`, so it needs no memory.

`fit(..., schedule=cosine(warmup=100))` multiplies the optimizer's own rate by the factor. A scheduler of torch is taken
too, and stepped after every step; `ReduceLROnPlateau` after every validation.
"""

import math
from collections.abc import Callable
from typing import Any, Protocol

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from recurra.errors import InputError

Schedule = Callable[[int, int], float]


def constant(warmup: int = 0) -> Schedule:
    """A linear rise over `warmup` steps, then 1."""
    return lambda step, total: _rise(step, warmup)


def linear(warmup: int = 0, floor: float = 0.0) -> Schedule:
    """A rise, then a straight line down to `floor` at the end."""
    return lambda step, total: _rise(step, warmup) * (1 - (1 - floor) * _elapsed(step, warmup, total))


def cosine(warmup: int = 0, floor: float = 0.0) -> Schedule:
    """A rise, then half a cosine down to `floor` (Loshchilov & Hutter 2017, without restarts)."""

    def factor(step: int, total: int) -> float:
        return _rise(step, warmup) * (
            floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * _elapsed(step, warmup, total)))
        )

    return factor


def exponential(half_life: int, warmup: int = 0) -> Schedule:
    """A rise, then half as much every `half_life` steps."""
    if half_life < 1:
        raise InputError("half_life", half_life, "a positive number of steps")
    return lambda step, total: _rise(step, warmup) * 0.5 ** (max(0, step - warmup) / half_life)


def _rise(step: int, warmup: int) -> float:
    return min(1.0, (step + 1) / (warmup + 1))


def _elapsed(step: int, warmup: int, total: int) -> float:
    """The part of the way from the end of the rise to the end of the run."""
    return min(1.0, max(0, step - warmup) / max(1, total - warmup))


class Pace(Protocol):
    """How the loop drives whatever schedule it was given."""

    def before_step(self, step: int, total: int) -> None: ...

    def after_step(self) -> None: ...

    def after_validation(self, loss: float) -> None: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class FactorPace:
    """The optimizer's own rates times `schedule(step, total)`, or untouched without one; nothing to remember."""

    def __init__(self, optimizer: Optimizer, schedule: Schedule | None):
        self.optimizer, self.schedule = optimizer, schedule
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])

    def before_step(self, step: int, total: int) -> None:
        if self.schedule is None:
            return
        factor = self.schedule(step, total)
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor

    def after_step(self) -> None:
        pass

    def after_validation(self, loss: float) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class TorchPace:
    """A scheduler of torch, which keeps its own count."""

    def __init__(self, scheduler: LRScheduler):
        self.scheduler = scheduler

    def before_step(self, step: int, total: int) -> None:
        pass

    def after_step(self) -> None:
        if not isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step()

    def after_validation(self, loss: float) -> None:
        if isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step(loss)

    def state_dict(self) -> dict[str, Any]:
        return self.scheduler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.scheduler.load_state_dict(state)


def pace(optimizer: Optimizer, schedule: Schedule | LRScheduler | None) -> Pace:
    if isinstance(schedule, LRScheduler):
        if schedule.optimizer is not optimizer:
            raise InputError("schedule", "a scheduler of another optimizer", "one built on the optimizer given to fit")
        return TorchPace(schedule)
    if schedule is not None and not callable(schedule):
        raise InputError("schedule", type(schedule).__name__, "a function of (step, total) or a scheduler of torch")
    return FactorPace(optimizer, schedule)
