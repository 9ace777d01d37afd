"""One update of torch's Adam, SGD or RMSprop as a compiled call, or as the rule of a compiled loop."""

from typing import Any

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
    hooked = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    same = {id(p) for p in group["params"]} == {id(p) for p in parameters}
    if len(optimizer.param_groups) > 1 or hooked or not same or not isinstance(group["lr"], float | int):
        return None
    if any(group.get(name) for name in ("weight_decay", "amsgrad", "nesterov", "dampening", "centered", "maximize")):
        return None
    options: dict[str, Any] = {"clip": clip or 0.0, "decay": 0.0, "second_decay": 0.0, "epsilon": 0.0}
    rate, moments = float(group["lr"]), dict[int, Moments]()
    factors = [(rate, 1.0)] * count
    if kind is torch.optim.Adam and not isinstance(group["betas"][0], Tensor):
        decay, second = group["betas"]
        done = _states(optimizer, parameters, "step", "exp_avg", "exp_avg_sq")
        if done is None:
            return None
        steps = range(done + 1, done + 1 + count)
        factors = [(rate / (1 - decay**t), 1 / (1 - second**t) ** 0.5) for t in steps]
        options |= {"kind": "adam", "decay": decay, "second_decay": second, "epsilon": group["eps"]}
        moments = {id(p): (optimizer.state[p]["exp_avg"], optimizer.state[p]["exp_avg_sq"]) for p in parameters}
    elif kind is torch.optim.SGD:
        if group["momentum"]:
            _states(optimizer, parameters, None, "momentum_buffer")
        options |= {"kind": "sgd", "decay": group["momentum"]}
        moments = {id(p): (optimizer.state[p].get("momentum_buffer"), None) for p in parameters}
    elif kind is torch.optim.RMSprop and not group["momentum"]:
        if _states(optimizer, parameters, "step", "square_avg") is None:
            return None
        options |= {"kind": "rmsprop", "second_decay": group["alpha"], "epsilon": group["eps"]}
        moments = {id(p): (None, optimizer.state[p]["square_avg"]) for p in parameters}
    else:
        return None
    for parameter in parameters:  # a model that became double keeps the moments that it had
        for moment in moments[id(parameter)]:
            if moment is not None and (moment.dtype != parameter.dtype or not moment.is_contiguous()):
                return None
    for parameter in parameters:
        if "step" in optimizer.state[parameter]:
            optimizer.state[parameter]["step"] += count
    optimizer._opt_called = True  # pyrefly: ignore  # for schedulers, which warn if no step was taken before theirs
    return UpdateRule(factors=torch.tensor(factors, dtype=torch.float64), moments=moments, **options)


def _states(optimizer: torch.optim.Optimizer, parameters: list[Tensor], counter: str | None, *names: str) -> int | None:
    """Make the state of an optimiser that has taken no step yet; the steps so far, None where parameters differ."""
    done = set()
    for parameter in parameters:
        state = optimizer.state[parameter]
        if any(state.get(name) is None for name in names):
            state |= {name: torch.zeros_like(parameter) for name in names}
            state |= {} if counter is None else {counter: torch.tensor(0.0)}
        done.add(0 if counter is None else int(state[counter]))
    return done.pop() if len(done) == 1 else None
