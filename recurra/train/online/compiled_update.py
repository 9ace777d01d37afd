"""One update of torch's Adam, SGD or RMSprop as a compiled call, or as the rule of a compiled loop."""

import ctypes
import math
from operator import is_
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from recurra.engine.cpu.compiler import BuildError
from recurra.engine.forward_mode.influence import REAL
from recurra.engine.forward_mode.online_loop import UpdateRule, update_once
from recurra.engine.forward_mode.words import library

Moments = list[tuple[int | None, int | None]]  # of each parameter: their addresses
Names = tuple[str | None, str | None]  # of the moments in the state of an optimiser
AHEAD = 256  # updates whose factors are computed at once
FAR = 60  # bits below one
NUMBER = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}


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
    adam, sgd = kind is torch.optim.Adam and not isinstance(group["betas"][0], Tensor), kind is torch.optim.SGD
    if not (adam or sgd or (kind is torch.optim.RMSprop and not group["momentum"])):
        return None
    names = (
        ("exp_avg", "exp_avg_sq")
        if adam
        else ("momentum_buffer" if group["momentum"] else None, None)
        if sgd
        else (None, "square_avg")
    )
    held = _held(optimizer, parameters, names, counts=not sgd)
    if held is None:
        return None
    if adam:
        decay, second = group["betas"]
        factors = held.factors(float(group["lr"]), decay, second, count)
        options |= {"kind": "adam", "decay": decay, "second_decay": second, "epsilon": group["eps"]}
    else:
        factors = np.empty((count, 2))
        factors[:] = float(group["lr"]), 1.0
        own = {"kind": "sgd", "decay": group["momentum"]}
        options |= own if sgd else {"kind": "rmsprop", "second_decay": group["alpha"], "epsilon": group["eps"]}
    held.count(count)
    optimizer._opt_called = True  # pyrefly: ignore  # for schedulers, which warn if no step was taken before theirs
    return UpdateRule(factors=factors, moments=held.moments, **options)


def _unbiased(decay: float, done: int, count: int) -> np.ndarray | float:
    """1 - decay^n of the updates n after so many."""
    if 0 < decay < 1 and done > FAR / -math.log2(decay):  # powers that no longer count, and are slow where they vanish
        return 1.0
    return 1 - np.power(decay, np.arange(done + 1.0, done + 1.0 + count))


class _Held:
    """Moments and counts of updates of some parameters: found once, and again when the optimiser holds other tensors.

    A dozen small tensors, each looked up, read and added to, would take longer than hundreds of steps.
    """

    def __init__(self, states: dict, parameters: list[Tensor], names: Names):
        self.keys, self.dtypes, self.names = list(map(id, parameters)), [p.dtype for p in parameters], names
        self.states = [states[p] for p in parameters]
        self.all_states = list(states.values())
        self.pairs = [(state, name, state[name]) for state in self.states for name in (*names, "step") if name in state]
        self.moments: Moments = []
        self.is_plain = True  # a model that became double keeps its moments
        for parameter, state in zip(parameters, self.states, strict=True):
            own = [state.get(name) for name in names]
            first, second = (None if moment is None else moment.data_ptr() for moment in own)
            self.moments.append((first, second))
            found = [moment for moment in own if moment is not None]
            self.is_plain &= all(m.dtype == parameter.dtype and m.is_contiguous() for m in found)
        self.steps = [tensor for _, name, tensor in self.pairs if name == "step"]
        self.numbers = [NUMBER[tensor.dtype].from_address(tensor.data_ptr()) for tensor in self.steps]
        self.tensors = [tensor for _, _, tensor in self.pairs]
        self.places = list(map(Tensor.data_ptr, self.tensors))
        self.versions: list[int] = []
        self.done = 0
        self.ahead, self.ahead_of, self.ahead_for = np.empty((0, 2)), 0, (0.0, 0.0, 0.0)

    def is_valid(self, states: dict, parameters: list[Tensor], names: Names) -> bool:
        if (
            names != self.names
            or list(map(id, parameters)) != self.keys
            or [p.dtype for p in parameters] != self.dtypes
        ):
            return False
        all_states = list(states.values())
        if len(all_states) != len(self.all_states) or not all(map(is_, all_states, self.all_states)):
            return False
        same = all(state.get(name) is tensor for state, name, tensor in self.pairs)
        return same and list(map(Tensor.data_ptr, self.tensors)) == self.places

    def is_usable(self) -> bool:
        """Whether moments are those of a compiled update, and all parameters have had as many."""
        versions = [step._version for step in self.steps]
        if versions != self.versions:
            done = {number.value for number in self.numbers}
            if len(done) > 1:
                return False
            self.versions, self.done = versions, int(next(iter(done), 0))
        return self.is_plain

    def factors(self, rate: float, decay: float, second: float, count: int) -> np.ndarray:
        """Of the next updates of Adam: of the step, and of the root of the second moment. (count, 2)"""
        key, at = (rate, decay, second), self.done - self.ahead_of
        if key != self.ahead_for or at < 0 or at + count > len(self.ahead):
            self.ahead_for, self.ahead_of, at = key, self.done, 0
            self.ahead = np.empty((max(count, AHEAD), 2))
            self.ahead[:, 0] = rate / _unbiased(decay, self.done, len(self.ahead))
            self.ahead[:, 1] = 1 / np.sqrt(_unbiased(second, self.done, len(self.ahead)))
        return self.ahead[at : at + count]

    def count(self, updates: int) -> None:
        self.done += updates
        for number in self.numbers:
            number.value = self.done


_known: WeakKeyDictionary[torch.optim.Optimizer, _Held] = WeakKeyDictionary()


def _held(optimizer: torch.optim.Optimizer, parameters: list[Tensor], names: Names, counts: bool) -> _Held | None:
    """The state of an optimiser, which is made if there is none; None where a compiled update cannot take it."""
    held = _known.get(optimizer)
    if held is None or not held.is_valid(optimizer.state, parameters, names):
        for parameter in parameters:
            state = optimizer.state[parameter]
            for name in names:
                if name is not None and state.get(name) is None:
                    state[name] = torch.zeros_like(parameter)
            if counts and "step" not in state:
                state["step"] = torch.tensor(0.0)
            if counts and (state["step"].dtype not in NUMBER or not state["step"].is_cpu):
                return None
        held = _known[optimizer] = _Held(optimizer.state, parameters, names)
    return held if held.is_usable() else None


def _is_plain(optimizer: torch.optim.Optimizer, parameters: list[Tensor]) -> bool:
    group = optimizer.param_groups[0]
    hooked = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    if len(optimizer.param_groups) > 1 or hooked or not isinstance(group["lr"], float | int):
        return False
    if {*map(id, group["params"])} != {*map(id, parameters)}:
        return False
    return not any(map(group.get, ("weight_decay", "amsgrad", "nesterov", "dampening", "centered", "maximize")))
