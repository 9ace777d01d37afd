"""RFLO: random feedback local online learning (Murray 2019)."""

from torch import nn

from recurra.train.learner import Optimizer
from recurra.train.objective import Loss
from recurra.train.online.eprop import EProp


class RFLO(EProp):
    """Random feedback local online learning (Murray, *Local online learning in recurrent networks with random
    feedback*, eLife 2019).

    RTRL of a leaky network without its two nonlocal parts: the influence through the recurrent weights is left out, so
    that a weight keeps a trace of its own unit, which leaks as the unit does; and errors reach units through fixed
    random weights. For `rc.LeakyRNN` these are the paper's equations.

    **Arguments**: as for `EProp`, with `feedback="random"`.

    **Returns** from `step(x, target, mask=None)` the mean loss before the update.

    **Example**

    >>> model = rc.train.Predictor(rc.LeakyRNN(2, 16, tau=4.0), 1)
    >>> learner = rc.train.RFLO(model, "mse", rate=0.01, update="step")
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
        seed: int = 0,
    ):
        super().__init__(model, loss, optimizer, rate, "random", update, carry, clip, seed=seed)
