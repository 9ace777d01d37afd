"""Bad calls of every public callable: the argument that the error must name, and the call.

`BAD_CALLS` maps a readable name to `(argument, call)`. The call gets a folder for files. tests/test_bad_calls.py runs
them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import recurra as rc

NAN, INF = float("nan"), float("inf")
T, B, D, H = 5, 2, 3, 4


class BadCall(NamedTuple):
    argument: str
    call: Callable[[Path], Any]


BAD_CALLS: dict[str, BadCall] = {}


def bad(name: str, argument: str, call: Callable[..., Any]) -> None:
    assert name not in BAD_CALLS, name
    takes_folder = "folder" in call.__code__.co_varnames
    BAD_CALLS[name] = BadCall(argument, call if takes_folder else lambda folder: call())


def bad_values(what: str, argument: str, values: list[Any], call: Callable[[Any], Any]) -> None:
    """One bad call for each value of one argument."""
    for value in values:
        bad(f"{what}({argument}={_short(value)})", argument, lambda value=value: call(value))


def _short(value: Any) -> str:
    text = getattr(value, "__name__", repr(value)) if not isinstance(value, nn.Module) else repr(value)
    return " ".join(text.split())[:30]


def x(*shape: int, **options: Any) -> Tensor:
    return torch.zeros(*(shape or (T, B, D)), **options)


class Plain(rc.Cell):
    """A cell that works."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return torch.tanh(self.a(x, h))


def sequences(count: int = 8) -> list[Tensor]:
    return [torch.randn(4 + k % 3, 2, generator=torch.Generator().manual_seed(k)) for k in range(count)]


def tagging() -> Any:
    inputs = sequences()
    return rc.data.SequenceSet.from_arrays(inputs, [(v[:, 0] > 0).long() for v in inputs], "tagging")


def fit(**options: Any) -> Any:
    options = {"epochs": 1, "progress": False, **options}
    model = options.pop("model", None) or rc.train.Predictor(rc.GRU(2, 3), 2)
    return rc.train.fit(model, options.pop("train", None) or tagging(), **options)


def estimator(kind: str = "SequenceClassifier", **options: Any) -> Any:
    made = getattr(rc, kind)(**{"hidden_size": 3, "epochs": 1, "random_state": 0, **options})
    targets = ["a", "b"] * 4 if kind == "SequenceClassifier" else np.arange(8.0)
    return made.fit(sequences(), targets)


def forecaster(**options: Any) -> Any:
    series = {"unique_id": ["a"] * 60, "ds": list(range(60)), "y": list(np.sin(np.arange(60.0)))}
    return rc.Forecaster(**{"horizon": 2, "hidden_size": 3, "epochs": 1, "random_state": 0, **options}).fit(series)


def reservoir(**options: Any) -> Any:
    options = {"units": 10, "random_state": 0, **options}
    return rc.EchoStateNetwork(**options).fit(np.zeros((20, 1)) + 0.1, np.ones((20, 1)))


# ---------------------------------------------------------------------------------------------------- layers and cells

bad_values("LSTM", "input_size", [0, -1, 2.5, "3", None, True, [3]], lambda v: rc.LSTM(v, H))
bad_values("LSTM", "hidden_size", [0, -1, 2.5, "3", None, True, [], [4, 0]], lambda v: rc.LSTM(D, v))
bad_values("LSTM", "num_layers", [0, -1, 1.5, "2", True], lambda v: rc.LSTM(D, H, v))
bad_values("LSTM", "bias", ["no", 1, None, 0.0], lambda v: rc.LSTM(D, H, bias=v))
bad_values("LSTM", "batch_first", ["x", 1, None], lambda v: rc.LSTM(D, H, batch_first=v))
bad_values("LSTM", "dropout", [-0.1, 1.5, NAN, "0.5", None, True], lambda v: rc.LSTM(D, H, dropout=v))
bad_values("LSTM", "bidirectional", ["both", 1, None], lambda v: rc.LSTM(D, H, bidirectional=v))
bad_values("LSTM", "depth", ["deep", 2, None], lambda v: rc.LSTM(D, H, depth=v))
bad_values("LSTM", "initial", ["ones", 0], lambda v: rc.LSTM(D, H, initial=v))
bad_values("LSTM", "checkpoint", ["yes", 4], lambda v: rc.LSTM(D, H, checkpoint=v))
bad_values("LSTM", "modifiers", [0.5, "dropout", [0.5], rc.Zoneout], lambda v: rc.LSTM(D, H, modifiers=v))
bad_values("LSTM", "init", [3, "ones", [3]], lambda v: rc.LSTM(D, H, init=v))
bad_values("LSTM", "device", ["gpu", "cuda:99", 3.5, "cpu:x"], lambda v: rc.LSTM(D, H, device=v))
bad_values("LSTM", "dtype", ["float32", torch.int64, torch.bool, float, 32], lambda v: rc.LSTM(D, H, dtype=v))
bad_values("Recurrent", "cell", [None, 3, nn.LSTM, Plain(D, H)], lambda v: rc.Recurrent(v, D, H))
bad("Recurrent of the base class", "step", lambda: rc.Recurrent(rc.Cell, D, H))
bad_values("layer", "cell", ["", "lstn", None, 3], lambda v: rc.layer(v, D, H))
bad("LSTM with an option of none", "forget", lambda: rc.LSTM(D, H, forget=2))
bad("a sparse x", "x", lambda: rc.LSTM(D, H)(x().to_sparse()))
bad_values("LSTM()", "x", [None, "abc", [[1.0]], np.zeros((T, B, D))], lambda v: rc.LSTM(D, H)(v))
bad("x of no features", "x", lambda: rc.LSTM(D, H)(x(T, B, 0)))
bad_values("LSTM()", "state", ["abc", 3, [None], (x(1, B, H),)], lambda v: rc.LSTM(D, H)(x(), v))
bad_values("LSTM()", "lengths", [[0, 1], [9, 1], "ab", [1.5, 2.0], 3], lambda v: rc.LSTM(D, H)(x(), lengths=v))
bad_values("LSTM()", "resets", ["a", x(T), x(T, B, 1), [True]], lambda v: rc.LSTM(D, H)(x(), resets=v))
bad_values("LSTM.step", "x", [None, x(T, B, D), "a", x(D + 1)], lambda v: rc.LSTM(D, H).step(v))
bad("step of a sparse x", "x", lambda: rc.LSTM(D, H).step(x(B, D).to_sparse()))


class Stepless(rc.Cell):
    """A cell without equations."""


class WrongStep(rc.Cell):
    def step(self, x: Tensor) -> Tensor:
        return x


class ReturnsNothing(Plain):
    def step(self, x: Tensor, h: Tensor) -> Any:
        self.a(x, h)


class ReturnsTooMany(Plain):
    def step(self, x: Tensor, h: Tensor) -> Any:
        return h, h, h


class ReturnsAnotherWidth(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return h[:, :1]


class ReturnsNumber(Plain):
    def step(self, x: Tensor, h: Tensor) -> Any:
        return 1.0


def with_states(states: Any) -> Any:
    return type("Named", (Plain,), {"states": states})(D, H)


bad("a cell without step", "step", lambda: rc.Recurrent(Stepless, D, H)(x()))
bad("explain of a cell without step", "step", lambda: rc.explain(rc.Recurrent(Stepless, D, H), x()))
bad("a step without states", "step", lambda: rc.Recurrent(WrongStep, D, H)(x()))
bad("a step that returns nothing", "step", lambda: rc.Recurrent(ReturnsNothing, D, H)(x()))
bad("a step that returns too many states", "step", lambda: rc.Recurrent(ReturnsTooMany, D, H)(x()))
bad("a step that returns another width", "step", lambda: rc.Recurrent(ReturnsAnotherWidth, D, H)(x()))
bad("a step that returns a number", "step", lambda: rc.Recurrent(ReturnsNumber, D, H)(x()))
bad_values("Cell", "states", [(), "h", (3,), ("h", "h"), ("x",), None], with_states)
bad_values("Cell.affine", "operand", ["q", -1, None, 2.5], lambda v: Plain(D, H).affine(v))
bad_values("Cell.affine", "size", [0, -1, 2.5, "h"], lambda v: Plain(D, H).affine("x", size=v))
bad_values("Cell.vector", "size", [0, -1, 2.5, "x"], lambda v: Plain(D, H).vector(v))
bad_values("Cell.mask", "rate", [-1, 2, NAN, "a"], lambda v: Plain(D, H).mask("m", H, v))
bad_values("Cell.mask", "each", ["epoch", None], lambda v: Plain(D, H).mask("m", H, 0.5, each=v))
bad_values("Cell.noise", "distribution", ["cauchy", None], lambda v: Plain(D, H).noise("m", H, distribution=v))
bad_values("Cell.noise", "size", [0, 1.5], lambda v: Plain(D, H).noise("m", v))
bad("noise of an unknown size", "operand", lambda: Plain(D, H).noise("m", "q"))
bad_values("register", "name", ["lstm", "", 3], lambda v: rc.register(v)(Plain))
bad_values("register()", "cell", [3, nn.LSTM], lambda v: rc.register("quite_new")(v))

for kind in (rc.Zoneout, rc.RecurrentDropout, rc.WeightDrop):
    bad_values(kind.__name__, "rate", [-0.1, 1.1, NAN, "a", None, True], lambda v, kind=kind: kind(v))
bad_values("VariationalDropout", "inputs", [-0.1, 1.1, NAN, "a", None, True], lambda v: rc.VariationalDropout(v))
bad_values("spike", "surrogate", ["step", None, 3], lambda v: rc.cells.spike(x(B, H), v))
bad_values("spike", "slope", [0, -1, NAN, "a"], lambda v: rc.cells.spike(x(B, H), slope=v))
bad_values("init.chrono", "longest", [0, 1, -3, "a", NAN], lambda v: rc.init.chrono(v))
bad_values("Readout", "source", [0, "a", 2.5], lambda v: rc.Readout(v, 2))
bad_values("Readout", "outputs", [0, "a", 2.5], lambda v: rc.Readout(2, v))

bad_values("LayerNorm", "eps", [-1, NAN, "a", None], lambda v: rc.LayerNorm(v))
bad_values("GatedOutput", "bias", [NAN, INF, "a", None], lambda v: rc.GatedOutput(3, v))
bad_values("LSTM()", "return_trace", ["x", 3], lambda v: rc.LSTM(D, H)(x(), return_trace=v))
bad_values("init.orthogonal", "gain", [NAN, "a", None, True], lambda v: rc.init.orthogonal(v))
bad_values("init.identity", "noise", [-1, NAN, "a"], lambda v: rc.init.identity(1.0, v))
bad_values("init.spectral_radius", "radius", [-1, NAN, "a"], lambda v: rc.init.spectral_radius(v))
bad_values("init.spectral_radius", "density", [0, 2, NAN, "a"], lambda v: rc.init.spectral_radius(0.9, v))
bad_values("init.forget_bias", "value", [NAN, "a", None], lambda v: rc.init.forget_bias(v))

# ---------------------------------------------------------------------------------------------------- engine, torch

bad_values("set_backend", "name", ["cuda", None, 3], lambda v: rc.set_backend(v).__enter__())
bad_values("explain", "layer", [nn.Linear(3, 4), None, 3, nn.Linear], lambda v: rc.explain(v, x()))
bad_values("explain", "x", [None, 3, x(D), "a"], lambda v: rc.explain(rc.LSTM(D, H), v))
bad_values("accelerate", "model", [3, None, "lstm", nn.LSTM], lambda v: rc.accelerate(v))
bad_values("from_torch", "module", [3, None, nn.Linear(2, 2), nn.LSTM], lambda v: rc.from_torch(v))
bad_values("export", "model", [3, None], lambda v: rc.export(v, "/nonexistent/a.onnx"))
bad(
    "export into a missing folder", "path", lambda folder: rc.export(rc.GRU(2, 3), folder / "no" / "a.onnx", x(T, B, 2))
)

# ---------------------------------------------------------------------------------------------------- data

bad_values("read", "path", [None, 3, "", b"\0", ["a.csv"], True], lambda v: rc.data.read(v))
bad("read a missing file", "absent.csv", lambda folder: rc.data.read(folder / "absent.csv"))
bad("read an empty folder", "expected one for each class", lambda folder: rc.data.read(folder))
bad_values("read", "format", ["docx", 3], lambda v: rc.data.read(__file__, format=v))
bad_values("Batches", "batch_size", [0, -1, 2.5, "a", None, True], lambda v: rc.data.Batches(tagging(), v))
bad_values("Batches", "sequences", [None, 3, sequences()], lambda v: rc.data.Batches(v, 2))
bad_values("Streams", "chunk", [0, -1, 2.5, "a"], lambda v: rc.data.Streams(x(50, 2), 2, v))
bad_values("Streams", "batch_size", [0, -1, 2.5, "a"], lambda v: rc.data.Streams(x(50, 2), v, 5))
bad_values("SequenceSet", "task", ["guess", None, 3],
           lambda v: rc.data.SequenceSet.from_arrays(sequences(), [0] * 8, v))  # fmt: skip
bad("labels that are no numbers", "targets", lambda: rc.data.SequenceSet.from_arrays(sequences(), ["a"] * 8, "tagging"))
bad("fewer labels than sequences", "targets",
    lambda: rc.data.SequenceSet.from_arrays(sequences(), [0] * 3, "classification"))  # fmt: skip
bad_values("SequenceSet", "targets", [[0.5] * 8, [-1] * 8],
           lambda v: rc.data.SequenceSet.from_arrays(sequences(), v, "classification"))  # fmt: skip
bad_values("SequenceSet", "inputs", [[], ["ab"], [x(3, 2, dtype=torch.complex64)], [x(3, 2), x(3, 3)]],
           lambda v: rc.data.SequenceSet.from_arrays(v, [0] * len(v), "classification"))  # fmt: skip
bad_values("tasks.adding", "length", [0, -1, 2.5, "a"], lambda v: rc.data.tasks.adding(v))
bad_values("infer_problem", "source", [None, 3, ""], lambda v: rc.infer_problem(v))

# ---------------------------------------------------------------------------------------------------- training

bad_values("fit", "epochs", [0, -1, 1.5, True, "3"], lambda v: fit(epochs=v))
bad_values("fit", "lr", [-1, 0, NAN, INF, "fast", True], lambda v: fit(lr=v))
bad_values("fit", "batch_size", [0, -1, 2.5, "a", True], lambda v: fit(batch_size=v))
bad_values("fit", "clip", [0, -1, NAN, "a", True], lambda v: fit(clip=v))
bad_values("fit", "accumulate", [0, 1.5, True, "a"], lambda v: fit(accumulate=v))
bad_values("fit", "patience", [0, 1.5, True, "a"], lambda v: fit(patience=v, valid=tagging()))
bad_values("fit", "optimizer", ["adm", 3, None, lambda p: 3], lambda v: fit(optimizer=v))
bad_values("fit", "loss", ["msee", 3, None], lambda v: fit(loss=v))
bad_values("fit", "metrics", [3, "accuracy", {"a": 3}, ["accuracy"]], lambda v: fit(metrics=v))
bad_values("fit", "callbacks", [3, [3], print, "a"], lambda v: fit(callbacks=v))
bad_values("fit", "schedule", [3, "cosine"], lambda v: fit(schedule=v))
bad_values("fit", "device", ["gpu", "cuda:99", 3.5], lambda v: fit(device=v))
bad_values("fit", "precision", ["float8", 16, None], lambda v: fit(precision=v))
bad_values("fit", "progress", ["yes", 3], lambda v: fit(progress=v))
bad_values("fit", "checkpoints", [3, True, [1]], lambda v: fit(checkpoints=v))
bad_values("fit", "log", [3, True], lambda v: fit(log=v))
bad_values("fit", "model", [3, "lstm", rc.GRU], lambda v: fit(model=v))
bad_values("fit", "train", [3, "a", [1, 2]], lambda v: fit(train=v))
bad_values("fit", "valid", [3, "a", [1, 2]], lambda v: fit(valid=v))
bad("labels out of range", "targets", lambda: fit(model=rc.train.Predictor(rc.GRU(2, 3), 1)))
bad_values("Checkpoints", "every", [0, -1, 1.5, "a", True], lambda v: rc.train.Checkpoints("runs", every=v))
bad_values("Checkpoints", "folder", [None, 3], lambda v: rc.train.Checkpoints(v))
bad_values("evaluate", "model", [3, None], lambda v: rc.train.evaluate(v, tagging()))
bad_values("evaluate", "data", [3, None], lambda v: rc.train.evaluate(rc.train.Predictor(rc.GRU(2, 3), 2), v))
bad_values("Predictor", "layer", [3, None, nn.Linear(2, 2)], lambda v: rc.train.Predictor(v, 2))
bad_values("Predictor", "outputs", [0, -1], lambda v: rc.train.Predictor(rc.GRU(2, 3), v))
bad_values("Predictor", "head", ["a", 1.5], lambda v: rc.train.Predictor(rc.GRU(2, 3), v))
for kind in (rc.train.BPTT, rc.train.RTRL):
    bad_values(kind.__name__, "model", [3, None], lambda v, kind=kind: kind(v))
bad_values("UORO", "seed", ["a", 1.5, None, True],
           lambda v: rc.train.UORO(rc.train.Predictor(rc.GRU(2, 3), 1), seed=v))  # fmt: skip
bad_values("EProp", "seed", ["a", 1.5], lambda v: rc.train.EProp(rc.train.Predictor(rc.GRU(2, 3), 1), seed=v))
bad_values("cosine", "warmup", [-1, "a", 1.5], lambda v: rc.train.cosine(warmup=v))

# ---------------------------------------------------------------------------------------------------- estimators

for name, values in {
    "cell": ["lstn", 3, nn.LSTM],
    "hidden_size": [0, -1, "a", 2.5],
    "epochs": [0, True, 1.5, "a"],
    "batch_size": [0, -1, 2.5, True],
    "lr": [0, -1, NAN, "a"],
    "clip": [0, -1, NAN, "a"],
    "optimizer": ["adm", 3],
    "pool": ["sum", 3],
    "schedule": ["step", 3],
    "validation": [-0.1, 1, "some", True],
    "patience": [0, 1.5, "a"],
    "dropout": [-1, 2, "a"],
    "device": ["gpu", 3.5],
    "bidirectional": ["x", 3],
    "scale": ["yes", 3],
    "cell_options": [3, "a"],
    "random_state": ["a", -1, 1.5],
}.items():  # fmt: skip
    bad_values("SequenceClassifier", name, values, lambda v, name=name: estimator(**{name: v}))
    bad_values("SequenceRegressor", name, values[:1], lambda v, name=name: estimator("SequenceRegressor", **{name: v}))
bad("fewer labels", "y", lambda: rc.SequenceClassifier(epochs=1).fit(sequences(), ["a"]))
bad_values("SequenceClassifier.fit", "X", [None, 3, "a", [], [1, 2]],
           lambda v: rc.SequenceClassifier(epochs=1).fit(v, ["a", "b"]))  # fmt: skip
bad_values("SequenceRegressor.fit", "y", [[NAN] * 8, [INF] * 8, ["a"] * 8, [None] * 8],
           lambda v: rc.SequenceRegressor(epochs=1).fit(sequences(), v))  # fmt: skip
bad_values("SequenceClassifier.fit", "y", [[NAN] * 8, 3],
           lambda v: rc.SequenceClassifier(epochs=1).fit(sequences(), v))  # fmt: skip
bad("targets that are no rows", "y", lambda: rc.StepRegressor(epochs=1).fit(sequences(), [0.0] * 8))
bad_values("OnlineClassifier", "classes", [1.5, ["a"]], lambda v: rc.OnlineClassifier(v).learn_one({"a": 1.0}, "a"))
bad("features that are text", "x", lambda: rc.OnlineClassifier(["a", "b"]).learn_one({"a": "b"}, "a"))
bad("predict of another width", "X", lambda: estimator().predict([x(4, 5)]))
bad_values("SequenceClassifier.load", "folder", [None, 3], lambda v: rc.SequenceClassifier.load(v))
bad_values("SequenceClassifier.save", "folder", [None, 3], lambda v: estimator().save(v))
for name, values in {
    "horizon": [0, -1, 1.5, "a", True],
    "context": [0, -1, 1.5, "a"],
    "known": ["abc", 3, (3,)],
    "hidden_size": [0, "a"],
    "epochs": [0, True],
    "lr": [0, NAN],
}.items():
    bad_values("Forecaster", name, values, lambda v, name=name: forecaster(**{name: v}))
for name, values in {
    "units": [0, -1, 2.5, "a", True],
    "spectral_radius": [-1, NAN, "a"],
    "leak": [0, -1, 2, NAN, "a"],
    "ridge": [-1, NAN, "a"],
    "washout": [-1, 1.5, "a"],
}.items():
    bad_values("EchoStateNetwork", name, values, lambda v, name=name: reservoir(**{name: v}))

# ---------------------------------------------------------------------------------------------------- models

bad_values("CRF", "tags", [0, -1, "a", 2.5], lambda v: rc.CRF(v))
bad_values("HMM", "states", [0, -1, "a", 2.5], lambda v: rc.HMM(v, symbols=3))
bad_values("TDNN", "input_size", [0, "a", 2.5], lambda v: rc.TDNN(v, [4], [(-1, 0, 1)]))
bad_values("NARX", "input_size", [0, "a", 2.5], lambda v: rc.NARX(v, 3))
bad_values("ClockworkRNN", "input_size", [0, "a", 2.5], lambda v: rc.ClockworkRNN(v, 4))
bad_values("BaldiBRNN", "input_size", [0, "a", 2.5], lambda v: rc.BaldiBRNN(v, 4, 2))
bad_values("ScalarMix", "layers", [0, "a", 2.5], lambda v: rc.ScalarMix(v))

bad_values("CRF", "forbidden", [3, [(0,)], [(0, 9)]], lambda v: rc.CRF(3, forbidden=v))
bad_values("HMM", "topology", ["round", 3], lambda v: rc.HMM(2, symbols=3, topology=v))
bad_values("TDNN", "contexts", [3, ["a"], [(1.5,)], [()]], lambda v: rc.TDNN(3, [4], v))
bad_values("NARX", "input_delays", [(), (-1,), (1.5,), "a"], lambda v: rc.NARX(2, 1, 3, v))
bad_values("NARX", "delays", [(0,), (1.5,), "a"], lambda v: rc.NARX(2, 1, 3, (0, 1), v))
bad_values("ClockworkRNN", "periods", [(), (0,)], lambda v: rc.ClockworkRNN(2, 4, v))
bad_values("ELMo", "projection_size", [-1, 1.5, "a"], lambda v: rc.ELMo(v, 8, filters=((1, 4),)))
bad_values("ELMo", "filters", [(), ((1,),), ((1, 0),), ((0, 1),), "ab"], lambda v: rc.ELMo(4, 8, filters=v))
bad_values("ELMo", "highways", [-1, 1.5, "a"], lambda v: rc.ELMo(4, 8, filters=((1, 4),), highways=v))
bad_values("ScalarMix()", "layers", [None, []], lambda v: rc.ScalarMix(2)(v))
bad_values("PNorm", "p", [0, -1, NAN, "a"], lambda v: rc.models.PNorm(2, v))
bad_values("NextSymbol", "sampling", [-1, NAN, "a"], lambda v: rc.models.NextSymbol(v))
bad_values("Words", "tokens", [3, "ab", [3]], lambda v: rc.models.Words(v))
bad_values("entity_scores", "found", [3, [["O"], ["O"]]], lambda v: rc.models.entity_scores([["O"]], v))
bad("word vectors of a folder", "path", lambda folder: rc.models.read_vectors(folder))
bad_values("RecursiveLeastSquares", "features", [0, 1.5, "a"], lambda v: rc.reservoir.RecursiveLeastSquares(v, 1, 1.0))
bad_values("RecursiveLeastSquares", "forgetting", [0, -1, 2, NAN, "a"],
           lambda v: rc.reservoir.RecursiveLeastSquares(2, 1, 1.0, v))  # fmt: skip
bad_values("ring", "weight", [NAN, "a"], lambda v: rc.reservoir.ring(10, 1, v))
bad_values("spectral_radius", "matrix", ["a", None, 3, np.zeros((2, 3)), np.full((2, 2), NAN)],
           lambda v: rc.reservoir.spectral_radius(v))  # fmt: skip

bad_values("DynamicalSystem", "dt", [0, NAN, "a"], lambda v: rc.DynamicalSystem(lambda h: h, dt=v))

# ---------------------------------------------------------------------------------------------------- inspection

bad_values("gradient_flow", "losses", [0, 1.5, "a"],
           lambda v: rc.inspect.gradient_flow(rc.GRU(2, 3), x(9, 2, 2), losses=v))  # fmt: skip
bad_values("jacobian_spectrum", "steps", [0, -1, "a"],
           lambda v: rc.inspect.jacobian_spectrum(rc.GRU(2, 3), x(9, 2, 2), steps=v))  # fmt: skip
bad_values("jacobian_spectrum", "sequence", [9, -1, 1.5, "a"],
           lambda v: rc.inspect.jacobian_spectrum(rc.GRU(2, 3), x(9, 2, 2), sequence=v))  # fmt: skip
bad_values("lyapunov", "count", [0, 1.5, "a"], lambda v: rc.inspect.lyapunov(rc.GRU(2, 3), x(9, 2, 2), count=v))
bad_values("lyapunov", "transient", [-1, 1.5, "a"],
           lambda v: rc.inspect.lyapunov(rc.GRU(2, 3), x(9, 2, 2), transient=v))  # fmt: skip
bad_values("memory_curve", "delays", [0, 1.5, "a"],
           lambda v: rc.inspect.memory_curve(rc.GRU(2, 3), x(9, 2, 2), delays=v))  # fmt: skip
bad_values("memory_curve", "ridge", [-1, NAN, "a"],
           lambda v: rc.inspect.memory_curve(rc.GRU(2, 3), x(9, 2, 2), ridge=v))  # fmt: skip
bad_values("curves", "series", [None, 3], lambda v: rc.inspect.curves(v))
bad_values("heatmap", "values", ["a", None, np.zeros(3), [[1], [1, 2]]], lambda v: rc.inspect.heatmap(v))
bad_values("orbits", "paths", [None, {"a": "x"}], lambda v: rc.inspect.orbits(v))
bad_values("report", "path", [3, None], lambda v: rc.report(rc.GRU(2, 3), x(9, 2, 2), v))
bad_values("export", "path", [3, None], lambda v: rc.export(rc.GRU(2, 3), v))
bad_values("resolve_cells", "cells", [3, ["lstm", 3]], lambda v: rc.compare.resolve_cells(v))

for kind in ("gradient_flow", "jacobian_spectrum", "lyapunov", "gate_activity", "health"):
    bad_values(kind, "model", [3, None, nn.Linear(2, 2)],
               lambda v, kind=kind: getattr(rc.inspect, kind)(v, tagging()))  # fmt: skip
    bad_values(kind, "data", [3, None], lambda v, kind=kind: getattr(rc.inspect, kind)(rc.GRU(2, 3), v))
bad_values("diagram", "model", [3, None, nn.Linear(2, 2)], lambda v: rc.diagram(v))
bad("diagram of an unknown cell", "cell", lambda: rc.diagram("lstn"))
bad_values("report", "model", [3, None], lambda v: rc.report(v, tagging()))
bad_values("compare", "data", [3, None], lambda v: rc.compare(v))
