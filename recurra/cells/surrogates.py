"""Spikes: a hard threshold whose derivative is a smooth surrogate, as one torch operation that all engines know.

`DERIVATIVES` is the one definition of the surrogates. Its formulas use operators alone, so torch evaluates them on
tensors and the compiled engines on nodes of a plan.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..errors import InputError, UnknownNameError

Value = Any  # a tensor, or a node of a plan
Derivative = Callable[[Value, Value, float, Callable[[Value], Value]], Value]


def _fast_sigmoid(g: Value, size: Value, slope: float, relu: Callable[[Value], Value]) -> Value:
    """g / (1 + slope·|v|)²: of v / (1 + slope·|v|)."""
    root = size * slope + 1.0
    return g / (root * root)


def _atan(g: Value, size: Value, slope: float, relu: Callable[[Value], Value]) -> Value:
    """g · slope/2 / (1 + (π/2·slope·v)²): of arctan(π/2·slope·v) / π."""
    root = size * (math.pi / 2 * slope)
    return g * (slope / 2) / (root * root + 1.0)


def _triangle(g: Value, size: Value, slope: float, relu: Callable[[Value], Value]) -> Value:
    """g · max(0, 1 - slope·|v|)."""
    return g * relu(1.0 - size * slope)


#: name → (cotangent, |v|, slope, relu) → cotangent of v
DERIVATIVES: dict[str, Derivative] = {"fast_sigmoid": _fast_sigmoid, "atan": _atan, "triangle": _triangle}
_SLOPES = {"fast_sigmoid": 25.0, "atan": 2.0, "triangle": 1.0}
_ALIASES = {"arctan": "atan"}


def spike(v: Tensor, surrogate: str = "fast_sigmoid", slope: float | None = None, scale: float = 1.0) -> Tensor:
    """1 where v > 0, else 0, with a surrogate as its derivative. Also known as a surrogate gradient.

    The spike function of spiking neurons: v is the membrane potential minus the threshold. Usable inside any step, and
    compiled there; the values are exactly 0 and 1.

    **Arguments**

    - `v`: a tensor of any shape.
    - `surrogate`: the derivative, where g is the one that comes from above.
        - `"fast_sigmoid"`: g / (1 + slope·|v|)², slope 25 (SuperSpike; Zenke & Ganguli 2018; as in snntorch).
        - `"atan"`, or `"arctan"`: g · slope/2 / (1 + (π/2·slope·v)²), slope 2 (Fang et al. 2021; as in snntorch and
          SpikingJelly).
        - `"triangle"`: g · max(0, 1 - slope·|v|), slope 1 (Bellec et al. 2018, with scale 0.3 and v relative to the
          threshold). The function `triangular` of snntorch is another one: its derivative has constant size.
    - `slope`: how narrow the surrogate is; None is the default of the surrogate.
    - `scale`: a factor of the derivative; the dampening factor of Bellec et al. is 0.3.

    **Returns** a tensor like v.

    **Example**

        >>> v = torch.tensor([-0.5, 0.0, 0.5], requires_grad=True)
        >>> s = rc.cells.spike(v, "triangle")
        >>> s.sum().backward()
        >>> s.tolist(), v.grad.tolist()
        ([0.0, 0.0, 1.0], [0.5, 1.0, 0.5])
    """
    name = _ALIASES.get(surrogate, surrogate)
    if name not in DERIVATIVES:
        raise UnknownNameError("surrogate", repr(surrogate), [*DERIVATIVES, *_ALIASES])
    slope = _SLOPES[name] if slope is None else _number("slope", slope)
    return checked_spike(v, name, slope, _number("scale", scale))


def checked_spike(v: Tensor, surrogate: str, slope: float, scale: float) -> Tensor:
    """The operation, or under a transform of torch.func, for which it has no rule, a function that has one."""
    if not torch.compiler.is_compiling() and _is_transformed():
        return _Spike.apply(v, surrogate, slope, scale)  # pyrefly: ignore
    return torch.ops.recurra.spike(v, surrogate, slope, scale)


def _number(argument: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise InputError(argument, value, "a positive number")
    return float(value)


def _is_transformed() -> bool:
    """Whether a differentiating or batching transform, or a level of forward-mode differentiation, is active."""
    top = torch._C._functorch.peek_interpreter_stack()
    transform = top is not None and top.key() != torch._C._functorch.TransformType.Functionalize
    return transform or forward_ad._current_level >= 0


def _derivative(g: Tensor, v: Tensor, surrogate: str, slope: float, scale: float) -> Tensor:
    return DERIVATIVES[surrogate](g * scale, v.abs(), slope, torch.relu)


# ---------------------------------------------------------------------------------------------------- the operation

torch.library.define("recurra::spike", "(Tensor v, str surrogate, float slope, float scale) -> Tensor")


def _forward(v: Tensor, surrogate: str, slope: float, scale: float) -> Tensor:
    return (v > 0).to(v.dtype)


torch.library.impl("recurra::spike", "CompositeExplicitAutograd", _forward)


@torch.library.register_fake("recurra::spike")
def _fake(v: Tensor, surrogate: str, slope: float, scale: float) -> Tensor:
    return torch.empty_like(v)


def _save(ctx: Any, inputs: tuple, output: Tensor) -> None:
    v, *ctx.arguments = inputs
    ctx.save_for_backward(v)
    ctx.save_for_forward(v)


def _backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None]:
    return _derivative(g, ctx.saved_tensors[0], *ctx.arguments), None, None, None


torch.library.register_autograd("recurra::spike", _backward, setup_context=_save)


class _Spike(torch.autograd.Function):
    """The same with a rule for forward mode, for calls under a transform."""

    generate_vmap_rule = True
    forward = staticmethod(_forward)  # pyrefly: ignore
    setup_context = staticmethod(_save)  # pyrefly: ignore
    backward = staticmethod(_backward)  # pyrefly: ignore

    @staticmethod
    def jvp(ctx: Any, v: Tensor, *_: object) -> Tensor:  # pyrefly: ignore
        return _derivative(v, ctx.saved_tensors[0], *ctx.arguments)
