"""What the transcriptions share: the survey's functions of a vector.

They are written so that complex numbers pass: an imaginary part of 1e-30 carries a derivative, exact to rounding.
"""

from collections.abc import Callable

import numpy as np

Array = np.ndarray
Weights = dict[str, Array]
Result = tuple[list[Array], tuple[Array, ...]]


def sig(a: Array) -> Array:
    return 1 / (1 + np.exp(-a))


def relu(a: Array) -> Array:
    return np.where(a.real > 0, a, 0.0)


def clip(a: Array, bound: float) -> Array:
    return np.where(np.abs(a.real) <= bound, a, np.sign(a.real) * bound)


def softplus(a: Array) -> Array:
    return np.log(1 + np.exp(a))


FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "relu": relu,
    "sigmoid": sig,
    "identity": lambda a: a,
    "softsign": lambda a: a / (1 + np.where(a.real > 0, a, -a)),
}


def function(nonlinearity: object) -> Callable[[Array], Array]:
    """The NumPy function behind an option that is a name or a function with a name."""
    return FUNCTIONS[getattr(nonlinearity, "__name__", str(nonlinearity))]


def net(w: Weights, gate: str, x: Array, h: Array) -> Array:
    """The pre-activation of a gate: W h + U x + b."""
    return w[f"{gate}.W"] @ h + w[f"{gate}.U"] @ x + w[f"{gate}.b"]
