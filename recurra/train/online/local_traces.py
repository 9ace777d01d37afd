"""A tracker of local eligibility traces: what a weight has done to its own unit, times a learning signal."""

from typing import Any

import torch
from torch import Tensor

from recurra.argument_checks import whole_number
from recurra.errors import InputError, OptionError
from recurra.models.narx import NARXCell
from recurra.train.online.compiled_step import NotCompiled, influence_plan
from recurra.train.online.influence_trackers import CompiledTracker
from recurra.train.step_function import StepFunction

FEEDBACKS = ("symmetric", "random", "adaptive")


class LocalTracker(CompiledTracker):
    """Traces of one number per weight; derivatives through products with the state are left out.

    The learning signal of a unit is the error of the outputs through `feedback`: the weights of the head ("symmetric"),
    a fixed random matrix ("random"), or a matrix that starts at random and takes the updates of the head ("adaptive").
    """

    def __init__(self, step_fn: StepFunction, batch: int, matrix: Tensor | None, decay: float | None):
        super().__init__(step_fn, batch, _plan(step_fn))
        self.matrix, self.decay = matrix, decay  # (q, H); of a matrix that changes

    def feedback(self) -> Tensor | None:
        return self.matrix

    def signal(self, loss: Tensor) -> tuple[Tensor, list[Tensor]]:
        if self.matrix is None:
            return super().signal(loss)
        error = self.head.error(loss)
        return error @ self.matrix, self.head.gradients(loss)[1]


def _plan(step_fn: StepFunction) -> Any:
    try:
        plan = influence_plan(step_fn, None, local=True, by_any_backend=True)
    except NotCompiled as reason:
        raise OptionError("model", f"a step that is not compiled ({reason})", "another cell, or RTRL") from reason
    if len(plan.cells) != 1:
        raise OptionError("model", f"{len(plan.cells)} layers", "one layer: traces are local to a unit")
    network = getattr(plan.cells[0], "network", None)
    if isinstance(network, NARXCell) and network.v is not None:  # its weights reach no state of their own unit
        raise OptionError("model", "a NARX network with a hidden layer", "hidden_size=None: traces are local to a unit")
    return plan


def feedback_matrix(step_fn: StepFunction, feedback: str, seed: int) -> Tensor | None:
    """The matrix from errors to units, (q, H); None for the head's own weights."""
    if feedback not in FEEDBACKS:
        raise InputError("feedback", repr(feedback), ", ".join(map(repr, FEEDBACKS)))
    whole_number("seed", seed)
    if feedback == "symmetric":
        return None
    weights = head_matrix(step_fn)
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(weights.shape, generator=generator, dtype=torch.float64).to(weights)
    return drawn / weights.shape[1] ** 0.5


def head_matrix(step_fn: StepFunction) -> Tensor:
    """The weights of a linear head, (q, H)."""
    for name in ("V", "weight"):
        weight = step_fn.readout.get(name)
        if weight is not None and weight.dim() == 2:
            return weight
    raise OptionError("model", "a head that is not linear", "rc.Readout or nn.Linear, or feedback='symmetric'")
