"""DNI: a small network predicts the gradients that lie beyond a truncated window (Jaderberg et al. 2017)."""

from typing import Any

import torch
from torch import Tensor, nn

from recurra.cell import positive_int
from recurra.errors import InputError, OptionError
from recurra.layers import Recurrent
from recurra.models.as_layer import as_layer
from recurra.models.hierarchical import HierarchicalRNN
from recurra.models.narx import NARX
from recurra.train.learner import (
    CARRIED_BY_LEARNER,
    Learner,
    Optimizer,
    Predictor,
    StepTargets,
    check_restart,
    positive,
    refuse_carried_start,
    resolve_optimizer,
    run_from,
    step_targets,
)
from recurra.train.objective import Loss
from recurra.train.open_window import OpenWindow, kept_from, unnoticed
from recurra.train.tensor_trees import detach_tree, map_tensors


class DNI(Learner):
    """Decoupled neural interfaces: truncated BPTT with synthetic gradients (Jaderberg, Czarnecki, Osindero, Vinyals,
    Graves, Silver & Kavukcuoglu 2017).

    At the end of each window a linear map predicts, from the state, the gradient that later losses will send to it; the
    window is trained on its losses and on that prediction. The map learns from what arrives at the start of the next
    window: the gradient of its losses and, in turn, its own prediction. It starts at zero, where DNI is truncated BPTT.

    **Arguments**

    - `model`: a `rc.train.Predictor` or a layer: a module that maps `(x, state)` to `(output, state)`.
    - `loss`, `optimizer`, `rate`, `clip`: as in `BPTT`.
    - `window`: steps of a window. With `carry` and `update="step"`, calls may cut a stream anywhere, as in `BPTT`.
    - `update`: when weights change, after each window ("step") or once per call ("call").
    - `carry`: start each call from the state, and the prediction, of the previous one.
    - `synthetic_rate`: learning rate of the map.

    **Returns** from `step(x, target, mask=None)` the mean loss before the update.

    **Example**

    >>> learner = rc.train.DNI(rc.train.Predictor(rc.GRU(2, 8), 1), "mse", rate=0.01, window=5)
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
        window: int = 5,
        update: str = "step",
        carry: bool = False,
        clip: float | None = None,
        synthetic_rate: float = 1e-3,
    ):
        super().__init__(model, loss)
        if update not in ("call", "step"):
            raise InputError("update", repr(update), "'call' or 'step'")
        self.window, self.update, self.carry = positive_int("window", window), update, carry
        self.clip = None if clip is None else positive("clip", clip)
        refuse_carried_start(model, CARRIED_BY_LEARNER)
        self.network = _with_state_of_tensors(model)
        layer = self.network if isinstance(self.network, Recurrent) else getattr(self.network, "layer", None)
        if not isinstance(layer, Recurrent) or layer.directions != 1:
            raise OptionError("model", type(model).__name__, "a layer of one direction, or rc.train.Predictor of one")
        if len(set(layer.dilation)) > 1:  # their states have different shapes
            raise OptionError("model", f"dilations {layer.dilation}", "one dilation for all layers")
        sizes = [
            state.size * max(state.delays or (1,)) * dilation
            for cell, dilation in zip(layer.cell_list, layer.dilation, strict=True)
            for state in cell.carried
        ]
        weight = next(layer.parameters())
        self.synthesis = nn.Linear(sum(sizes), sum(sizes), device=weight.device, dtype=weight.dtype)
        nn.init.zeros_(self.synthesis.weight), nn.init.zeros_(self.synthesis.bias)
        self.optimizer = resolve_optimizer(optimizer, model.parameters(), positive("rate", rate))
        self.synthetic_optimizer = torch.optim.Adam(
            self.synthesis.parameters(), positive("synthetic_rate", synthetic_rate)
        )
        self.state: Any = None
        self.open = OpenWindow()

    def step(self, x: Tensor, target: Tensor, mask: Tensor | None = None) -> float:
        own = step_targets(x, target, mask)
        open_ = self.open if self.is_stream else OpenWindow(states={0: self.state if self.carry else None})
        call, total, start, state = len(open_), 0.0, 0, open_.states[0]  # the first step of this call
        x, targets = open_.extended(x, own)
        self.optimizer.zero_grad(set_to_none=True)
        while start + self.window <= len(x) if self.is_stream else start < len(x):
            loss, state = self._window(x[start : start + self.window], targets, start, state, call)
            total += loss
            start += self.window
            if self.update == "step":
                self._apply()
        if self.update == "call":
            self._apply()
        if self.is_stream:
            total += self._read_ahead(x, targets, start, call, state)
            self.open = kept_from(start, start, x, targets, {start: state})
        else:
            self.state = state if self.carry else None
        self.steps += 1
        return total / max(own.total, 1)

    @property
    def is_stream(self) -> bool:
        """Whether windows lie on a stream, so that calls may cut it anywhere."""
        return self.carry and self.update == "step"

    def _read_ahead(self, x: Tensor, targets: StepTargets, start: int, call: int, state: Any) -> float:
        """The loss of steps whose window later calls complete, and the state after them."""
        if start == len(x):
            self.state = state
            return 0.0
        first = max(start, call)
        state = state if start >= call else self.state
        with unnoticed(self.network):
            output, self.state = run_from(self.network, x[first:], state)
            return float(targets.loss_sum(self.loss, output, first))

    def _window(self, x: Tensor, targets: StepTargets, start: int, state: Any, call: int) -> tuple[float, Any]:
        counts = targets.counts[start : start + len(x)] if self.is_stream else targets.counts
        count = max(int(counts.sum()), 1)
        before: list[Tensor] = []
        if state is not None:
            state = map_tensors(lambda s: s.detach().requires_grad_(s.is_floating_point()), state)
            before = leaves(state)
        output, after = run_from(self.network, x, state)
        check_restart(self.network, after)
        loss = targets.loss_sum(self.loss, output, start)
        ends = leaves(after)
        is_last = not self.carry and start + len(x) == len(targets.counts)  # no loss lies beyond
        with torch.no_grad():
            beyond = self.synthesis(_flat(ends)) * (not is_last)
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        whole = loss / count + (_flat(ends) * beyond).sum()
        found = torch.autograd.grad(whole, [*parameters, *before], allow_unused=True)
        for parameter, gradient in zip(parameters, found, strict=False):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        if before:
            self._teach(before, found[len(parameters) :])
        if start < call:  # earlier calls have returned the loss of their own steps
            with torch.no_grad():
                loss = targets.loss_sum(self.loss, output[call - start :], call)
        return float(loss.detach()), detach_tree(after)

    def _teach(self, states: list[Tensor], gradients: Any) -> None:
        """One step of the map: what it should have said of these states."""
        wanted = [torch.zeros_like(s) if g is None else g for s, g in zip(states, gradients, strict=True)]
        said = self.synthesis(_flat([s.detach() for s in states]))
        self.synthetic_optimizer.zero_grad()
        ((said - _flat(wanted)) ** 2).sum(1).mean().backward()
        self.synthetic_optimizer.step()

    def _apply(self) -> None:
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def extra_state(self) -> dict[str, Any]:
        parts = {"optimizer": self.optimizer, "synthetic": self.synthetic_optimizer, "synthesis": self.synthesis}
        return {name: part.state_dict() for name, part in parts.items()} | {
            "state": self.state,
            "open": self.open.state_dict(),
        }

    def load_extra_state(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.synthetic_optimizer.load_state_dict(state["synthetic"])
        self.synthesis.load_state_dict(state["synthesis"])
        self.state = state["state"]
        self.open = OpenWindow.of(state["open"])


def _with_state_of_tensors(model: nn.Module) -> nn.Module:
    """The model itself; NARX and hierarchical networks as a layer of one cell, which shares their weights."""
    if isinstance(model, (NARX, HierarchicalRNN)):
        return as_layer(model)
    if type(model) is Predictor and isinstance(model.layer, (NARX, HierarchicalRNN)):
        return Predictor(as_layer(model.layer), model.head)
    return model


def leaves(tree: Any) -> list[Tensor]:
    """The tensors of real numbers inside a state."""
    found: list[Tensor] = []
    map_tensors(lambda tensor: found.append(tensor), tree)
    return found


def _flat(states: list[Tensor]) -> Tensor:
    """States (layers, B, …) side by side: (B, n)."""
    return torch.cat([s.movedim(1, 0).flatten(1) for s in states], 1)
