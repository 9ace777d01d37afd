"""Backpropagation through time, whole or truncated, with the tricks of Bengio et al. 2013."""

from typing import Any

import torch
from torch import Tensor, nn

from recurra.cell import positive_int
from recurra.errors import InputError, OptionError
from recurra.layers import Recurrent
from recurra.train.learner import Learner, Optimizer, Wanted, positive, resolve_optimizer, wanted
from recurra.train.objective import Loss
from recurra.train.objective import _parameters as accepted_by
from recurra.train.tensor_trees import detach_tree


class BPTT(Learner):
    """Gradients through the unrolled network.

    `k2` is how many steps a gradient travels back at most, `k1` how many steps lie between two backward passes, each
    of the losses of those k1 steps: TBPTT(k1, k2) of Williams & Peng. Only the gradient is cut; the state runs on.
    Without them all of a call is one pass. `update` is when weights change: after each pass ("window") or once a call.
    `carry` starts a call where the previous one ended. `clip` bounds the joint norm of all gradients, `l1` is the
    weight of Σ|h| over the outputs of every recurrent layer, which with rectifiers makes activity sparse.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: str | Loss = "auto",
        optimizer: Optimizer = "adam",
        rate: float = 1e-3,
        k1: int | None = None,
        k2: int | None = None,
        update: str = "window",
        carry: bool = False,
        clip: float | None = None,
        l1: float = 0.0,
    ):
        super().__init__(model, loss)
        if update not in ("window", "call"):
            raise InputError("update", repr(update), "'window' or 'call'")
        if k1 is None and k2 is not None:
            k1 = k2
        self.k1 = None if k1 is None else positive_int("k1", k1)
        self.k2 = self.k1 if k2 is None else positive_int("k2", k2)
        if self.k1 is not None and self.k2 is not None and self.k2 < self.k1:
            raise InputError("k2", k2, f"at least k1 = {k1}: every loss is to reach its own step")
        self.optimizer = resolve_optimizer(optimizer, model.parameters(), positive("rate", rate))
        self.update, self.carry, self.l1 = update, carry, l1
        self.clip = None if clip is None else positive("clip", clip)
        self.state: Any = None

    def step(self, x: Tensor, target: Tensor, mask: Tensor | None = None) -> float:
        asked = wanted(x, target, mask)
        steps, count = len(x), max(asked.total, 1)
        k1, k2 = self.k1 or steps, self.k2 or steps
        known = {0: self.state if self.carry else None}  # states before a step, without a graph
        total = 0.0
        self.optimizer.zero_grad(set_to_none=True)
        for new in range(0, steps, k1):  # the losses of steps new..end have not been learned from yet
            end, begin = min(new + k1, steps), max(new + k1 - k2, 0)
            loss, known[end] = self._window(x, asked, known, begin, new, end)
            total += loss / count
            if self.update == "window":
                self._apply()
            oldest = max(t for t in known if t <= max(end + k1 - k2, 0))
            known = {t: state for t, state in known.items() if t >= oldest}
        if self.update == "call":
            self._apply()
        self.state = known[steps] if self.carry else None
        self.steps += 1
        return total

    def _window(
        self, x: Tensor, asked: Wanted, known: dict[int, Any], begin: int, new: int, end: int
    ) -> tuple[float, Any]:
        """Backward through steps begin..end from the losses of new..end: the loss, and the state after."""
        nearest = max(t for t in known if t <= begin)
        state = known[nearest]
        if nearest < begin:
            with torch.no_grad():
                state = self._run(x[nearest:begin], asked, state)[1]
        if begin < new:
            state = self._run(x[begin:new], asked, state)[1]
        hidden: list[Tensor] = []
        hooks = self._watch(hidden) if self.l1 else []
        output, after = self._run(x[new:end], asked, state)
        for hook in hooks:
            hook.remove()
        if after is None and (end - new < len(x) or self.carry):
            raise OptionError("model", "a model without a state", "(output, state), to be cut into windows or carried")
        loss = self._loss(output, asked, new)
        penalty = sum((h.abs().sum() for h in hidden), loss.new_zeros(()))
        ((loss + self.l1 * penalty) / max(asked.total, 1)).backward()
        return float(loss.detach()), detach_tree(after)

    def _loss(self, output: Tensor, asked: Wanted, start: int) -> Tensor:
        if output.shape[:2] != asked.counts[start:][: len(output)].shape:  # the model gives one answer a sequence
            ends = asked.counts.any(0)
            return self.loss(output[ends], asked.target[-1][ends]).mean() * int(ends.sum())
        return asked.loss_sum(self.loss, output, start)

    def _run(self, x: Tensor, asked: Wanted, state: Any) -> tuple[Tensor, Any]:
        accepted = accepted_by(self.model)
        named = {"state": state, "hx": state, "lengths": asked.lengths if len(x) == len(asked.counts) else None}
        given = {name: value for name, value in named.items() if name in accepted and value is not None}
        result = self.model(x, **given)
        return (result[0], result[1]) if isinstance(result, tuple) else (result, None)

    def _watch(self, hidden: list[Tensor]) -> list[Any]:
        layers = [m for m in self.model.modules() if isinstance(m, Recurrent)]
        return [m.register_forward_hook(lambda _m, _i, result: hidden.append(result[0])) for m in layers]

    def _apply(self) -> None:
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def extra_state(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), "state": self.state}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.state = state["state"]


def leaks(hidden_size: int, low: float = 0.02, high: float = 0.2, generator: torch.Generator | None = None) -> Tensor:
    """Time constants for `rc.LeakyRNN(…, tau=leaks(H))`: each unit keeps a fixed random share α of its past.

    h = α h + (1 - α) F(h, x), so τ = 1 / (1 - α). The range is that of the 2013 paper as later work reports it.
    """
    if not 0 <= low <= high < 1:
        raise InputError("low, high", (low, high), "0 ≤ low ≤ high < 1")
    keep = low + (high - low) * torch.rand(hidden_size, generator=generator, dtype=torch.float64)
    return 1 / (1 - keep)
