"""Learning-rate schedules. A schedule is a stateless function `factor(step, total) -> float`.

`fit(..., schedule=cosine(warmup=100))` multiplies the optimizer's own rate by the factor. torch schedulers work too:
they are stepped after every step, `ReduceLROnPlateau` after every validation.
"""

import math
from collections.abc import Callable
from typing import Any, Protocol

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from recurra.argument_checks import positive_number
from recurra.errors import InputError

Schedule = Callable[[int, int], float]


def constant(warmup: int = 0) -> Schedule:
    """Linear warm-up over `warmup` steps, then 1.

    >>> [rc.train.constant(warmup=3)(step, 10) for step in range(5)]
    [0.25, 0.5, 0.75, 1.0, 1.0]
    """
    _check_warmup(warmup)
    return lambda step, total: _warmup_factor(step, warmup)


def linear(warmup: int = 0, floor: float = 0.0) -> Schedule:
    """Linear warm-up, then linear decay to `floor` at the last step.

    >>> [rc.train.linear()(step, 4) for step in range(5)]
    [1.0, 0.75, 0.5, 0.25, 0.0]
    """
    _check_warmup(warmup)
    return lambda step, total: _warmup_factor(step, warmup) * (1 - (1 - floor) * _elapsed(step, warmup, total))


def cosine(warmup: int = 0, floor: float = 0.0) -> Schedule:
    """Linear warm-up, then cosine decay to `floor` (Loshchilov & Hutter 2017, without restarts).

    >>> [round(rc.train.cosine()(step, 4), 2) for step in range(5)]
    [1.0, 0.85, 0.5, 0.15, 0.0]
    """
    _check_warmup(warmup)

    def factor(step: int, total: int) -> float:
        return _warmup_factor(step, warmup) * (
            floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * _elapsed(step, warmup, total)))
        )

    return factor


def exponential(half_life: int, warmup: int = 0) -> Schedule:
    """Linear warm-up, then halved every `half_life` steps.

    >>> [rc.train.exponential(half_life=2)(step, 8) for step in (0, 2, 4)]
    [1.0, 0.5, 0.25]
    """
    _check_warmup(warmup)
    positive_number("half_life", half_life)
    return lambda step, total: _warmup_factor(step, warmup) * 0.5 ** (max(0, step - warmup) / half_life)


def _check_warmup(warmup: int) -> None:
    if isinstance(warmup, bool) or not isinstance(warmup, int) or warmup < 0:
        raise InputError("warmup", repr(warmup), "a whole number of steps, 0 or more")


def _warmup_factor(step: int, warmup: int) -> float:
    return min(1.0, (step + 1) / (warmup + 1))


def _elapsed(step: int, warmup: int, total: int) -> float:
    """The elapsed fraction between the end of the warm-up and the end of the run."""
    return min(1.0, max(0, step - warmup) / max(1, total - warmup))


class RateController(Protocol):
    """What the loop calls to set learning rates, for any kind of schedule."""

    def before_step(self, step: int, total: int) -> None: ...

    def after_step(self) -> None: ...

    def after_validation(self, loss: float) -> None: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class FactorController:
    """Sets the optimizer's initial rates times `schedule(step, total)`; without a schedule, changes nothing."""

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


class SchedulerController:
    """Steps a torch scheduler."""

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


def rate_controller(optimizer: Optimizer, schedule: Schedule | LRScheduler | None) -> RateController:
    """The controller for what `fit` got as `schedule`."""
    if isinstance(schedule, LRScheduler):
        if schedule.optimizer is not optimizer:
            raise InputError("schedule", "a scheduler of another optimizer", "one built on the optimizer given to fit")
        return SchedulerController(schedule)
    if schedule is not None and not callable(schedule):
        raise InputError("schedule", type(schedule).__name__, "a function of (step, total) or a scheduler of torch")
    return FactorController(optimizer, schedule)
