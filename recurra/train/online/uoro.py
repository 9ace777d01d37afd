"""UORO: an unbiased estimate of the influence of rank one (Tallec & Ollivier 2018)."""

import torch
from torch import Tensor, nn

from recurra.train.learner import Optimizer
from recurra.train.objective import Loss
from recurra.train.online.estimate_trackers import EstimateTracker
from recurra.train.online.learner import OnlineLearner, Tracker

TINY = 1e-30  # keeps a factor finite where a norm is zero


class UORO(OnlineLearner):
    """Unbiased online recurrent optimization (Tallec & Ollivier, *Unbiased Online Recurrent Optimization*, ICLR 2018).

    The influence ds/dw is replaced by a product of two vectors, s̃ w̃ᵀ, whose mean it is:

        s̃ ← ρ₀ (∂s'/∂s) s̃ + ρ₁ ν        w̃ ← w̃ / ρ₀ + νᵀ(∂s'/∂w) / ρ₁

    with random signs ν and factors ρ that balance the norms. Memory and time are those of the network itself, whatever
    the cell; the price is variance, which grows with the number of states.

    **Arguments**

    - `model`, `loss`, `optimizer`, `rate`, `update`, `carry`, `clip`: as for `RTRL`.
    - `seed`: of the random signs. Each sequence of a batch has its own.

    **Returns** from `step(x, target, mask=None)` the mean loss before the update; `gradients(x, target)` gives one draw
    of the estimate.

    **Example**

    >>> learner = rc.train.UORO(rc.train.Predictor(rc.GRU(2, 4), 1), "mse", rate=0.01, update="step")
    >>> x = torch.randn(20, 4, 2)
    >>> losses = [learner.step(x, x.sum(2, keepdim=True)) for _ in range(5)]
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
        seed: int = 0,
    ):
        super().__init__(model, loss, optimizer, rate, update, carry, clip, seed)

    def make_tracker(self, batch: int) -> Tracker:
        return RankOneTracker(self.step_fn, batch, self.generator)


class RankOneTracker(EstimateTracker):
    carried = ("state_part", "weight_part")
    kind = "rank one"

    def parts(self) -> tuple[Tensor, Tensor]:
        self.state_part, self.weight_part = self.state_part.contiguous(), self.weight_part.contiguous()
        return self.state_part, self.weight_part

    def draw(self, steps: int) -> tuple[int, Tensor]:
        return steps, self.signs(steps, self.batch, self.derivatives.state_size)

    def begin(self) -> None:
        d = self.derivatives
        signs = self.signs(self.batch, d.state_size)
        self.weight_part = d.start_pull(signs)  # (B, P): zero, unless the start is learned
        self.state_part = signs * self.weight_part.any(1, keepdim=True)  # (B, n)

    def estimate(self, by_output: Tensor | None) -> Tensor | None:
        d, found = self.derivatives, None
        if by_output is not None:
            direct, by_state = d.pull(by_output, None)
            found = (by_state * self.state_part).sum(1, keepdim=True) * self.weight_part + direct
        signs = self.signs(self.batch, d.state_size)
        forward = d.push(self.state_part, None)[1]
        immediate = d.pull(None, signs)[0]
        keep = (_norm(self.weight_part) / _norm(forward)).sqrt()  # ρ₀
        add = (_norm(immediate) / _norm(signs)).sqrt()  # ρ₁
        self.state_part = keep * forward + add * signs
        self.weight_part = self.weight_part / keep + immediate / add
        return found


def _norm(value: Tensor) -> Tensor:
    return torch.linalg.vector_norm(value, dim=1, keepdim=True) + TINY
