"""Everything that torch, numpy and safetensors are enough for, end to end, and the sentence of everything else.

`test_import.py` runs this script in an interpreter where no other package can be imported. It also runs by itself in a
fresh virtual environment: `pip install recurra` and `python tests/torch_alone.py`. Nothing here imports pytest.
"""

import io
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path

import torch
from torch import nn

import recurra as rc
from recurra.errors import MissingPackageError

CHECKS: list[Callable[[Path], object]] = []
SENTENCES, TAGS = [["rain", "fell"], ["he", "saw", "it"]], [["A", "B"], ["C", "B", "A"]]


def check(function: Callable[[Path], object]) -> Callable[[Path], object]:
    CHECKS.append(function)
    return function


def series(steps: int = 12, batch: int = 4, inputs: int = 2, outputs: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(steps, batch, inputs)
    return x, x[..., :outputs].cumsum(0).tanh()


@check
def layers(folder: Path) -> None:
    x = torch.randn(5, 2, 3)
    with rc.set_backend("reference"):  # compiling every cell takes longer than everything else here
        for name in rc.cells.canonical_names():
            y, _ = rc.layer(name, 3, 4)(x)
            assert y.shape[:2] == (5, 2), name
            assert y.isfinite().all(), name
    layer = rc.LSTM(3, 4, num_layers=2, bidirectional=True)
    y, _ = layer(x, lengths=torch.tensor([5, 3]))
    y.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


@check
def modifiers(folder: Path) -> None:
    x = torch.randn(5, 2, 3)
    for modifier in (rc.Zoneout(0.1), rc.RecurrentDropout(0.1), rc.VariationalDropout(0.1), rc.LayerNorm()):
        rc.GRU(3, 4, modifiers=[modifier])(x)[0].sum().backward()


@check
def streaming(folder: Path) -> None:
    layer, x = rc.GRU(3, 4), torch.randn(6, 2, 3)
    expected, state = layer(x)[0], None
    for x_t, y_t in zip(x, expected, strict=True):
        step, state = layer.step(x_t, state)
        torch.testing.assert_close(step, y_t)


@check
def own_cell(folder: Path) -> None:
    class Mine(rc.Cell):
        def __init__(self, input_size: int, hidden_size: int):
            super().__init__(input_size, hidden_size)
            self.a = self.affine("x", "h")

        def step(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.a(x, h))

    layer = rc.Recurrent(Mine, 3, 4)
    assert "backend: " in str(rc.explain(layer, torch.randn(5, 2, 3)))


@check
def from_torch(folder: Path) -> None:
    theirs, x = nn.LSTM(3, 4), torch.randn(5, 2, 3)
    torch.testing.assert_close(rc.from_torch(theirs)(x)[0], theirs(x)[0])
    rc.from_torch(theirs).to_torch()
    rc.accelerate(nn.Sequential(nn.GRU(3, 4)))


@check
def learners(folder: Path) -> None:
    x, target = series()
    for learner in (rc.train.BPTT, rc.train.RTRL, rc.train.DEKF):
        assert learner(rc.train.Predictor(rc.LSTM(2, 3), 1), "mse").step(x, target) > 0
    rule = rc.train.OriginalLSTMRule(rc.train.Predictor(rc.layer("original_lstm", 2, 3), 1), "mse")
    assert rule.step(x, target) > 0
    wave = torch.sin(0.3 * torch.arange(60.0))[:, None, None]
    evolino = rc.train.Evolino(rc.train.Predictor(rc.Recurrent(rc.train.EvolinoCell, 1, 3), 1), washout=5, horizon=5)
    evolino.step(wave[:-1], wave[1:])
    trial = rc.train.Trial(weights=60, steps=2, batch=2)
    assert len(rc.train.evolve_cells(1, population=2, trial=trial).front)


@check
def gradients_by_hand(folder: Path) -> None:
    layer = rc.LSTM(2, 3)
    found = rc.train.gradients_by_hand(layer, rc.Readout(layer, 1), *series())
    assert found.h.isfinite().all()
    assert len(list(rc.train.errata()))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = rc.GRU(2, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x, lengths=lengths)[1][-1])


@check
def fit_with_checkpoints(folder: Path) -> None:
    inputs = [torch.randn(n, 2) for n in (4, 6, 5, 7, 3, 5)]
    data = rc.data.SequenceSet.from_arrays(inputs, [x.sum(0) for x in inputs], "regression")
    model, shown = Net(), io.StringIO()
    settings = {"valid": data, "batch_size": 2, "device": "cpu", "checkpoints": folder / "run", "progress": True}
    with redirect_stderr(shown):
        rc.train.fit(model, data, epochs=2, **settings)
    assert "epoch 2: " in shown.getvalue(), shown.getvalue()  # plain lines, where rich is not installed
    with redirect_stderr(shown):
        assert rc.train.fit(Net(), data, epochs=3, **settings).steps == 9  # resumed


@check
def crf_and_tagger(folder: Path) -> None:
    crf, emissions = rc.CRF(3), torch.randn(5, 2, 3, requires_grad=True)
    (-crf(emissions, torch.zeros(5, 2, dtype=torch.int64)).sum()).backward()
    assert len(crf.decode(emissions)) == 2
    tagger = rc.models.Tagger.of(SENTENCES, TAGS, word_size=4, hidden_size=5)
    data = tagger.encode(SENTENCES, TAGS)
    rc.train.fit(tagger, data, loss=tagger.objective(), epochs=1, device="cpu", progress=False)
    tagger.save(folder / "tagger")
    assert rc.models.Tagger.load(folder / "tagger").tag(SENTENCES) == tagger.tag(SENTENCES)


@check
def language_model(folder: Path) -> None:
    text = "the cat sat on the mat, " * 10
    model = rc.models.LanguageModel(rc.models.Characters.from_text(text), 8)
    rc.train.fit(model, model.streams(text, 4, 8), loss=rc.models.NextToken(), epochs=1, device="cpu", progress=False)
    model.save(folder / "language")
    again = rc.models.LanguageModel.load(folder / "language")
    assert again.measure(text) == model.measure(text)


@check
def other_models(folder: Path) -> None:
    x, target = series(40, 1, 1, 1)
    assert rc.NARX(1, 1).solve(x, target)(x, target) is not None
    assert rc.TDNN(2, [4, 3], [3, 3])(torch.randn(12, 2, 2)) is not None
    assert rc.HierarchicalRNN(2, [3, 3], [1, 2])(torch.randn(12, 2, 2)) is not None
    assert rc.BaldiBRNN(2, 3, 2)(torch.randn(6, 2, 2)) is not None
    assert len(rc.HMM(2, symbols=3).fit(torch.randint(0, 3, (20, 2)), iterations=3))


@check
def dynamics(folder: Path) -> None:
    exponent = rc.dynamics.lyapunov(rc.dynamics.logistic(), torch.tensor([0.3], dtype=torch.float64), 2000)
    assert abs(float(exponent) - 0.693) < 0.05
    assert len(rc.dynamics.fixed_points(rc.dynamics.henon(), torch.randn(4, 2, dtype=torch.float64)))


@check
def diagrams_and_measurements(folder: Path) -> None:
    assert str(rc.diagram("lstm")).startswith("<svg")
    layer, x = rc.LSTM(2, 3), torch.randn(6, 2, 2)
    assert rc.inspect.gradient_flow(layer, x).summary()
    assert rc.inspect.weight_spectrum(layer).summary()


@check
def tasks_and_batches(folder: Path) -> None:
    for name in ("adding", "copy_memory", "reber", "anbn"):
        assert next(rc.data.tasks.make(name).batches(4, 1).epoch(0)).inputs.shape[1] == 4
    vowels = rc.data.japanese_vowels("test")
    data = rc.data.SequenceSet.from_arrays(vowels.sequences, vowels.labels, "classification")
    batch = next(iter(rc.data.Batches(data, 8).epoch(0)))
    assert batch.inputs.shape[1] == 8
    (folder / "text.txt").write_text("some words\n" * 20)
    assert len(rc.data.read_text(folder / "text.txt"))


@check
def names(folder: Path) -> None:
    everything: dict[str, object] = {}
    exec("from recurra import *", everything)
    assert {"LSTM", "Recurrent", "dynamics", "train"} <= set(everything)


def csv(folder: Path) -> Path:
    (folder / "data.csv").write_text("id,x,label\n1,0.5,a\n1,0.25,a\n")
    return folder / "data.csv"


#: a call that needs more, and the sentence it raises
MISSING: dict[str, Callable[[Path], object]] = {
    "recurra.estimators needs scikit-learn: pip install 'recurra[estimators]'": lambda folder: rc.SequenceClassifier(),
    "recurra.reservoir needs scipy: pip install 'recurra[estimators]'": lambda folder: rc.EchoStateNetwork(),
    "rc.data.read_csv needs pyarrow: pip install 'recurra[data]'": lambda folder: rc.data.read_csv(csv(folder)),
    "reading csv files needs pyarrow: pip install 'recurra[data]'": lambda folder: rc.data.read(csv(folder)),
    "reading .mat files needs scipy: pip install 'recurra[estimators]'": lambda folder: rc.data.read_mat(csv(folder)),
    "reading HDF5 files needs h5py: pip install 'recurra[elmo]'": lambda folder: rc.data.read_hdf5(csv(folder)),
    "recurra.compare needs rich: pip install 'recurra[cli]'": lambda folder: rc.compare.compare(csv(folder)),
    "recurra.problem needs pyarrow: pip install 'recurra[cli]'": lambda folder: rc.problem.TASKS,
    "rc.report needs plotly: pip install 'recurra[report]'": lambda folder: rc.report(
        rc.LSTM(2, 3), torch.randn(6, 2, 2), folder / "report.html"
    ),
    "a figure needs plotly: pip install 'recurra[report]'": lambda folder: rc.inspect.weight_spectrum(
        rc.LSTM(2, 3)
    ).figure(),
    "rc.export needs onnx: pip install 'recurra[onnx]'": lambda folder: rc.export(rc.LSTM(2, 3), folder / "m.onnx"),
    "a vocabulary of subwords needs tokenizers: pip install 'recurra[text]'": lambda folder: rc.models.Subwords.train(
        "a b c", 10
    ),
    "Evolino(search='cma') needs cma: pip install 'recurra[evo]'": lambda folder: rc.train.Evolino(
        rc.train.Predictor(rc.Recurrent(rc.train.EvolinoCell, 1, 3), 1), search="cma"
    ),
    "rc.train.Bar needs rich: pip install 'recurra[cli]'": lambda folder: rc.train.Bar(),
}


def said(call: Callable[[Path], object], folder: Path) -> str:
    try:
        call(folder)
    except MissingPackageError as error:
        return str(error)
    return "nothing is missing"


def missing_packages(folder: Path) -> None:
    for sentence, call in MISSING.items():
        assert said(call, folder) == sentence, f"{said(call, folder)}, not {sentence}"


def main() -> None:
    torch.manual_seed(0)
    for function in (*CHECKS, missing_packages):
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            function(Path(folder))
        print(f"ok {function.__name__} ({time.perf_counter() - started:.1f} s)", flush=True)
    unwanted = {"scipy", "sklearn", "pyarrow", "rich", "typer", "pydantic", "plotly"} & set(sys.modules)
    assert not unwanted, unwanted


if __name__ == "__main__":
    main()
