"""Sparse and generalised teacher forcing: training that keeps chaotic models near their data.

Before a step, the state moves towards the one that the data imply: z ← z + α B⁺ (y - B z), where y = B z is observed.
α = 1 at every τ-th step and 0 elsewhere is sparse forcing (Mikhaeil, Monfared & Durstewitz 2022); a constant α < 1 is
generalised forcing (Hess, Monfared, Brenner & Durstewitz 2023). Both bound the gradients of a chaotic orbit.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from recurra.argument_checks import positive_int, probability
from recurra.cell import Cell
from recurra.dilation import refuse_dilation
from recurra.engine.dispatch import scan
from recurra.engine.found_draws import find_draws
from recurra.engine.reference import Sequences
from recurra.errors import InputError, OptionError, ShapeError
from recurra.layers import Recurrent
from recurra.train.learner import Learner, Optimizer, positive, resolve_optimizer, step_targets
from recurra.train.objective import Loss


class ForcedCell(Cell):
    """A cell of one state whose input also has the state to move to (B⁺ y) and the strength α of the move."""

    states = ("z",)

    def __init__(self, inner: Cell, observation: Tensor):
        super().__init__(inner.hidden_size + 1 + inner.input_size, inner.hidden_size)
        self.inner = inner
        self.register_buffer("P", torch.linalg.pinv(observation) @ observation)  # what is observed of a state

    def step(self, x: Tensor, z: Tensor) -> Tensor:
        n = self.hidden_size
        implied, strength = x[:, :n], x[:, n : n + 1]
        return self.inner.step(x[:, n + 1 :], z + strength * (implied - linear(z, self.P)))


class TeacherForcing(Learner):
    """Learner of observed dynamics by sparse (`every` > 1) or generalised (`strength` < 1) teacher forcing.

    The first state comes from the first observation, with zeros for what is not observed. Each later observation is
    predicted from the state before it, then moves the state. `strength` may change between steps, to anneal it.

    **Arguments**

    - `layer`: an `rc.Recurrent` of one cell with one state, such as `rc.ShallowPLRNN(1, 3)`.
    - `strength`: α in [0, 1]; 1 replaces what is observed of a state, 0 lets the model run freely.
    - `every`: τ, the steps from one forced state to the next.
    - `observation`: B (q, H) of y = B z; None observes the first q states, q being the width of the target.
    - `loss`, `optimizer`, `rate`, `clip`: as in `rc.train.BPTT`.

    **Returns** from `step(x, target, mask=None)` the mean loss before the update. `x` (T, B, D) are external inputs
    (zeros for an autonomous system), `target` (T, B, q) the observations; the mask leaves out predictions.

    **Example**

    >>> orbit = rc.dynamics.lorenz(dt=0.02).simulate(torch.randn(8, 3) + 20, 300)[100:] / 10
    >>> learner = rc.train.TeacherForcing(rc.ShallowPLRNN(1, 3, units=30), strength=0.2, rate=0.01)
    >>> losses = [learner.step(torch.zeros(*orbit.shape[:2], 1), orbit) for _ in range(30)]
    >>> losses[-1] < losses[0]
    True
    """

    def __init__(
        self,
        layer: Recurrent,
        strength: float = 1.0,
        every: int = 1,
        observation: Tensor | None = None,
        loss: str | Loss = "mse",
        optimizer: Optimizer = "adam",
        rate: float = 1e-3,
        clip: float | None = None,
    ):
        super().__init__(layer, loss)
        self.cell = _forcible_cell(layer)
        self.strength, self.every = probability("strength", strength), positive_int("every", every)
        self.observation = None if observation is None else _observation(observation, self.cell)
        self.optimizer = resolve_optimizer(optimizer, layer.parameters(), positive("rate", rate))
        self.clip = None if clip is None else positive("clip", clip)
        self.forced: ForcedCell | None = None

    def step(self, x: Tensor, target: Tensor, mask: Tensor | None = None) -> float:
        targets = step_targets(x, target, mask)
        if target.dim() != 3 or len(x) < 2:
            raise ShapeError("target", f"shape {tuple(target.shape)}", "observations (T, B, q) of at least two steps")
        self.optimizer.zero_grad(set_to_none=True)
        loss = targets.loss_sum(self.loss, self.predict(x, target), 1) / max(int(targets.counts[1:].sum()), 1)
        loss.backward()
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.steps += 1
        return float(loss.detach())

    def predict(self, x: Tensor, target: Tensor) -> Tensor:
        """Predictions (T - 1, B, q) of the observations 1 … T - 1, each made before its observation is used."""
        matrix = self._matrix(target)
        if self.forced is None or self.forced.P.dtype != target.dtype or self.forced.P.device != target.device:
            self.forced = ForcedCell(self.cell, matrix)
        implied = linear(target[:-1], torch.linalg.pinv(matrix))  # (T - 1, B, H)
        strengths = implied.new_zeros(*implied.shape[:2], 1)
        strengths[:: self.every] = self.strength
        given = torch.cat([implied, strengths, x[1:]], dim=2)
        return linear(scan(self.forced, Sequences(given, (implied[0],))).y, matrix)

    def _matrix(self, target: Tensor) -> Tensor:
        """B (q, H), like the target."""
        if self.observation is None:
            return torch.eye(target.shape[2], self.cell.hidden_size, dtype=target.dtype, device=target.device)
        if target.shape[2] != len(self.observation):
            expected = f"observations (T, B, {len(self.observation)})"
            raise ShapeError("target", f"shape {tuple(target.shape)}", expected)
        return self.observation.to(target)

    def extra_state(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), "strength": self.strength}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.strength = state["strength"]


def _forcible_cell(layer: Recurrent) -> Cell:
    if not isinstance(layer, Recurrent) or len(layer.cell_list) != 1:
        raise InputError("layer", type(layer).__name__, "an rc.Recurrent of one cell and one direction")
    refuse_dilation("layer", layer)
    cell = layer.cell_list[0]
    is_single = len(cell.carried) == 1 and cell.carried[0].shape(1) == (1, cell.hidden_size)
    if not is_single or find_draws(cell) or cell.modifiers:
        expected = "a cell of one state (B, H), without masks, noise and modifiers"
        raise OptionError("layer", f"a layer of {type(cell).__name__}", expected)
    return cell


def _observation(matrix: Tensor, cell: Cell) -> Tensor:
    if not isinstance(matrix, Tensor) or matrix.dim() != 2 or matrix.shape[1] != cell.hidden_size:
        raise ShapeError("observation", getattr(matrix, "shape", type(matrix).__name__), f"(q, {cell.hidden_size})")
    return matrix.detach()
