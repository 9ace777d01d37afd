"""Readouts that are computed from states and targets, for all networks of a population at once.

`LeastSquares` is Evolino's pseudo-inverse; `SupportVectors` the readout of Evoke, or with the kernel "linear" the
quadratic programme that Evolino's authors name beside it.
"""

from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurra.argument_checks import positive_int, positive_number
from recurra.errors import InputError, UnknownNameError
from recurra.layers import Recurrent
from recurra.readout import Readout
from recurra.train.support_vectors import support_vector_regression


class Fitted(Protocol):
    """The readouts of N networks: states (N, S, H) → (N, S, q)."""

    def __call__(self, states: Tensor) -> Tensor: ...

    def copy_to(self, head: nn.Module, network: int) -> None: ...


class ComputedReadout(Protocol):
    """How readouts are computed, and what module holds one."""

    def check_head(self, head: nn.Module) -> None: ...

    def fit(self, states: Tensor, target: Tensor) -> Fitted: ...

    def of(self, head: nn.Module) -> Fitted: ...


class AffineReadouts(NamedTuple):
    """V φ + b for N networks: weights (N, q, H + 1), the last column b."""

    weights: Tensor

    def __call__(self, states: Tensor) -> Tensor:
        return states @ self.weights[..., :-1].mT + self.weights[:, None, :, -1]

    @torch.no_grad()
    def copy_to(self, head: Any, network: int) -> None:
        head.V.copy_(self.weights[network, :, :-1])
        if head.b is not None:
            head.b.copy_(self.weights[network, :, -1])

    @classmethod
    def of(cls, head: Any) -> "AffineReadouts":
        bias = head.V.new_zeros(len(head.V)) if head.b is None else head.b
        return cls(torch.cat([head.V, bias[:, None]], 1).detach()[None])


class LeastSquares:
    """D Φ⁺, the readout with the smallest squared error; `ridge` adds its multiple of the squared weights.

    **Example**

        >>> states = torch.randn(1, 50, 3, dtype=torch.float64)  # (networks, steps, units)
        >>> readout = rc.train.LeastSquares().fit(states, 2 * states[0, :, :1] + 1)
        >>> [round(weight, 6) + 0.0 for weight in readout.weights.flatten().tolist()]  # the last one is the bias
        [2.0, 0.0, 0.0, 1.0]
    """

    def __init__(self, ridge: float = 0.0):
        self.ridge = ridge

    def check_head(self, head: nn.Module) -> None:
        """Raise an `InputError` if the head is not linear."""
        _needs_linear(head)

    def fit(self, states: Tensor, target: Tensor) -> AffineReadouts:
        """States (N, S, H), targets (S, q)."""
        phi = F.pad(states, (0, 1), value=1.0)
        U, singular, Vh = torch.linalg.svd(phi, full_matrices=False)  # normal equations would square the condition
        tiny = singular[..., :1] * max(phi.shape[-2:]) * torch.finfo(phi.dtype).eps
        inverse = torch.where(singular > tiny, singular / (singular.square() + self.ridge), 0.0)
        return AffineReadouts((Vh.mT @ (inverse[..., None] * (U.mT @ target))).mT)

    of = staticmethod(AffineReadouts.of)


class KernelReadout(nn.Module):
    """y = Σ_i β_i exp(-‖h - φ_i‖² / w) + b: a head of support vectors φ_i, which `SupportVectors` computes.

    **Arguments**

    - `source`: the layer whose outputs are read, or their size H.
    - `outputs`: the size of y.

    **Returns**, when called with h (…, H), y (…, outputs); zeros before it is computed.

    **Example**

        >>> head = rc.train.KernelReadout(4, 2)
        >>> head(torch.randn(5, 3, 4)).shape
        torch.Size([5, 3, 2])
    """

    support: Tensor
    coefficients: Tensor
    bias: Tensor
    width: Tensor

    def __init__(self, source: Recurrent | int, outputs: int):
        super().__init__()
        size = source.output_size if isinstance(source, Recurrent) else positive_int("source", source)
        self.register_buffer("support", torch.zeros(0, size))
        self.register_buffer("coefficients", torch.zeros(positive_int("outputs", outputs), 0))
        self.register_buffer("bias", torch.zeros(outputs))
        self.register_buffer("width", torch.ones(()))

    def forward(self, h: Tensor) -> Tensor:
        """(…, H) → (…, q)."""
        flat = h.reshape(1, -1, h.shape[-1])
        return KernelReadouts.of(self)(flat).reshape(*h.shape[:-1], -1)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:  # pyrefly: ignore
        for name in ("support", "coefficients"):  # as many support vectors as were found
            if prefix + name in state_dict:
                found = state_dict[prefix + name]
                setattr(self, name, getattr(self, name).new_empty(found.shape))
        super()._load_from_state_dict(state_dict, prefix, *rest)


class KernelReadouts(NamedTuple):
    """Radial functions around all states of N networks: support (N, S, H), coefficients (N, q, S), bias, width (N,)."""

    support: Tensor
    coefficients: Tensor
    bias: Tensor
    width: Tensor

    def __call__(self, states: Tensor) -> Tensor:
        near = radial(states, self.support, self.width)  # (N, S', S)
        return near @ self.coefficients.mT + self.bias[:, None]

    @torch.no_grad()
    def copy_to(self, head: Any, network: int) -> None:
        used = (self.coefficients[network] != 0).any(0)
        head.support = self.support[network, used].to(head.bias)
        head.coefficients = self.coefficients[network][:, used].to(head.bias)
        head.bias.copy_(self.bias[network])
        head.width.copy_(self.width[network])

    @classmethod
    def of(cls, head: Any) -> "KernelReadouts":
        return cls(head.support[None], head.coefficients[None], head.bias[None], head.width[None])


class SupportVectors:
    """ε-insensitive support-vector regression from states to targets, a quadratic programme for each output.

    **Arguments**

    - `C`: the largest coefficient of a support vector; the larger, the less errors are tolerated.
    - `epsilon`: errors up to it cost nothing.
    - `kernel`: "rbf", exp(-‖φ - φ'‖² / w), for a `KernelReadout`; "linear", φ·φ' / w, for a linear head. In both w is
      the number of states times their variance, which scikit-learn calls gamma="scale".

    **Example**

    >>> rc.train.SupportVectors(C=10.0, epsilon=0.01).kernel
    'rbf'
    """

    def __init__(self, C: float = 100.0, epsilon: float = 1e-3, kernel: str = "rbf"):
        self.C, self.epsilon = positive_number("C", C), positive_number("epsilon", epsilon)
        if kernel not in ("rbf", "linear"):
            raise UnknownNameError("kernel", kernel, ("rbf", "linear"))
        self.kernel = kernel

    def check_head(self, head: nn.Module) -> None:
        """Raise an `InputError` if the head does not fit the kernel."""
        if self.kernel == "linear":
            _needs_linear(head)
        elif not isinstance(head, KernelReadout):
            expected = "rc.train.Predictor(layer, rc.train.KernelReadout(layer, outputs))"
            raise InputError("model", f"a head of type {type(head).__name__}", expected)

    def fit(self, states: Tensor, target: Tensor) -> Fitted:
        """States (N, S, H), targets (S, q)."""
        width = states.shape[-1] * states.var(dim=(1, 2), correction=0).clamp_min(torch.finfo(states.dtype).tiny)
        linear = self.kernel == "linear"
        gram = states @ states.mT / width[:, None, None] if linear else radial(states, states, width)
        found = [support_vector_regression(gram, y, self.C, self.epsilon) for y in target.unbind(-1)]
        beta, bias = torch.stack([f.beta for f in found], 1), torch.stack([f.bias for f in found], 1)
        if not linear:
            return KernelReadouts(states, beta, bias, width)
        return AffineReadouts(torch.cat([beta @ states / width[:, None, None], bias[..., None]], -1))

    def of(self, head: nn.Module) -> Fitted:
        """The readout that a head holds."""
        return AffineReadouts.of(head) if self.kernel == "linear" else KernelReadouts.of(head)


def radial(states: Tensor, support: Tensor, width: Tensor) -> Tensor:
    """exp(-‖φ - φ'‖² / w): (N, S', H), (N, S, H), w (N,) → (N, S', S)."""
    exact = "donot_use_mm_for_euclid_dist"  # the product form loses half of the digits between near states
    return torch.exp(-torch.cdist(states, support, compute_mode=exact).square() / width[:, None, None])


def _needs_linear(head: nn.Module) -> None:
    if not isinstance(head, Readout) or head.softmax:
        raise InputError("model", type(head).__name__, "rc.train.Predictor(layer, outputs), with a linear head")
