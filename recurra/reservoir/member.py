"""One member of an ensemble: a stack of fixed reservoirs and its trained readout."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from .core import CellReservoir, EngineReservoir, LeakyReservoir, Reservoir, Stack
from .matrices import Weights, draw
from .options import depth, penalties
from .readout import RecursiveLeastSquares, Ridge
from .series import pad

Rows = Iterable[tuple[np.ndarray, np.ndarray]]


class Member:
    """A reservoir with its own seed; `fit` trains the readout from passes over feature rows."""

    def __init__(self, options: dict[str, Any], inputs: int, outputs: int, seed: np.random.SeedSequence):
        drawing, self.noise_seed = seed.spawn(2)
        self.options = options
        self.reservoir = Stack(_layers(options, inputs, outputs, drawing))
        self.state: Any = None  # after the last training series
        self.readout: Any = None
        self.penalty: float | None = None

    def noise(self) -> np.random.Generator:
        """The same noise for every pass over the same series."""
        return np.random.default_rng(self.noise_seed)

    def features(self, states: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        """s = [h; x; 1], (…, features)."""
        parts = [states]
        if self.options["direct"]:
            parts.append(inputs)
        if self.options["intercept"]:
            parts.append(np.ones((*states.shape[:-1], 1)))
        return np.concatenate(parts, axis=-1)

    def at_support_times(self, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """One row per series: [h; x] at evenly spaced times up to its end, concatenated (Jaeger et al. 2007)."""
        points, rows = self.options["support"], []
        for first in range(0, len(inputs), 256):
            padded, lengths = pad(inputs[first : first + 256])
            states, _ = self.reservoir.run(padded, self.reservoir.initial(padded.shape[1]), self.noise())
            times = np.ceil(np.outer(np.arange(1, points + 1), lengths) / points).astype(int) - 1  # (points, B)
            each = np.arange(len(lengths))
            seen = np.concatenate([states, padded], axis=-1) if self.options["direct"] else states
            rows.append(seen[times, each].transpose(1, 0, 2).reshape(len(lengths), -1))
        found = np.concatenate(rows)
        return np.hstack([found, np.ones((len(found), 1))]) if self.options["intercept"] else found

    # ------------------------------------------------------------------------------------------ learning

    def fit(self, rows: Callable[[], Rows]) -> None:
        """`rows()` is one pass over all feature rows and their targets."""
        kind = self.options["readout"]
        if kind == "rls":
            for S, D in rows():
                self.learn_online(S, D)
        elif kind == "ridge":
            self._fit_ridge(rows)
        else:
            collected = list(rows())
            S, D = (np.concatenate([part[k] for part in collected]) for k in (0, 1))
            self.readout = clone(kind).fit(S, D[:, 0] if D.shape[1] == 1 else D)

    def _fit_ridge(self, rows: Callable[[], Rows]) -> None:
        candidates = penalties(self.options["ridge"])
        solver = Ridge(min(candidates), self.options["device"] or "cpu")
        for S, D in rows():
            solver.add(S, D)
        self.penalty = candidates[0]
        if len(candidates) > 1:
            errors = solver.leave_one_out(candidates)
            for S, D in rows():
                errors.add(S, D)
            self.penalty = errors.best
        self.readout = solver.weights(self.penalty)

    def learn_online(self, S: np.ndarray, D: np.ndarray) -> None:
        if self.readout is None:
            self.penalty = penalties(self.options["ridge"])[0]
            forgetting = self.options["forgetting"]
            self.readout = RecursiveLeastSquares(S.shape[1], D.shape[1], self.penalty, forgetting)
        self.readout.add(S, D)

    def predict(self, S: np.ndarray) -> np.ndarray:
        """(n, features) → (n, q), before the output activation."""
        if isinstance(self.readout, RecursiveLeastSquares):
            return S @ self.readout.V
        if isinstance(self.readout, np.ndarray):
            return S @ self.readout
        found = np.asarray(self.readout.predict(S))
        return found[:, None] if found.ndim == 1 else found


def _layers(options: dict[str, Any], inputs: int, outputs: int, seed: np.random.SeedSequence) -> list[Reservoir]:
    """The reservoirs, lowest first; the lowest reads the input and the feedback."""
    sizes, given = depth(options["units"]), options["weights"]
    if given is not None:
        constants = options["leak"], options["noise"], options["decay"]
        return [_leaky(w, constants, options) for w in _given(given, inputs, outputs, options)]
    fed = outputs if options["feedback"] else 0
    layers: list[Reservoir] = []
    for size, one in zip(sizes, seed.spawn(len(sizes)), strict=True):
        width, back = (layers[-1].units, 0) if layers else (inputs, fed)
        random = np.random.default_rng(one)
        recipe = {"radius": options["spectral_radius"], "density": options["density"]}
        if options["cell"] is not None:
            scaling = np.broadcast_to(1.0 if layers else options["input_scaling"], (width,))
            scales = np.concatenate([scaling, np.full(back, options["feedback"])])
            recipe |= {"seed": int(random.integers(2**31)), "device": options["device"]}
            layers.append(CellReservoir(options["cell"], size, scales, **recipe))
            continue
        scaling = options["input_scaling"] if not layers else 1 / np.sqrt(width)  # of N states, each below one
        feedback = options["feedback"] if back else 0.0
        weights = draw(
            size, width, back, input_scaling=scaling, feedback=feedback, bias=options["bias"], random=random, **recipe
        )
        layers.append(_leaky(weights, (options["leak"], options["noise"], options["decay"]), options))
    return layers


def _leaky(weights: Weights, constants: tuple[float, float, float], options: dict[str, Any]) -> Reservoir:
    plain, device = LeakyReservoir(weights, *constants), options["device"]
    return plain if device is None else EngineReservoir(plain, device)


def _given(weights: Weights | Sequence[Weights], inputs: int, outputs: int, options: dict[str, Any]) -> list[Weights]:
    from ..errors import ShapeError

    stack = [weights] if isinstance(weights, Weights) else list(weights)
    fed = outputs if options["feedback"] else 0
    if stack[0].U.shape[1] != inputs or stack[0].F.shape[1] != fed:
        got = f"U with {stack[0].U.shape[1]} columns and F with {stack[0].F.shape[1]}"
        raise ShapeError("weights", got, f"{inputs}, the columns of X, and {fed} for feedback")
    return stack
