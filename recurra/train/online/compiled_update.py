"""One update of torch's Adam, SGD or RMSprop as a compiled call, or as the rule of a compiled loop."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from recurra.engine.cpu.compiler import BuildError
from recurra.engine.forward_mode.influence import REAL
from recurra.engine.forward_mode.online_loop import UpdateRule, update_once
from recurra.engine.forward_mode.words import library

Moments = tuple[Tensor | None, Tensor | None]


def update_compiled(optimizer: torch.optim.Optimizer, parameters: list[Tensor], clip: float | None) -> bool:
    """Clip the gradients of all parameters and apply the optimiser; False where torch has to.

    Operations of torch on a dozen small tensors take longer than hundreds of steps of a small network.
    """
    first = parameters[0]
    for tensor in (t for p in parameters for t in (p, p.grad)):
        if tensor is None or tensor.dtype != first.dtype or not tensor.is_contiguous() or not tensor.is_cpu:
            return False
    if first.dtype not in REAL:
        return False
    try:
        compiled = library(REAL[first.dtype])
    except BuildError:
        return False
    rule = rule_of(optimizer, parameters, clip, 1)
    if rule is None:
        return False
    update_once(compiled, rule, parameters)
    return True


def rule_of(
    optimizer: torch.optim.Optimizer, parameters: list[Tensor], clip: float | None, count: int
) -> UpdateRule | None:
    """The rule of torch's Adam, SGD or RMSprop in their plain form, for so many updates; None for another.

    Counts the updates in the optimiser's state, which is the one that a call of its `step` would find.
    """
    group, kind = optimizer.param_groups[0], type(optimizer)
    if not _is_plain(optimizer, parameters):
        return None
    options: dict[str, Any] = {"clip": clip or 0.0, "decay": 0.0, "second_decay": 0.0, "epsilon": 0.0}
    rate, states = float(group["lr"]), [optimizer.state[p] for p in parameters]
    factors = np.empty((count, 2))
    factors[:] = rate, 1.0
    if kind is torch.optim.Adam and not isinstance(group["betas"][0], Tensor):
        decay, second = group["betas"]
        names = "exp_avg", "exp_avg_sq"
        done = _steps(states, parameters, *names)
        if done is None:
            return None
        steps = np.arange(done + 1.0, done + 1.0 + count)
        factors[:, 0] /= 1 - np.power(decay, steps)
        factors[:, 1] /= np.sqrt(1 - np.power(second, steps))
        options |= {"kind": "adam", "decay": decay, "second_decay": second, "epsilon": group["eps"]}
    elif kind is torch.optim.SGD:
        names = "momentum_buffer", None
        if group["momentum"]:
            _start(states, parameters, "momentum_buffer")
        options |= {"kind": "sgd", "decay": group["momentum"]}
    elif kind is torch.optim.RMSprop and not group["momentum"]:
        names = None, "square_avg"
        if _steps(states, parameters, "square_avg") is None:
            return None
        options |= {"kind": "rmsprop", "second_decay": group["alpha"], "epsilon": group["eps"]}
    else:
        return None
    moments: dict[int, Moments] = {}
    for parameter, state in zip(parameters, states, strict=True):
        first, second_moment = moments[id(parameter)] = state.get(names[0]), state.get(names[1])
        for moment in (first, second_moment):  # a model that became double keeps its moments
            if moment is not None and (moment.dtype != parameter.dtype or not moment.is_contiguous()):
                return None
    if "step" in states[0]:
        torch._foreach_add_([state["step"] for state in states], count)
    optimizer._opt_called = True  # pyrefly: ignore  # for schedulers, which warn if no step was taken before theirs
    return UpdateRule(factors=torch.from_numpy(factors), moments=moments, **options)


def _is_plain(optimizer: torch.optim.Optimizer, parameters: list[Tensor]) -> bool:
    group = optimizer.param_groups[0]
    hooked = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    if len(optimizer.param_groups) > 1 or hooked or not isinstance(group["lr"], float | int):
        return False
    if {id(p) for p in group["params"]} != {id(p) for p in parameters}:
        return False
    return not any(map(group.get, ("weight_decay", "amsgrad", "nesterov", "dampening", "centered", "maximize")))


def _start(states: list[dict[str, Any]], parameters: list[Tensor], *names: str) -> None:
    """Make the moments of an optimiser that has taken no step yet."""
    for state, parameter in zip(states, parameters, strict=True):
        for name in names:
            if state.get(name) is None:
                state[name] = torch.zeros_like(parameter)


def _steps(states: list[dict[str, Any]], parameters: list[Tensor], *names: str) -> int | None:
    """The steps so far, whose state is made if there are none; None where parameters differ."""
    _start(states, parameters, *names)
    for state in states:
        if "step" not in state:
            state["step"] = torch.tensor(0.0)
    done = {state["step"].item() for state in states}
    return int(done.pop()) if len(done) == 1 else None
