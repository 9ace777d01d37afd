"""Nonlinear vector autoregression, the "next generation" of reservoir computing (Gauthier et al. 2021).

The features of step t are a constant, x at a few delays, and all products of these; a ridge regression reads them. No
random matrix, few parameters.
"""

from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ..errors import InputError, OptionError, ShapeError
from .number_checks import check_range, check_whole
from .readout import Ridge
from .series import check_length, is_one, series


class NVAR(BaseEstimator):
    """Nonlinear vector autoregression as a scikit-learn estimator for series (Gauthier et al. 2021).

        s_t = [1; x_t; x_{t-s}; …; x_{t-(k-1)s}; all products of `order` of these],   y_t = V s_t

    - `fit(X, y)` learns y_t from x_1 … x_t.
    - `fit(X)` learns the change x_{t+1} - x_t; `generate` continues the series.

    **Arguments**

    - `delays`: k, how many values of the past are read. `stride`: s, the steps between them.
    - `order`: the degree of the products; 1 makes the model linear.
    - `ridge`: the penalty of the readout.

    **Fitted attributes**: `coef_` (features, q), `n_features_in_`.

    **Example**

    >>> wave = torch.sin(0.2 * torch.arange(401.0))[:, None].double().numpy()
    >>> model = rc.reservoir.NVAR(delays=2, order=1, ridge=1e-10).fit(wave[:400])
    >>> bool(abs(model.generate(1) - wave[400:]).max() < 1e-4)
    True
    """

    def __init__(self, delays: int = 2, stride: int = 1, order: int = 2, ridge: float = 1e-6):
        self.delays, self.stride, self.order, self.ridge = delays, stride, order, ridge

    @property
    def reach(self) -> int:
        """The steps before the first that has all its delays."""
        return (self.delays - 1) * self.stride

    def features(self, x: np.ndarray) -> np.ndarray:
        """(T, d) → (T - reach, features), from the first step that has all its delays."""
        steps = len(x) - self.reach
        taps = [x[self.reach - k * self.stride :][:steps] for k in range(self.delays)]
        linear = np.hstack(taps)
        products = [np.prod(linear[:, list(which)], axis=1) for which in self._products(linear.shape[1])]
        return np.column_stack([np.ones(steps), linear, *products])

    def _products(self, width: int) -> list[tuple[int, ...]]:
        return list(combinations_with_replacement(range(width), self.order)) if self.order > 1 else []

    def fit(self, X: Any, y: Any = None) -> "NVAR":
        """Train the readout; see the class for the tasks."""
        for name in ("delays", "stride", "order"):
            check_whole(name, getattr(self, name), 1)
        check_range("ridge", self.ridge, "a penalty of at least 0", lambda v: v >= 0)
        inputs = series("X", X)
        self.n_features_in_, self.changes_ = inputs[0].shape[1], y is None
        if self.changes_:
            targets = [np.diff(x, axis=0) for x in inputs]
            inputs_seen = [x[:-1] for x in inputs]
        else:
            targets, inputs_seen = series("y", y), inputs
            if [len(d) for d in targets] != [len(x) for x in inputs]:
                raise ShapeError(
                    "y", [len(d) for d in targets][:5], f"as many steps as X: {[len(x) for x in inputs][:5]}"
                )
        check_length("X", [len(x) for x in inputs_seen], self.reach)
        solver = Ridge(float(self.ridge))
        for x, d in zip(inputs_seen, targets, strict=True):
            solver.add(self.features(x), d[self.reach :])
        self.coef_ = solver.weights(float(self.ridge))
        self.last_ = inputs[-1][-self.reach - 1 :]
        return self

    def predict(self, X: Any) -> Any:
        """The outputs from step `reach` on, (T - reach, q) or a list of those; after `fit(X)`, the next values."""
        check_is_fitted(self, "coef_")
        found = [self._predict_one(x) for x in series("X", X, self.n_features_in_)]
        return found[0] if is_one(X) else found

    def _predict_one(self, x: np.ndarray) -> np.ndarray:
        if len(x) <= self.reach:
            raise InputError("X", f"{len(x)} steps", f"more than {self.reach}, which the delays reach back")
        answer = self.features(x) @ self.coef_
        return x[self.reach :] + answer if self.changes_ else answer

    def generate(self, steps: int, warmup: Any = None) -> np.ndarray:
        """(steps, d): the continuation of the training series, or of the series `warmup` (T, d)."""
        check_is_fitted(self, "coef_")
        if not self.changes_:
            raise OptionError("generate", "a model of y from X", "fit(X) alone, which learns the next value")
        check_whole("steps", steps, 0)
        past = self.last_ if warmup is None else series("warmup", warmup, self.n_features_in_)[0]
        if len(past) <= self.reach:
            raise InputError("warmup", f"{len(past)} steps", f"more than {self.reach}, which the delays reach back")
        past, found = past[-self.reach - 1 :], []
        for _ in range(steps):
            following = self._predict_one(past)[-1]
            found.append(following)
            past = np.vstack([past[1:], following])
        return np.array(found).reshape(steps, self.n_features_in_)

    def score(self, X: Any, y: Any = None) -> float:
        """R² over the steps that have all their delays, averaged over the columns."""
        expected = series("X", X) if y is None else series("y", y)
        found = self.predict(X)
        answers = [found] if is_one(X) else found
        pairs = [
            (a[:-1], d[self.reach + 1 :]) if y is None else (a, d[self.reach :])
            for a, d in zip(answers, expected, strict=True)
        ]
        answer, target = (np.concatenate([pair[k] for pair in pairs]) for k in (0, 1))
        missed, spread = ((target - answer) ** 2).sum(0), ((target - target.mean(0)) ** 2).sum(0)
        return float(np.mean(1 - missed / spread))
