"""KF-RTRL: an unbiased estimate of the influence as Kronecker products (Mujika, Meier & Steger 2018)."""

from typing import Any

import torch
from torch import Tensor, nn

from recurra.engine.forward_mode.step import UseNow, now
from recurra.errors import OptionError
from recurra.train.learner import Optimizer
from recurra.train.objective import Loss
from recurra.train.online.compiled_step import NotCompiled
from recurra.train.online.estimate_trackers import EstimateTracker
from recurra.train.online.learner import OnlineLearner, Tracker
from recurra.train.online.step_derivatives import CompiledDerivatives
from recurra.train.step_function import StepFunction

TINY = 1e-30


class KFRTRL(OnlineLearner):
    """Kronecker-factored RTRL (Mujika, Meier & Steger, *Approximating Real-Time Recurrent Learning with Random
    Kronecker Factors*, NeurIPS 2018).

    The immediate influence of the weights of a product `W v` is a Kronecker product, v ⊗ δ. The influence is kept in
    that form for every row v that products of the cell read (x, h, r ∗ h, …):

        u ← p₁ c₁ u + p₂ c₂ v        A ← c₁ (∂s'/∂s) A / p₁ + c₂ δ / p₂

    with random signs c. The estimate is unbiased; its variance is far below that of UORO, at n times its memory.

    **Arguments**

    - `model`: as for `RTRL`, with a cell whose step is compiled.
    - `loss`, `optimizer`, `rate`, `update`, `carry`, `clip`: as for `RTRL`.
    - `seed`: of the random signs.

    **Returns** from `step(x, target, mask=None)` the mean loss before the update, from `gradients` one draw.

    **Example**

    >>> learner = rc.train.KFRTRL(rc.train.Predictor(rc.GRU(2, 4), 1), "mse", rate=0.01, update="step")
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
        update: str = "call",
        carry: bool = False,
        clip: float | None = None,
        seed: int = 0,
    ):
        super().__init__(model, loss, optimizer, rate, update, carry, clip, seed)
        self._renew(1)

    def make_tracker(self, batch: int) -> Tracker:
        return KroneckerTracker(self.step_fn, batch, self.generator)


class KroneckerTracker(EstimateTracker):
    carried = ("operand_part", "factor_part")
    kind = "kronecker"

    def __init__(self, step_fn: StepFunction, batch: int, generator: torch.Generator):
        super().__init__(step_fn, batch, generator)
        assert isinstance(self.derivatives, CompiledDerivatives)
        self.step = self.derivatives.step
        groups: dict[tuple, list[UseNow]] = {}
        for use in self.step.uses:
            groups.setdefault(use.place, []).append(use)
        self.groups = list(groups.values())
        deep, widths = [g[0].block.deep for g in self.groups], [sum(u.block.units for u in g) for g in self.groups]
        n = self.derivatives.state_size
        self.operand_part, self.factor_part = self.zeros(batch, sum(deep)), self.zeros(batch, n * sum(widths))
        self.operands = self.operand_part.split(deep, 1)  # u
        self.factors = [  # A, (B, n, units of the group)
            part.unflatten(1, (n, -1)) for part in self.factor_part.split([n * w for w in widths], 1)
        ]
        if any(block.first for block in self.step.plan.blocks):
            raise OptionError("model", "a learned start", "a fixed start, or UORO")

    def make_derivatives(self) -> CompiledDerivatives:
        try:
            return CompiledDerivatives(self.step_fn, self.batch, by_any_backend=True)
        except NotCompiled as reason:
            got = f"a step that is not compiled ({reason})"
            raise OptionError("model", got, "UORO, or another cell") from reason

    def begin(self) -> None:
        self.operand_part.zero_(), self.factor_part.zero_()

    def parts(self) -> tuple[Tensor, Tensor]:
        return self.factor_part, self.operand_part

    def draw(self, steps: int) -> tuple[int, Tensor]:
        return steps, self.signs(steps, len(self.groups), 2, self.batch)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.derivatives.load_state_dict(state)
        for name in self.carried:
            getattr(self, name).copy_(state[name])

    def estimate(self, by_output: Tensor | None) -> Tensor | None:
        step, found = self.step, None
        n = self.derivatives.state_size
        if by_output is not None:
            found, by_state = step.pull(step.roots_of(by_output))
            for group, u, factor in zip(self.groups, self.operands, self.factors, strict=True):
                through = torch.einsum("bn,bnw->bw", by_state, factor)  # (B, units of the group)
                parts = through.split([use.block.units for use in group], 1)
                for use, part in zip(group, parts, strict=True):
                    step.layout(use.block, found).add_(part[:, :, None] * u[:, None, :])
        jacobian = step.jacobian[:, :n]
        for i, group in enumerate(self.groups):
            forward = jacobian @ self.factors[i]
            delta = torch.cat([self._delta(use, n) for use in group], 2)
            v = now(group[0].operand)
            signs = self.signs(2, self.batch, 1)
            keep = ((_norm(forward) + TINY) / (_norm(self.operands[i]) + TINY)).sqrt()
            add = ((_norm(delta) + TINY) / (_norm(v) + TINY)).sqrt()
            self.operands[i].copy_(signs[0] * keep * self.operands[i] + signs[1] * add * v)
            kept, added = (signs[0] / keep)[..., None], (signs[1] / add)[..., None]
            self.factors[i].copy_(kept * forward + added * delta)
        return found

    def _delta(self, use: UseNow, n: int) -> Tensor:
        """∂s'/∂(the product), (B, n, units)."""
        full = self.zeros(self.batch, n, use.block.units)
        if use.matrix is not None:
            high = max(use.low, min(use.low + use.matrix.shape[1], n))  # rows of outputs come after those of states
            full[:, use.low : high] += use.matrix[:, : high - use.low]
        for root, row in use.rows:
            if root.carried:
                full[:, root.at : root.at + root.width].diagonal(dim1=1, dim2=2).add_(now(row))
        return full


def _norm(value: Tensor) -> Tensor:
    return torch.linalg.vector_norm(value.flatten(1), dim=1, keepdim=True)
