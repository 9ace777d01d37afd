"""Products with the derivatives of one step of a network: compiled, or through torch.func where that cannot be.

Both have `forward`, `push` (tangents of state and weights → of outputs and new state), `pull` (cotangents of outputs
and new state → of weights and old state) and `commit`. Weights are a flat vector per sequence, (B, P).
"""

from typing import Any

import torch
from torch import Tensor
from torch.func import jvp, vjp, vmap

from recurra.engine.forward_mode.step import CompiledStep
from recurra.train.online.compiled_step import NotCompiled, WeightGradients, influence_plan
from recurra.train.step_function import StepFunction


class CompiledDerivatives:
    """Through the compiled step."""

    why = ""

    def __init__(self, step_fn: StepFunction, batch: int, by_any_backend: bool = False):
        self.step_fn, self.batch = step_fn, batch
        plan = influence_plan(step_fn, 0, by_any_backend=by_any_backend)
        self.step = CompiledStep(plan, batch)
        self.weight_count, self.state_size = self.step.weight_count, step_fn.state_size
        self.to_parameters_of = WeightGradients(step_fn, plan)

    @property
    def state(self) -> Tensor:
        return self.step.state

    def reset(self) -> None:
        self.to_parameters_of.refresh()
        self.step.reset(self.step_fn.start(self.step_fn.flat()[0], self.batch))

    def forward(self, x: Tensor) -> Tensor:
        self.to_parameters_of.refresh()
        return self.step.forward(x)

    def push(self, state: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.step.push(state, weights)

    def pull(self, by_output: Tensor | None, by_state: Tensor | None) -> tuple[Tensor, Tensor]:
        if by_output is None:
            rows = by_state.new_zeros(self.batch, self.step.structure.row_count)  # pyrefly: ignore
        else:
            rows = self.step.roots_of(by_output)
        if by_state is not None:
            rows[:, : self.state_size] += by_state
        return self.step.pull(rows)

    def start_push(self, weights: Tensor) -> Tensor:
        return self.step.start_push(weights)

    def start_pull(self, state: Tensor) -> Tensor:
        return self.step.start_pull(state)

    def commit(self) -> None:
        self.step.commit()

    def to_parameters(self, flat: Tensor) -> list[Tensor]:
        """A flat gradient (P,) by parameter, in the order of `step_fn.recurrent`."""
        return self.to_parameters_of(self.step.by_tensor(flat))

    def state_dict(self) -> dict[str, Any]:
        return self.step.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step.load_state_dict(state)


class FunctionalDerivatives:
    """Through torch.func: any traced step."""

    def __init__(self, step_fn: StepFunction, batch: int, why: str):
        self.step_fn, self.batch, self.why = StepFunction(step_fn.layer or step_fn.head), batch, why
        self.weight_count, self.state_size = self.step_fn.weight_count, self.step_fn.state_size
        self.state = self.new = self.x = torch.empty(0)

    def reset(self) -> None:
        self.step_fn.prepare()
        self.state = self.step_fn.start(self.step_fn.flat()[0], self.batch)

    def _step(self, weights: Tensor, state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.step_fn.step(weights, self.step_fn.flat()[1], state, x)

    def forward(self, x: Tensor) -> Tensor:
        self.x, weights = x, self.step_fn.flat()[0]
        y, self.new = vmap(self._step, in_dims=(None, 0, 0))(weights, self.state, x)
        return y

    def push(self, state: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        w = self.step_fn.flat()[0]
        dw = w.new_zeros(self.batch, len(w)) if weights is None else weights

        def one(s: Tensor, x: Tensor, ds: Tensor, dw: Tensor) -> Any:
            return jvp(lambda w, s: self._step(w, s, x), (w, s), (dw, ds))[1]

        return vmap(one)(self.state, self.x, state, dw)

    def pull(self, by_output: Tensor | None, by_state: Tensor | None) -> tuple[Tensor, Tensor]:
        w = self.step_fn.flat()[0]

        def one(s: Tensor, x: Tensor, gy: Tensor, gs: Tensor) -> Any:
            return vjp(lambda w, s: self._step(w, s, x), w, s)[1]((gy, gs))  # pyrefly: ignore

        y, new = vmap(self._step, in_dims=(None, 0, 0))(w, self.state, self.x)
        gy = torch.zeros_like(y) if by_output is None else by_output
        return vmap(one)(self.state, self.x, gy, torch.zeros_like(new) if by_state is None else by_state)

    def start_push(self, weights: Tensor) -> Tensor:
        w = self.step_fn.flat()[0]
        return vmap(lambda dw: jvp(lambda w: self.step_fn.start(w, 1)[0], (w,), (dw,))[1])(weights)

    def start_pull(self, state: Tensor) -> Tensor:
        w = self.step_fn.flat()[0]
        return vmap(lambda g: vjp(lambda w: self.step_fn.start(w, 1)[0], w)[1](g)[0])(state)  # pyrefly: ignore

    def commit(self) -> None:
        self.state = self.new

    def to_parameters(self, flat: Tensor) -> list[Tensor]:
        weights = list(self.step_fn.recurrent.values())
        return [part.view(w.shape) for w, part in zip(weights, flat.split([w.numel() for w in weights]), strict=True)]

    def state_dict(self) -> dict[str, Any]:
        return {"state": self.state.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state["state"].clone()


def step_derivatives(step_fn: StepFunction, batch: int) -> CompiledDerivatives | FunctionalDerivatives:
    try:
        return CompiledDerivatives(step_fn, batch)
    except NotCompiled as reason:
        return FunctionalDerivatives(step_fn, batch, str(reason))
