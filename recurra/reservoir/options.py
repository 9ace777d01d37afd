"""Validation of the options of an echo state network."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError, UnknownNameError
from ..layer_arguments import device_of
from .number_checks import check_range, check_whole


@dataclass(frozen=True)
class OutputActivation:
    """y = g(V s), learned as V s = g⁻¹(d)."""

    apply: Callable[[np.ndarray], np.ndarray]
    invert: Callable[[np.ndarray], np.ndarray]
    low: float
    high: float


ACTIVATIONS = {
    "identity": OutputActivation(lambda a: a, lambda d: d, -np.inf, np.inf),
    "tanh": OutputActivation(np.tanh, np.arctanh, -1.0, 1.0),
    "logistic": OutputActivation(lambda a: 1 / (1 + np.exp(-a)), lambda d: np.log(d / (1 - d)), 0.0, 1.0),
}


def output_activation(name: str, targets: Sequence[np.ndarray] = ()) -> OutputActivation:
    if name not in ACTIVATIONS:
        raise UnknownNameError("output_activation", repr(name), ACTIVATIONS)
    chosen = ACTIVATIONS[name]
    for target in targets:
        if not (chosen.low < target.min() and target.max() < chosen.high):
            got = f"values from {target.min():g} to {target.max():g}"
            raise InputError("y", got, f"values strictly between {chosen.low:g} and {chosen.high:g}, as {name} gives")
    return chosen


def check(options: dict[str, Any]) -> None:
    """Check the range of every option."""
    check_range("spectral_radius", options["spectral_radius"], "a positive number", lambda v: v > 0)
    check_range("leak", options["leak"], "a rate in (0, 1]", lambda v: 0 < v <= 1)
    most = 1 / float(options["leak"])
    check_range(
        "decay", options["decay"], f"a number in [0, 1 / leak = {most:g}]", lambda v: 0 <= v <= most * (1 + 1e-12)
    )
    check_range("density", options["density"], "a share of connections in (0, 1]", lambda v: 0 < v <= 1)
    check_range("forgetting", options["forgetting"], "a factor in (0, 1]", lambda v: 0 < v <= 1)
    for name in ("feedback", "noise", "bias"):
        check_range(name, options[name], "a number of at least 0", lambda v: v >= 0)
    check_whole("washout", options["washout"], 0)
    for name in ("ensemble", "support", "chunk"):
        check_whole(name, options[name], 1)
    for units in depth(options["units"]):
        check_whole("units", units, 1)
    penalties(options["ridge"])
    if options["device"] is not None:
        device_of(options["device"])
    if isinstance(options["readout"], str) and options["readout"] not in ("ridge", "rls"):
        raise UnknownNameError("readout", repr(options["readout"]), ("ridge", "rls"))


def depth(units: int | Sequence[int]) -> list[int]:
    """The sizes of the reservoirs, lowest first."""
    sizes = list(np.atleast_1d(np.asarray(units, dtype=object)))
    if not sizes:
        raise InputError("units", units, "at least one reservoir")
    return sizes


def penalties(ridge: float | str | Sequence[float]) -> list[float]:
    """Candidate penalties: one, those given, or a logarithmic grid for "loo"."""
    from .readout import PENALTIES

    if isinstance(ridge, str) and ridge != "loo":
        raise InputError("ridge", repr(ridge), 'a number, several to choose from, or "loo"')
    found = list(PENALTIES) if isinstance(ridge, str) else [float(v) for v in np.atleast_1d(np.asarray(ridge, float))]
    if not found or not all(np.isfinite(v) and v >= 0 for v in found):
        raise InputError("ridge", ridge, "penalties of at least 0")
    return found
