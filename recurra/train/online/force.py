"""FORCE: recursive least squares of a linear readout, or of the recurrent weights, too (Sussillo & Abbott 2009)."""

from typing import Any

import torch
from torch import Tensor, nn

from recurra.errors import InputError, OptionError
from recurra.layers import Recurrent
from recurra.train.learner import CARRIED_BY_LEARNER, Learner, positive, refuse_carried_start, step_targets
from recurra.train.step_function import check_composition
from recurra.train.tensor_trees import map_tensors


class FORCE(Learner):
    """First-order reduced and controlled error learning: recursive least squares at every step (Sussillo & Abbott,
    *Generating Coherent Patterns of Activity from Chaotic Neural Networks*, Neuron 2009).

    After every step the head solves the least-squares problem of all steps so far, by one update of the inverse
    correlation P of the states. With `scope="network"` the recurrent matrix of the cell takes the same kind of update,
    from the errors of the outputs and the states it reads. Outputs are brought to their targets at once and kept there.

    **Arguments**

    - `model`: a `rc.train.Predictor` of one layer with a linear head, `rc.Readout` or `nn.Linear`.
    - `alpha`: P starts as the identity / alpha; a ridge penalty of the least squares.
    - `forgetting`: between 0 and 1; 1 remembers every step alike, 0.99 about the last hundred.
    - `scope`: "readout", or "network" for cells with one recurrent matrix (RNN, LeakyRNN, IRNN, …).
    - `carry`: continue from the state of the previous call.
    - `seed`: of the random weights that bring errors to units in "network".

    **Returns** from `step(x, target, mask=None)` the mean squared error, each step's before its update.

    **Example**

    >>> learner = rc.train.FORCE(rc.train.Predictor(rc.RNN(1, 32), 1))
    >>> x = torch.sin(torch.arange(200.0) / 5).view(-1, 1, 1)
    >>> losses = [learner.step(x[:-1], x[1:]) for _ in range(3)]
    >>> losses[-1] < losses[0]
    True
    """

    def __init__(
        self,
        model: nn.Module,
        alpha: float = 1.0,
        forgetting: float = 1.0,
        scope: str = "readout",
        carry: bool = False,
        seed: int = 0,
    ):
        super().__init__(model, "mse")
        refuse_carried_start(model, CARRIED_BY_LEARNER)
        layer, self.weight, self.bias = _parts(model)
        check_composition(model, model.head)  # pyrefly: ignore
        self.layer, self.carry = layer, carry
        if not 0 < forgetting <= 1:
            raise InputError("forgetting", forgetting, "a number above 0, at most 1")
        if scope not in ("readout", "network"):
            raise InputError("scope", repr(scope), "'readout' or 'network'")
        self.forgetting, self.recurrent = forgetting, _recurrent_matrix(layer) if scope == "network" else None
        like, width = self.weight, self.weight.shape[1] + (self.bias is not None)
        sizes = [width] if self.recurrent is None else [width, self.recurrent.shape[1]]
        eyes = [torch.eye(n, dtype=like.dtype, device=like.device) for n in sizes]
        self.inverse = [eye / positive("alpha", alpha) for eye in eyes]  # P of the readout, and of the recurrent matrix
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(len(like), like.shape[1], generator=generator, dtype=torch.float64).to(like)
        self.feedback = drawn / like.shape[1] ** 0.5  # (q, H)
        self.state: Any = (None, None)

    @torch.no_grad()
    def step(self, x: Tensor, target: Tensor, mask: Tensor | None = None) -> float:
        targets, total = step_targets(x, target, mask), 0.0
        state, before = self.state if self.carry else (None, None)
        for t in range(len(x)):
            output, state = self.layer(x[t : t + 1], state)
            h, counts = output[0], targets.counts[t]
            if bool(counts.any()):
                error = self._head(h) - targets.target[t]
                total += float((error[counts] ** 2).mean(1).sum())
                self._learn(h[counts], None if before is None else before[counts], error[counts])
            before = h
        self.state = (map_tensors(Tensor.clone, state), before) if self.carry else (None, None)
        self.steps += 1
        return total / max(targets.total, 1)

    def _head(self, h: Tensor) -> Tensor:
        return torch.nn.functional.linear(h, self.weight, self.bias)

    def _learn(self, h: Tensor, before: Tensor | None, error: Tensor) -> None:
        """One update from states (B, H), the states before them, and errors (B, q)."""
        rows = h if self.bias is None else torch.cat([h, h.new_ones(len(h), 1)], 1)
        gain = self._gain(0, rows)
        change = error.T @ gain  # (q, H + 1)
        self.weight -= change[:, : h.shape[1]]
        if self.bias is not None:
            self.bias -= change[:, -1]
        if self.recurrent is not None and before is not None:
            self.recurrent -= (error @ self.feedback).T @ self._gain(1, before)

    def _gain(self, number: int, rows: Tensor) -> Tensor:
        """(B, n): (λ I + r P rᵀ)⁻¹ r P, after which P is that of the rows as well."""
        inverse = self.inverse[number]
        seen = rows @ inverse
        inner = seen @ rows.T + self.forgetting * torch.eye(len(rows), dtype=rows.dtype, device=rows.device)
        gain = torch.linalg.solve(inner, seen)
        smaller = (inverse - seen.T @ gain) / self.forgetting
        self.inverse[number] = (smaller + smaller.T) / 2
        return gain

    def extra_state(self) -> dict[str, Any]:
        return {"inverse": [p.clone() for p in self.inverse], "feedback": self.feedback.clone(), "state": self.state}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        self.inverse, self.feedback = [p.clone() for p in state["inverse"]], state["feedback"].clone()
        self.state = state["state"]


def _parts(model: nn.Module) -> tuple[Recurrent, Tensor, Tensor | None]:
    """The layer, and weight and bias of its linear head."""
    layer, head = getattr(model, "layer", None), getattr(model, "head", None)
    weight = next((w for w in (getattr(head, "V", None), getattr(head, "weight", None)) if isinstance(w, Tensor)), None)
    if not isinstance(layer, Recurrent) or layer.directions != 1 or weight is None or getattr(head, "softmax", False):
        got = type(model).__name__ if layer is None else f"{type(model).__name__} of {type(layer).__name__}"
        expected = "rc.train.Predictor(layer, n): an rc.Recurrent of one direction, with a linear head"
        raise OptionError("model", got, expected)
    bias = getattr(head, "b", getattr(head, "bias", None))
    if not all(w.requires_grad for w in (weight, bias) if w is not None):
        raise OptionError("model", "a head without requires_grad", "a head that may change: FORCE learns it")
    return layer, weight, bias


def _recurrent_matrix(layer: Recurrent) -> Tensor:
    cell = layer.cell_list[0]
    square = [p for n, p in cell.named_parameters() if n.endswith(".W") and p.shape == (cell.hidden_size,) * 2]
    if len(layer.cell_list) != 1 or len(square) != 1:
        got = f"{len(layer.cell_list)} layers of {type(cell).__name__}, {len(square)} recurrent matrices in the first"
        raise OptionError("scope", got, "one layer of a cell with one recurrent matrix, or scope='readout'")
    return square[0]
