"""SnAp-n: the influence matrix kept only where n steps reach (Menick et al. 2021)."""

from torch import nn

from recurra.cell import positive_int
from recurra.errors import OptionError
from recurra.train.learner import Optimizer
from recurra.train.objective import Loss
from recurra.train.online.influence_trackers import influence_tracker
from recurra.train.online.learner import OnlineLearner, Tracker


class SnAp(OnlineLearner):
    """Sparse n-step approximation of RTRL (Menick, Elsen, Evci, Osindero, Simonyan & Graves 2021).

    Keeps the influence of a weight only on the states that it reaches within `n` steps. With n = 1 and a cell whose
    gates read the state itself (LSTM, `rc.GRU(…, reset_after=True)`), that is one number per weight and state of its
    unit: a step costs little more than the step itself. With n large enough, it is RTRL. Whole blocks of weights are
    kept or not: a product reaches every unit.

    **Arguments**

    - `model`, `loss`, `optimizer`, `rate`, `update`, `carry`, `clip`: as for `RTRL`.
    - `n`: steps within which a weight must reach a state.
    - `memory_limit`: bytes; a larger influence raises `CostError`.

    **Returns** from `step(x, target, mask=None)` the mean loss before the update; `gradients(x, target)` gives the
    approximate gradient by parameter name.

    **Example**

    >>> model = rc.train.Predictor(rc.layer("gru", 2, 4, reset_after=True), 1)
    >>> learner = rc.train.SnAp(model, "mse", rate=0.01, update="step")
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
        n: int = 1,
        update: str = "call",
        carry: bool = False,
        clip: float | None = None,
        memory_limit: int = 4 << 30,
    ):
        super().__init__(model, loss, optimizer, rate, update, carry, clip)
        self.n, self.memory_limit = positive_int("n", n), memory_limit
        tracker = self._renew(1)  # raises CostError for a model that is too large
        if tracker.why and n > 1:
            raise OptionError("n", n, f"1, or RTRL: the step is not compiled ({tracker.why})")

    def make_tracker(self, batch: int) -> Tracker:
        return influence_tracker(self.step_fn, batch, self.n, self.memory_limit, f"SnAp({self.n})")
