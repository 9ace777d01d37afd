"""e-prop: eligibility traces of units and a learning signal from the errors of the outputs (Bellec et al. 2020)."""

from typing import Any

import torch
from torch import nn

from recurra.train.learner import Optimizer, refuse_learned_start
from recurra.train.objective import Loss
from recurra.train.online.learner import OnlineLearner, Tracker
from recurra.train.online.local_traces import LocalTracker, feedback_matrix, head_matrix


class EProp(OnlineLearner):
    """e-prop (Bellec, Scherr, Subramoney, Hajek, Salaj, Legenstein & Maass, *A solution to the learning dilemma for
    recurrent networks of spiking neurons*, 2020), for any cell of one layer, spiking ones (`rc.cells.spike`) included.

    A weight has one eligibility trace per state of its unit, ε ← (∂s'/∂s)_unit ε + (∂s'/∂w), without the derivatives
    through recurrent products. Its gradient is the trace times a learning signal, the error of the outputs brought back
    to the unit. With symmetric feedback, cells whose units interact with themselves alone get their exact gradient.

    **Arguments**

    - `model`, `loss`, `optimizer`, `rate`, `update`, `carry`, `clip`: as for `RTRL`; one layer.
    - `feedback`: of errors to units. "symmetric": the weights of the head; "random": a fixed random matrix; "adaptive":
      a random matrix that changes as the head does.
    - `decay`: of the adaptive matrix, per update.
    - `seed`: of the random matrix.

    **Returns** from `step(x, target, mask=None)` the mean loss before the update; `gradients(x, target)` gives the
    approximate gradient by parameter name.

    **Example**

    >>> learner = rc.train.EProp(rc.train.Predictor(rc.GRU(2, 4), 1), "mse", rate=0.01)
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
        feedback: str = "symmetric",
        update: str = "call",
        carry: bool = False,
        clip: float | None = None,
        decay: float = 1e-3,
        seed: int = 0,
    ):
        super().__init__(model, loss, optimizer, rate, update, carry, clip)
        refuse_learned_start(model, "a fixed one: local traces hold no gradient for it")
        self.feedback, self.decay = feedback, decay
        self.matrix = feedback_matrix(self.step_fn, feedback, seed)
        self._renew(1)

    def make_tracker(self, batch: int) -> Tracker:
        return LocalTracker(self.step_fn, batch, self.matrix, self.decay if self.feedback == "adaptive" else None)

    @property
    def updates_plainly(self) -> bool:
        return type(self)._apply is EProp._apply

    def _apply(self) -> None:
        if self.feedback != "adaptive":
            return super()._apply()
        weights, matrix = head_matrix(self.step_fn), self.matrix
        assert matrix is not None
        before = weights.detach().clone()
        super()._apply()
        with torch.no_grad():
            matrix.add_(weights - before).mul_(1 - self.decay)
        return None

    def extra_state(self) -> dict[str, Any]:
        return super().extra_state() | {"feedback": None if self.matrix is None else self.matrix.clone()}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        if self.matrix is not None:
            self.matrix.copy_(state["feedback"])
        super().load_extra_state(state)
