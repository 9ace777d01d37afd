"""Real-time recurrent learning (RTRL): forward accumulation of the exact gradient, or its SnAp-1 approximation."""

from torch import nn

from recurra.errors import InputError
from recurra.train.learner import Optimizer
from recurra.train.objective import Loss
from recurra.train.online.influence_trackers import influence_tracker
from recurra.train.online.learner import OnlineLearner, Tracker


class RTRL(OnlineLearner):
    """Real-time recurrent learning (Robinson & Fallside 1987, Williams & Zipser 1989).

    Carries ds/dw forward in time: exact gradients without storing earlier steps, so weights can change at every step.
    Memory and time grow with states × weights. Cells whose states interact element by element (IndRNN, minGRU) need one
    number per state and weight only, and stay exact.

    **Arguments**

    - `model`: a `rc.train.Predictor` or a layer, of one direction.
    - `loss`, `optimizer`, `rate`, `clip`: as in `BPTT`.
    - `update`: when weights change, once per call ("call"; the gradient equals BPTT's) or after every step ("step").
    - `carry`: continue from the state and influence of the previous call, e.g. to feed a stream step by step.
    - `approximation`: "snap1" (Menick et al. 2021) keeps the influence only where a weight reaches a state in one step.
    - `memory_limit`: bytes; a larger influence matrix raises `CostError`.

    **Returns** from `step(x, target, mask=None)` the mean loss before the update. `gradients(x, target)` returns the
    gradient by parameter name without an update.

    **Example**

    >>> learner = rc.train.RTRL(rc.train.Predictor(rc.GRU(2, 4), 1), "mse", rate=0.01, update="step")
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
        approximation: str | None = None,
        clip: float | None = None,
        memory_limit: int = 4 << 30,
    ):
        super().__init__(model, loss, optimizer, rate, update, carry, clip)
        if approximation not in (None, "snap1"):
            raise InputError("approximation", repr(approximation), "None or 'snap1'")
        self.approximation, self.memory_limit = approximation, memory_limit
        self._renew(1)  # raises CostError for a model that is too large

    def make_tracker(self, batch: int) -> Tracker:
        steps = None if self.approximation is None else 1
        return influence_tracker(self.step_fn, batch, steps, self.memory_limit, "RTRL")
