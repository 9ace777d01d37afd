"""`EchoStateNetwork`, a scikit-learn estimator for series (survey section 3.4)."""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.validation import check_is_fitted

from ..cell import Cell
from ..dynamics.echo import verdict
from ..errors import InputError, OptionError, ShapeError
from . import options
from .matrices import Weights
from .member import Member
from .reservoir_warnings import EchoStateWarning
from .series import as_array, check_length, check_targets, delayed, is_one, series, warn_constant_inputs

ECHO_TEST_STEPS = 600  # steps of the input on which the echo-state property is tested


class EchoStateNetwork(BaseEstimator):
    """Echo state network: a fixed random reservoir and a trained readout, as a scikit-learn estimator for series.

        h_t = (1 - decay leak) h_{t-1} + leak tanh(W h_{t-1} + U x_t + F y_{t-1} + b + noise)
        y_t = g(V [h_t; x_t; 1])

    A series is (T, d); `X` and `y` are one series or a list of them. The arguments of `fit` choose the task:

    - `fit(X, y)` learns y_t from x_1 … x_t.
    - `fit(X)` learns the next value of X; `generate` continues it.
    - `fit(None, y)` learns to generate y from its own past, with `feedback` > 0.
    - `fit([X_1, …], [c_1, …])`, one label per series, classifies from the states at `support` evenly spaced times.

    **Arguments**

    - `units`: neurons; a list stacks reservoirs in depth.
    - `spectral_radius`, `density`: of the random matrix W. `leak`: leaking rate in (0, 1], the γ of Jaeger 2007;
      `decay`: its second constant a, with aγ ≤ 1.
    - `input_scaling`: of U, a number or one per column. `feedback`, `bias`, `noise`: scales of F, b and the noise.
    - `ridge`: the penalty of the readout, several to choose from, or "loo": the best by leave-one-out.
    - `washout`: first steps of a series that are not learned from.
    - `random_state`: seed. `ensemble`: networks whose outputs are averaged.
    - `output_activation`: g, "identity", "tanh" or "logistic".
    - `readout`: "ridge", "rls" (recursive least squares with `forgetting`, for `partial_fit`), or a scikit-learn
      estimator. `direct`, `intercept`: whether it reads x_t and a constant.
    - `cell`: any `rc.Cell` or its name instead of leaky neurons. `weights`: given matrices (`rc.reservoir.Weights`).
    - `chunk`: steps in memory at a time.
    - `device`: None runs a sparse loop on the CPU in double precision; a torch device, such as "cuda", runs the layer
      engine there in single precision with W as a dense matrix, for thousands of units, and solves the ridge there.

    **Fitted attributes**: `effective_spectral_radius_`, ρ(γW + (1 - aγ) I); `ridge_`, the chosen penalties; `members_`.

    **Example**

    >>> wave = torch.sin(0.2 * torch.arange(1001.0))[:, None].numpy()  # (T, 1)
    >>> network = rc.EchoStateNetwork(units=50, random_state=0).fit(wave[:1000])
    >>> network.generate(1).shape
    (1, 1)
    >>> bool(abs(network.generate(1) - wave[1000:]).max() < 1e-3)
    True
    """

    _parameter_constraints: ClassVar[dict] = {}

    def __init__(
        self,
        units: int | Sequence[int] = 300,
        spectral_radius: float = 0.9,
        leak: float = 1.0,
        density: float = 0.1,
        input_scaling: float | ArrayLike = 1.0,
        feedback: float = 0.0,
        ridge: float | str | Sequence[float] = 1e-8,
        washout: int = 100,
        random_state: int | None = None,
        *,
        decay: float = 1.0,
        bias: float = 0.0,
        noise: float = 0.0,
        output_activation: str = "identity",
        readout: Any = "ridge",
        forgetting: float = 1.0,
        direct: bool = True,
        intercept: bool = True,
        ensemble: int = 1,
        support: int = 3,
        cell: type[Cell] | str | None = None,
        weights: Weights | Sequence[Weights] | None = None,
        chunk: int = 4096,
        device: torch.device | str | None = None,
    ):
        self.units, self.spectral_radius, self.leak, self.density = units, spectral_radius, leak, density
        self.decay = decay
        self.input_scaling, self.feedback, self.ridge, self.washout = input_scaling, feedback, ridge, washout
        self.random_state, self.bias, self.noise, self.output_activation = random_state, bias, noise, output_activation
        self.readout, self.forgetting, self.direct, self.intercept = readout, forgetting, direct, intercept
        self.ensemble, self.support, self.cell, self.weights, self.chunk = ensemble, support, cell, weights, chunk
        self.device = device

    # ------------------------------------------------------------------------------------------ fit

    def fit(self, X: Any = None, y: Any = None) -> "EchoStateNetwork":
        """Train the readout; see the class for the tasks."""
        self._start(X, y)
        if self.mode_ == "sequence":
            inputs, expected = series("X", X), self._encode(y)
            for member in self.members_:
                S = member.at_support_times(inputs)
                member.fit(lambda S=S: [(S, expected)])
        else:
            inputs, targets = self._pairs(X, y)
            check_length("y" if X is None else "X", [len(x) for x in inputs], self.washout)
            if self.classes_ is None:
                check_targets("X" if y is None else "y", targets)
            self._check_echo(inputs[0], targets[0])
            for member in self.members_:
                member.fit(lambda m=member: self._rows(m, inputs, targets))
            self._last = targets[-1][-1:]
        self.ridge_ = [member.penalty for member in self.members_]
        return self

    def partial_fit(self, X: Any = None, y: Any = None) -> "EchoStateNetwork":
        """Continue training online from the end of the last call; needs readout="rls"."""
        if self.readout != "rls":
            raise OptionError("partial_fit", f"readout={self.readout!r}", 'readout="rls", which learns online')
        fresh = not hasattr(self, "members_")
        if fresh:
            self._start(X, y)
        if self.mode_ == "sequence":
            raise OptionError("partial_fit", "one label per series", "targets at every step")
        inputs, targets = self._pairs(X, y)
        for x, d in zip(inputs, targets, strict=True):
            for member in self.members_:
                for S, D in self._rows(member, [x], [d], member.state, None if fresh else self._last):
                    member.learn_online(S, D)
            fresh, self._last = False, d[-1:]
        return self

    def _start(self, X: Any, y: Any) -> None:
        """Check the options, determine the task, and draw the reservoirs."""
        given = self.get_params(deep=False)
        options.check(given)
        self.mode_, self.classes_ = self._mode(X, y), None
        if self.mode_ == "sequence":
            self._encode(y, learn=True)
            inputs, outputs = series("X", X)[0].shape[1], 1
        else:
            if not isinstance(self.readout, str) and is_classifier(self.readout):
                self.classes_ = np.unique(np.concatenate([np.ravel(one) for one in _each(y)]))
            x, d = self._pairs(X, y)
            inputs, outputs = x[0].shape[1], d[0].shape[1]
            options.output_activation(self.output_activation, d)
            if not self.feedback and inputs:
                warn_constant_inputs(x)
        try:
            scaling = np.asarray(self.input_scaling, dtype=np.float64)
        except (TypeError, ValueError):
            scaling = np.asarray(np.nan)
        if scaling.shape not in ((), (inputs,)) or not np.isfinite(scaling).all():
            raise InputError("input_scaling", self.input_scaling, f"one number, or one for each of {inputs} columns")
        self.n_features_in_, self.n_outputs_ = inputs, outputs
        seeds = np.random.SeedSequence(self.random_state).spawn(self.ensemble)
        self.members_ = [Member(given, inputs, outputs, seed) for seed in seeds]

    @property
    def effective_spectral_radius_(self) -> float | None:
        """The largest ρ(γW + (1 - aγ) I) of the first member's reservoirs; None for cells."""
        radii = [layer.effective_radius for layer in self.members_[0].reservoir.layers]
        return max((radius for radius in radii if radius is not None), default=None)

    def _mode(self, X: Any, y: Any) -> str:
        """The task: "feedback", "next", "sequence" or "transduction"."""
        if X is None:
            if y is None or not self.feedback:
                got = "nothing" if y is None else "no X, and feedback=0"
                raise InputError("X", got, "a series, or a y to generate through feedback > 0")
            return "feedback"
        if y is None:
            if self.feedback:
                raise OptionError("feedback", self.feedback, "fit(None, y) to learn y from its own past, or feedback=0")
            return "next"
        if not is_one(X) and np.ndim(y[0]) == 0:
            if len(X) != len(y):
                raise ShapeError("y", f"{len(y)} labels", f"one for each of {len(X)} series")
            if self.readout == "rls" or self.feedback:
                raise OptionError("readout", "rls or feedback with one label per series", "ridge or an estimator")
            return "sequence"
        return "transduction"

    def _pairs(self, X: Any, y: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Inputs (T_i, d) and targets (T_i, q) of every series."""
        if self.mode_ == "next":
            whole = series("X", X)
            check_length("X", [len(one) for one in whole], 1)
            return [one[:-1] for one in whole], [one[1:] for one in whole]
        if self.classes_ is not None:
            y = [np.searchsorted(self.classes_, np.ravel(one)) for one in _each(y)]
        targets = series("y", y)
        inputs = [np.zeros((len(d), 0)) for d in targets] if X is None else series("X", X)
        if [len(x) for x in inputs] != [len(d) for d in targets]:
            lengths = f"{[len(d) for d in targets][:5]} steps"
            raise ShapeError("y", lengths, f"as many as X: {[len(x) for x in inputs][:5]}")
        return inputs, targets

    def _rows(
        self,
        member: Member,
        inputs: Sequence[np.ndarray],
        targets: Sequence[np.ndarray],
        state: Any = None,
        before: np.ndarray | None = None,
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """One pass with teacher forcing: feature rows s and the targets of V s, chunk by chunk."""
        noise, invert = member.noise(), options.output_activation(self.output_activation).invert
        washout = 0 if state is not None else self.washout
        for x, d in zip(inputs, targets, strict=True):
            now = member.reservoir.initial(1) if state is None else state
            drive = np.hstack([x, delayed(d, before)]) if self.feedback else x
            for first in range(0, len(x), self.chunk):
                piece = slice(first, first + self.chunk)
                states, now = member.reservoir.run(drive[piece, None], now, noise)
                skip = max(0, washout - first)
                if skip < len(states):
                    yield member.features(states[skip:, 0], x[piece][skip:]), invert(d[piece][skip:])
            member.state = now

    def _check_echo(self, x: np.ndarray, d: np.ndarray) -> None:
        """Warn if two starts do not converge under the same input: the states then depend on the start."""
        reservoir = self.members_[0].reservoir
        drive = (np.hstack([x, delayed(d)]) if self.feedback else x)[:ECHO_TEST_STEPS]
        pair = np.repeat(drive[:, None], 2, axis=1)
        start = reservoir.initial(2, np.random.default_rng(0))
        states, _ = reservoir.run(pair, start)
        if not np.isfinite(states).all():
            raise InputError(
                "X", "an input on which the reservoir's states overflow", "smaller values, or other weights"
            )
        distances = torch.from_numpy(np.linalg.norm(states[:, 0] - states[:, 1], axis=1))
        if len(distances) < 10 or not float(distances[0]) > 0:
            return
        found = verdict(distances)
        if not found.holds:
            radius = self.effective_spectral_radius_
            text = (
                f"the reservoir loses the echo property on this input: after {len(distances)} steps "
                f"{float(found.distances[-1]):.2g} of the distance between two starts is left, changing by "
                f"{found.rate:+.2g} per step (logarithm)"
            )
            text += "" if radius is None else f"; effective spectral radius {radius:.3f}"
            warnings.warn(text, EchoStateWarning, stacklevel=3)

    # ------------------------------------------------------------------------------------------ prediction

    def predict(self, X: Any = None, teacher: Any = None) -> Any:
        """The outputs at every step, (T, q) or a list of those; or one label per series.

        With feedback the network is fed its own outputs, or the series `teacher` if one is given.
        """
        check_is_fitted(self, "members_")
        if self.mode_ == "sequence":
            return self._decode(self.decision_function(X))
        if self.mode_ == "feedback" and teacher is None:
            raise OptionError("predict", "a network without input", "a teacher=y to follow, or generate(steps)")
        if X is None:
            inputs = [np.zeros((len(d), 0)) for d in series("teacher", teacher, self.n_outputs_)]
        else:
            inputs = series("X", X, self.n_features_in_)
        given_warmups = series("teacher", teacher, self.n_outputs_) if teacher is not None else [None] * len(inputs)
        found = [self._predict_one(x, d) for x, d in zip(inputs, given_warmups, strict=True)]
        return found[0] if is_one(teacher if X is None else X) else found

    def _predict_one(self, x: np.ndarray, teacher: np.ndarray | None) -> np.ndarray:
        starts = [member.reservoir.initial(1) for member in self.members_]
        if self.feedback and teacher is None:
            return self._run_free(starts, np.zeros((1, self.n_outputs_)), x[:, None])[:, 0]
        drive = np.hstack([x, delayed(teacher)]) if self.feedback and teacher is not None else x
        votes = self.n_outputs_ if self.classes_ is None else len(self.classes_)
        answers = np.zeros((len(x), votes))
        for member, state in zip(self.members_, starts, strict=True):
            for first in range(0, len(x), self.chunk):
                piece = slice(first, first + self.chunk)
                states, state = member.reservoir.run(drive[piece, None], state)
                answers[piece] += self._answer(member, states[:, 0], x[piece]) / len(self.members_)
        if self.classes_ is not None:
            return self.classes_[answers.argmax(axis=1)]
        return answers

    def _answer(self, member: Member, states: np.ndarray, x: np.ndarray) -> np.ndarray:
        found = member.predict(member.features(states, x))
        if self.classes_ is not None:  # one vote per member
            return np.eye(len(self.classes_))[found[:, 0].astype(int)]
        return options.output_activation(self.output_activation).apply(found)

    def generate(self, steps: int, X: Any = None, warmup: Any = None, warmup_X: Any = None) -> np.ndarray:
        """Closed-loop generation: each output is fed back as the input or feedback of the next step.

        **Arguments**

        - `steps`: how many.
        - `X`: (steps, d), the future inputs of a network with inputs and feedback.
        - `warmup`: a series to start from instead of the end of the training series; several of one length give several
          continuations. `warmup_X`: their inputs, for a network with inputs and feedback.

        **Returns** (steps, q), or (n, steps, q) for several warmups.
        """
        check_is_fitted(self, "members_")
        if self.mode_ == "sequence" or not (self.mode_ == "next" or self.feedback):
            raise OptionError("generate", "a network without feedback of its outputs", "feedback > 0, or fit(X) alone")
        future = None
        if self.mode_ == "transduction":
            future = series("X", X, self.n_features_in_)[0][:, None]
            if len(future) != steps:
                raise ShapeError("X", f"{len(future)} steps", f"{steps}, as many as `steps`")
        if warmup is None:
            return self._run_free([m.state for m in self.members_], self._last, future, steps)[:, 0]
        given_warmups = series("warmup", warmup, self.n_outputs_)
        if len({len(one) for one in given_warmups}) > 1:
            raise ShapeError("warmup", f"lengths {sorted({len(one) for one in given_warmups})}", "series of one length")
        past = np.stack(given_warmups, axis=1)  # (T, B, q)
        states = self._warm(past, warmup_X)
        if future is not None:
            future = np.repeat(future, past.shape[1], axis=1)
        found = self._run_free(states, past[-1], future, steps).transpose(1, 0, 2)
        return found[0] if is_one(warmup) else found

    def _warm(self, past: np.ndarray, warmup_X: Any) -> list[Any]:
        """The states after teacher forcing with past outputs (T, B, q)."""
        drive = past[:-1]  # the last value is the input of the first generated step
        if self.mode_ != "next":
            drive = delayed(past)
        if self.mode_ == "transduction":
            inputs = np.stack(series("warmup_X", warmup_X, self.n_features_in_), axis=1)
            if inputs.shape[:2] != past.shape[:2]:
                raise ShapeError("warmup_X", f"{inputs.shape[:2]} steps and series", f"{past.shape[:2]}")
            drive = np.concatenate([inputs, drive], axis=-1)
        ends = []
        for member in self.members_:
            state = member.reservoir.initial(past.shape[1])
            for first in range(0, len(drive), 256):
                _, state = member.reservoir.run(drive[first : first + 256], state)
            ends.append(state)
        return ends

    def _run_free(
        self, states: list[Any], last: np.ndarray, future: np.ndarray | None, steps: int | None = None
    ) -> np.ndarray:
        """Closed loop from `last` (B, q): (steps, B, q). All members are fed the mean output."""
        states, found = list(states), []
        for t in range(len(future) if steps is None and future is not None else steps or 0):
            x = future[t] if future is not None else last if self.mode_ == "next" else last[:, :0]
            drive = np.hstack([x, last])[None] if self.feedback else x[None]
            mean = np.zeros_like(last)
            for k, member in enumerate(self.members_):
                h, states[k] = member.reservoir.run(drive, states[k])
                mean += self._answer(member, h[0], x) / len(self.members_)
            last = mean
            found.append(last)
        return np.stack(found) if found else np.zeros((0, *last.shape))

    # ------------------------------------------------------------------------------------------ one label per series

    def _encode(self, y: Any, learn: bool = False) -> np.ndarray:
        """One row per series: one-hot class, or the number itself."""
        labels = as_array(y)
        if learn:
            self.classes_ = None if labels.dtype.kind == "f" else np.unique(labels)
            if self.classes_ is not None and len(self.classes_) < 2:
                raise InputError("y", f"the single label {self.classes_[0]!r}", "at least two classes")
        if self.classes_ is None:
            return labels[:, None].astype(np.float64)
        numbers = np.searchsorted(self.classes_, labels)
        own = not isinstance(self.readout, str)
        return numbers[:, None] if own else np.eye(len(self.classes_))[numbers]

    def decision_function(self, X: Any) -> np.ndarray:
        """(n, classes): scores of the classes, averaged over the ensemble."""
        check_is_fitted(self, "members_")
        if self.mode_ != "sequence":
            raise OptionError("decision_function", f"a network for {self.mode_}", "one fitted to one label per series")
        inputs = series("X", X, self.n_features_in_)
        votes = [member.predict(member.at_support_times(inputs)) for member in self.members_]
        if self.classes_ is not None and not isinstance(self.readout, str):
            votes = [np.eye(len(self.classes_))[vote[:, 0].astype(int)] for vote in votes]
        return np.mean(votes, axis=0)

    def _decode(self, votes: np.ndarray) -> np.ndarray:
        return votes[:, 0] if self.classes_ is None else self.classes_[votes.argmax(axis=1)]

    def score(self, X: Any = None, y: Any = None) -> float:
        """Accuracy for labels, else R² over the steps after the washout; one step ahead with feedback."""
        check_is_fitted(self, "members_")
        if self.mode_ == "sequence":
            found = self.predict(X)
            return (
                _r2(self._encode(y), found[:, None]) if self.classes_ is None else float(np.mean(found == as_array(y)))
            )
        if self.classes_ is not None:
            answers = self.predict(X)
            answers = [answers] if is_one(X) else answers
            return float(np.mean(np.concatenate([np.ravel(d) for d in _each(y)]) == np.concatenate(answers)))
        inputs, targets = self._pairs(X, y)
        check_length("X", [len(x) for x in inputs], self.washout)
        pairs = [(self._predict_one(x, d), d) for x, d in zip(inputs, targets, strict=True)]
        answers, expected = (np.concatenate([pair[k][self.washout :] for pair in pairs]) for k in (0, 1))
        return _r2(expected, answers)


def _r2(expected: np.ndarray, answers: np.ndarray) -> float:
    """Coefficient of determination, averaged over the columns."""
    missed, spread = ((expected - answers) ** 2).sum(axis=0), ((expected - expected.mean(axis=0)) ** 2).sum(axis=0)
    return float(np.mean(1 - missed / spread))


def _each(y: Any) -> list[Any]:
    """Labels of every step, per series."""
    one = np.ndim(y[0]) == 0
    return [y] if one else list(y)
