"""FPTT: a weight update at every step, held together by a running mean of the weights (Kag & Saligrama 2021)."""

from typing import Any

import torch
from torch import nn

from recurra.cell import positive_int
from recurra.train.bptt import BPTT
from recurra.train.learner import Optimizer, positive
from recurra.train.objective import Loss


class FPTT(BPTT):
    """Forward propagation through time (Kag & Saligrama, *Training Recurrent Neural Networks via Forward Propagation
    Through Time*, ICML 2021).

    Weights change after every `window` steps; gradients stop at its start. A penalty keeps the weights W near their
    running mean, so that the updates of one sequence settle on one network:

        W ← step of the optimizer on  ℓ(W) + α/2 ‖W - W̄ - λ/(2α)‖²
        λ ← λ / 2 - α (W - W̄)        W̄ ← (W̄ + W) / 2 - λ / (2α)

    where λ stands for the gradient of the last loss at the new weights: it is what the optimum of the line above gives.

    **Arguments**

    - `model`, `loss`, `optimizer`, `rate`, `carry`, `clip`: as in `BPTT`.
    - `window`: steps between two updates. With `carry`, calls may cut a stream anywhere, as in `BPTT`.
    - `alpha`: the weight of the penalty; with 0, truncated BPTT.

    **Returns** from `step(x, target, mask=None)` the mean loss, each window's before its update.

    **Example**

    >>> learner = rc.train.FPTT(rc.train.Predictor(rc.GRU(2, 8), 1), "mse", rate=0.01)
    >>> x = torch.randn(20, 4, 2)
    >>> losses = [learner.step(x, x.sum(2, keepdim=True)) for _ in range(10)]
    >>> losses[-1] < losses[0]
    True
    """

    def __init__(
        self,
        model: nn.Module,
        loss: str | Loss = "auto",
        optimizer: Optimizer = "adam",
        rate: float = 1e-3,
        window: int = 1,
        alpha: float = 0.1,
        carry: bool = False,
        clip: float | None = None,
    ):
        super().__init__(model, loss, optimizer, rate, k1=positive_int("window", window), carry=carry, clip=clip)
        self.alpha = positive("alpha", alpha) if alpha else 0.0
        self.learned = [p for p in model.parameters() if p.requires_grad]
        self.mean = [p.detach().clone() for p in self.learned]  # W̄
        self.slope = [torch.zeros_like(p) for p in self.learned]  # λ

    @torch.no_grad()
    def _apply(self) -> None:
        alpha = self.alpha
        if alpha:
            for w, mean, slope in zip(self.learned, self.mean, self.slope, strict=True):
                pull = alpha * (w - mean) - slope / 2
                w.grad = pull if w.grad is None else w.grad + pull
        super()._apply()
        if alpha:
            for w, mean, slope in zip(self.learned, self.mean, self.slope, strict=True):
                slope.div_(2).sub_(w - mean, alpha=alpha)
                mean.add_(w).div_(2).sub_(slope, alpha=1 / (2 * alpha))

    def extra_state(self) -> dict[str, Any]:
        own = {"mean": [m.clone() for m in self.mean], "slope": [s.clone() for s in self.slope]}
        return super().extra_state() | own

    def load_extra_state(self, state: dict[str, Any]) -> None:
        super().load_extra_state(state)
        for own, saved in zip((*self.mean, *self.slope), (*state["mean"], *state["slope"]), strict=True):
            own.copy_(saved)
