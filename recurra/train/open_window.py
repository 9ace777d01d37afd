"""The steps of a carried stream that its windows still need, so that windows do not end where calls end."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from recurra.errors import ShapeError
from recurra.train.learner import StepTargets
from recurra.train.randomness import preserve_rng


@dataclass
class OpenWindow:
    """Steps from the oldest state that a later window starts from; `learned` of them lie in windows that are closed."""

    x: Tensor | None = None  # (T, B, D)
    targets: StepTargets | None = None
    states: dict[int, Any] = field(default_factory=lambda: {0: None})  # before a step
    learned: int = 0

    def __len__(self) -> int:
        return 0 if self.x is None else len(self.x)

    def extended(self, x: Tensor, targets: StepTargets) -> tuple[Tensor, StepTargets]:
        """The kept steps and those of a call."""
        if self.x is None or self.targets is None:
            return x, targets
        for name, kept, new in (("x", self.x, x), ("target", self.targets.target, targets.target)):
            if kept.shape[1:] != new.shape[1:]:
                got, expected = f"steps of shape {tuple(new.shape[1:])}", f"{tuple(kept.shape[1:])}, as the stream had"
                raise ShapeError(name, got, expected)
        target = torch.cat([self.targets.target, targets.target.to(self.targets.target.dtype)])
        return torch.cat([self.x, x]), StepTargets(target, torch.cat([self.targets.counts, targets.counts]))

    def state_dict(self) -> dict[str, Any]:
        target, counts = (None, None) if self.targets is None else (self.targets.target, self.targets.counts)
        states = [list(self.states), list(self.states.values())]
        return {"x": self.x, "target": target, "counts": counts, "states": states, "learned": self.learned}

    @classmethod
    def of(cls, state: dict[str, Any]) -> "OpenWindow":
        """From what `state_dict` gave."""
        targets = None if state["target"] is None else StepTargets(state["target"], state["counts"])
        return cls(state["x"], targets, dict(zip(*state["states"], strict=True)), state["learned"])


def kept_from(at: int, learned: int, x: Tensor, targets: StepTargets, states: dict[int, Any]) -> OpenWindow:
    """What is kept of steps that are `learned`, from step `at` on, before which a state is known."""
    own = StepTargets(targets.target[at:].clone(), targets.counts[at:].clone())
    return OpenWindow(x[at:].detach().clone(), own, {t - at: s for t, s in states.items() if t >= at}, learned - at)


@contextmanager
def unnoticed(model: nn.Module) -> Iterator[None]:
    """Random numbers that a pass draws and buffers that it changes are restored: the pass is repeated later."""
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    with preserve_rng(), torch.no_grad():
        yield
        for buffer, before in buffers:
            buffer.copy_(before)
