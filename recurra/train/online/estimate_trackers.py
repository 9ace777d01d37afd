"""Base of the trackers that carry an estimate of the influence beside the state, with random numbers of their own."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from recurra.engine.forward_mode.estimate_loop import EstimateLoop
from recurra.train.learner import StepTargets
from recurra.train.online.compiled_loop import estimate_loop, targets_of, updates_in
from recurra.train.online.compiled_step import Head
from recurra.train.online.learner import OnlineLearner, Tracker
from recurra.train.online.step_derivatives import CompiledDerivatives, FunctionalDerivatives, step_derivatives
from recurra.train.step_function import StepFunction


class EstimateTracker(Tracker):
    """Runs the step with its derivatives. A subclass carries tensors `carried` and defines `begin` and `estimate`."""

    carried: tuple[str, ...] = ()
    kind = ""  # of the compiled loop over many steps; empty without one

    def make_derivatives(self) -> CompiledDerivatives | FunctionalDerivatives:
        return step_derivatives(self.step_fn, self.batch)

    def __init__(self, step_fn: StepFunction, batch: int, generator: torch.Generator):
        super().__init__(step_fn, batch)
        self.derivatives, self.head = self.make_derivatives(), Head(step_fn)
        self.why = self.derivatives.why
        self.generator = generator  # the learner's, so that calls of other sizes do not repeat its numbers
        self.loop: EstimateLoop | None = None  # made by the first call
        self.knows_loop = not self.kind or bool(self.why)

    @abstractmethod
    def begin(self) -> None:
        """Set what is carried to its value before the first step."""

    @abstractmethod
    def estimate(self, by_output: Tensor | None) -> Tensor | None:
        """The gradient by the recurrent weights, (B, P), of Σ by_output · outputs; advances what is carried."""

    def reset(self) -> None:
        self.derivatives.reset()
        self.begin()

    def output(self, x: Tensor) -> Tensor:
        return self.head(self.derivatives.forward(x))

    def peek(self, x: Tensor) -> Tensor:
        return self.output(x).detach()  # the state moves with `gradient` alone

    def gradient(self, loss: Tensor | None) -> list[Tensor] | None:
        found = self.gradients_of_sequences(loss)
        if found is None:
            return None
        return self.derivatives.to_parameters(found[0].sum(0)) + found[1]

    def gradients_of_sequences(self, loss: Tensor | None) -> tuple[Tensor, list[Tensor]] | None:
        """The estimate of each sequence, (B, P), and the gradients of the head."""
        if loss is None:
            self.estimate(None)
            self.derivatives.commit()
            return None
        by_output, by_head = self.head.gradients(loss)
        estimate = self.estimate(by_output)
        self.derivatives.commit()
        assert estimate is not None
        return estimate, by_head

    # ------------------------------------------------------------------------------------------ many steps at once

    def find_loop(self) -> EstimateLoop | None:
        if not self.knows_loop:
            assert isinstance(self.derivatives, CompiledDerivatives)
            plan, self.knows_loop = self.derivatives.step.plan, True
            self.loop = estimate_loop(plan, self.batch, self.step_fn, self.kind)
        return self.loop

    def call_updates(self, learner: OnlineLearner, x: Tensor, targets: StepTargets) -> float | None:
        loop = self.find_loop() if learner.update == "step" else None
        given = None if loop is None else updates_in(loop, learner, x, targets)
        if loop is None or given is None:
            return None
        return self._move(loop, lambda: loop.learn(*given))

    def call_gradient(
        self, learner: OnlineLearner, x: Tensor, targets: StepTargets
    ) -> tuple[float, list[Tensor]] | None:
        loop = self.find_loop()
        found = None if loop is None else targets_of(learner.loss, targets, loop.head.outputs, loop.run.dtype)
        if loop is None or found is None:
            return None
        rows, counts = x.detach().to(loop.run.dtype).contiguous(), targets.counts.contiguous()
        return self._move(loop, lambda: loop.gather(rows, found[0], counts, found[1]))

    def _move(self, loop: EstimateLoop, run: Callable[[], Any]) -> Any:
        """Run the loop from the state of the sequences, and leave them where it ends."""
        assert isinstance(self.derivatives, CompiledDerivatives)
        self.derivatives.to_parameters_of.refresh()
        loop.run.state.copy_(self.derivatives.state)
        loop.carry(*self.parts(), self.draw)
        result = run()
        self.derivatives.state.copy_(loop.run.state)
        return result

    def parts(self) -> tuple[Tensor, Tensor]:
        """What the loop carries, (B, n) and (B, P), in memory that it may write."""
        raise NotImplementedError

    def draw(self, steps: int) -> tuple[int, Tensor | None]:
        """How many of the next steps of a loop take the same random numbers; random signs for each, (steps, B, n)."""
        raise NotImplementedError

    def signs(self, *shape: int) -> Tensor:
        """Random signs, +1 or -1."""
        drawn = torch.randint(0, 2, shape, generator=self.generator, dtype=torch.int8)
        return drawn.to(self.step_fn.like.device, self.step_fn.like.dtype) * 2 - 1

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64).to(self.step_fn.like)

    def zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self.step_fn.like.dtype, device=self.step_fn.like.device)

    def state_dict(self) -> dict[str, Any]:
        own = {name: _copy(getattr(self, name)) for name in self.carried}
        return self.derivatives.state_dict() | own

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.derivatives.load_state_dict(state)
        for name in self.carried:
            setattr(self, name, _copy(state[name]))


def _copy(value: Any) -> Any:
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value.clone() if isinstance(value, Tensor) else value
