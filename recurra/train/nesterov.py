"""Nesterov momentum in the form of Bengio, Boulanger-Lewandowski & Pascanu 2013."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from recurra.argument_checks import is_real
from recurra.errors import InputError


class Nesterov(torch.optim.Optimizer):
    """Nesterov momentum with scheduled μ_t. The parameters hold Θ = θ + μ v, the point where the gradient is taken:

        v ← μ_{t-1} v - ε ∇f(Θ);   Θ ← Θ + μ_t μ_{t-1} v_{t-1} - (1 + μ_t) ε ∇f(Θ)

    **Arguments**

    - `params`, `lr`: as for any torch optimizer.
    - `momentum`: a number, or μ_t as a function of the step t = 0, 1, ….

    **Example**

    >>> layer = rc.RNN(2, 3)
    >>> optimizer = rc.train.Nesterov(layer.parameters(), lr=0.01, momentum=lambda t: 1 - 1 / (t + 2))
    """

    def __init__(
        self, params: Iterable[nn.Parameter], lr: float = 0.01, momentum: float | Callable[[int], float] = 0.9
    ):
        if not (is_real(lr) and lr > 0):
            raise InputError("lr", lr, "a positive number")
        if not callable(momentum) and not is_real(momentum):
            raise InputError("momentum", repr(momentum), "a number, or a function of the step")
        params = list(params) if isinstance(params, Iterable) and not isinstance(params, (str, bytes, Tensor)) else []
        if not params or not all(isinstance(each, (Tensor, dict, tuple)) for each in params):
            raise InputError("params", type(params).__name__, "parameters, or groups of them, as torch.optim takes")
        self.momentum = momentum if callable(momentum) else lambda step: momentum
        super().__init__(params, {"lr": lr, "step": 0})

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:  # pyrefly: ignore
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            before, now = self.momentum(group["step"]), self.momentum(group["step"] + 1)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group["lr"], before, now)
            group["step"] += 1
        return loss

    def _move(self, parameter: Tensor, gradient: Tensor, rate: float, before: float, now: float) -> None:
        v = self.state[parameter].setdefault("v", torch.zeros_like(parameter))
        parameter.add_(v, alpha=now * before).sub_(gradient, alpha=(1 + now) * rate)
        v.mul_(before).sub_(gradient, alpha=rate)
