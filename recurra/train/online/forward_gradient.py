"""Forward gradients: the derivative of the loss along a random direction, times that direction (Baydin et al. 2022)."""

import torch
from torch import Tensor, nn

from recurra.cell import positive_int
from recurra.train.learner import Optimizer
from recurra.train.objective import Loss
from recurra.train.online.estimate_trackers import EstimateTracker
from recurra.train.online.learner import OnlineLearner, Tracker
from recurra.train.step_function import StepFunction


class ForwardGradient(OnlineLearner):
    """Gradients without backpropagation (Baydin, Pearlmutter, Syme, Wood & Torr 2022).

    Each sequence draws a direction v of all recurrent weights and carries the tangent of its state along v. The
    derivative of the loss along v, times v, is an unbiased estimate of the gradient. Memory is that of the network; the
    variance grows with the number of weights. The head, which nothing recurrent lies behind, has its exact gradient.

    **Arguments**

    - `model`, `loss`, `optimizer`, `rate`, `update`, `carry`, `clip`: as for `RTRL`.
    - `redraw`: draw a new direction, and forget the tangent, after so many steps of a carried stream; None: never.
    - `seed`: of the directions.

    **Returns** from `step(x, target, mask=None)` the mean loss before the update, from `gradients` one draw.

    **Example**

    >>> learner = rc.train.ForwardGradient(rc.train.Predictor(rc.GRU(2, 4), 1), "mse", rate=0.01)
    >>> x = torch.randn(20, 4, 2)
    >>> losses = [learner.step(x, x.sum(2, keepdim=True)) for _ in range(20)]
    >>> losses[-1] < losses[0]
    True
    """

    def __init__(
        self,
        model: nn.Module,
        loss: str | Loss = "auto",
        optimizer: Optimizer = "adam",
        rate: float = 1e-3,
        update: str = "call",
        carry: bool = False,
        clip: float | None = None,
        redraw: int | None = None,
        seed: int = 0,
    ):
        super().__init__(model, loss, optimizer, rate, update, carry, clip, seed)
        self.redraw = None if redraw is None else positive_int("redraw", redraw)

    def make_tracker(self, batch: int) -> Tracker:
        return DirectionTracker(self.step_fn, batch, self.generator, self.redraw)


class DirectionTracker(EstimateTracker):
    carried = ("direction", "tangent", "age")
    kind = "direction"

    def __init__(self, step_fn: StepFunction, batch: int, generator: torch.Generator, redraw: int | None):
        super().__init__(step_fn, batch, generator)
        self.redraw = redraw

    def begin(self) -> None:
        self.direction = self.normal(self.batch, self.derivatives.weight_count)
        self.tangent = self.derivatives.start_push(self.direction)  # (B, n)
        self.age = 0

    def estimate(self, by_output: Tensor | None) -> Tensor | None:
        self._turn()
        outputs, self.tangent = self.derivatives.push(self.tangent, self.direction)
        self.age += 1
        if by_output is None:
            return None
        return (by_output * outputs).sum(1, keepdim=True) * self.direction

    def _turn(self) -> None:
        """Draw a new direction if it is time."""
        if self.redraw is not None and self.age >= self.redraw:
            self.direction.copy_(self.normal(self.batch, self.derivatives.weight_count))
            self.tangent, self.age = self.tangent.zero_(), 0

    def parts(self) -> tuple[Tensor, Tensor]:
        self.tangent = self.tangent.contiguous()
        return self.tangent, self.direction

    def draw(self, steps: int) -> tuple[int, None]:
        self._turn()
        if self.redraw is not None:
            steps = min(steps, self.redraw - self.age)
        self.age += steps
        return steps, None
