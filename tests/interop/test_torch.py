"""Weights to and from torch.nn: the same numbers, and an error that says why where there are none."""

import pytest
import torch
from torch import nn

import recurra as rc
from recurra.errors import ConversionError, InputError

MODULES = {
    "rnn": lambda **k: nn.RNN(5, 4, **k),
    "relu": lambda **k: nn.RNN(5, 4, nonlinearity="relu", **k),
    "lstm": lambda **k: nn.LSTM(5, 4, **k),
    "projected": lambda **k: nn.LSTM(5, 4, proj_size=2, **k),
    "gru": lambda **k: nn.GRU(5, 4, **k),
}
SETTINGS = (
    {},
    {"bias": False},
    {"num_layers": 2, "bidirectional": True},
    {"num_layers": 3, "batch_first": True},
)
X = torch.randn(6, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def flat(state) -> list[torch.Tensor]:
    return list(state) if isinstance(state, tuple) else [state]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("kind", MODULES)
def test_there_and_back(kind, settings):
    theirs = MODULES[kind](**settings).double()
    ours = rc.from_torch(theirs)
    back = ours.to_torch()
    assert type(back) is type(theirs)
    assert (ours.batch_first, ours.num_layers) == (theirs.batch_first, theirs.num_layers)
    y, state = theirs(X)
    for module in (ours, back):
        got, got_state = module(X)
        torch.testing.assert_close(got, y, atol=1e-15, rtol=1e-14)
        for a, b in zip(flat(got_state), flat(state), strict=True):
            torch.testing.assert_close(a, b, atol=1e-15, rtol=1e-14)


@pytest.mark.parametrize("kind", MODULES)
def test_gradients_agree(kind):
    theirs = MODULES[kind](num_layers=2, bidirectional=True).double()
    ours = rc.from_torch(theirs)
    x, same = X.clone().requires_grad_(), X.clone().requires_grad_()
    theirs(x)[0].square().sum().backward()
    ours(same)[0].square().sum().backward()
    torch.testing.assert_close(same.grad, x.grad, atol=1e-14, rtol=1e-12)


@pytest.mark.parametrize("cell", [nn.RNNCell, nn.LSTMCell, nn.GRUCell])
@pytest.mark.parametrize("batched", [True, False])
def test_cells_step_like_torchs(cell, batched):
    theirs = cell(5, 4).double()
    ours = rc.from_torch(theirs)
    a = b = None
    for x in X if batched else X[:, 0]:
        a, b = theirs(x, a), ours(x, b)
    for left, right in zip(flat(a), flat(b), strict=True):
        torch.testing.assert_close(right, left, atol=1e-15, rtol=1e-14)


def test_dropout_dtype_and_mode_come_along():
    ours = rc.from_torch(nn.LSTM(5, 4, num_layers=2, dropout=0.25).double().eval())
    assert (ours.dropout, ours.training, next(ours.parameters()).dtype) == (0.25, False, torch.float64)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.LSTM(5, 4, bidirectional=True, batch_first=True)
        self.same_encoder = self.encoder
        self.head = nn.ModuleDict({"rnn": nn.GRU(8, 3, batch_first=True)})

    def forward(self, x):
        self.encoder.flatten_parameters()
        y, _ = self.same_encoder(x)
        return self.head["rnn"](y)[0]


def test_accelerate_replaces_every_module_in_place():
    model = Tagger().double()
    x = X.transpose(0, 1)
    before = model(x)
    assert rc.accelerate(model) is model
    assert isinstance(model.encoder, rc.Recurrent)
    assert model.encoder is model.same_encoder
    assert isinstance(model.head["rnn"], rc.Recurrent)
    torch.testing.assert_close(model(x), before, atol=1e-14, rtol=1e-13)


def test_accelerate_a_bare_module():
    assert isinstance(rc.accelerate(nn.GRU(5, 4)), rc.Recurrent)


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (lambda: rc.GRU(5, 4), "reset_after=True"),
        (lambda: rc.VanillaLSTM(5, 4), "p_{i}"),
        (lambda: rc.ProjectionLSTM(5, 4), "peepholes"),
        (lambda: rc.ProjectionLSTM(5, 4, peepholes=False, cell_clip=3.0), "clips"),
        (lambda: rc.ProjectionLSTM(5, 4, peepholes=False, forget_bias=1.0), "forget bias"),
        (lambda: rc.ProjectionLSTM(5, 4, peepholes=False, output_proj_size=2), "second projection"),
        (lambda: rc.LSTM(5, [4, 3]), "width"),
        (lambda: rc.LSTM(5, 4, num_layers=2, depth="residual"), "residual"),
        (lambda: rc.LSTM(5, 4, bidirectional="separate"), "separate"),
        (lambda: rc.LSTM(5, 4, initial="learned"), "learned"),
        (lambda: rc.LSTM(5, 4, modifiers=[rc.Zoneout(0.1)]), "modifiers"),
        (lambda: rc.RNN(5, 4, nonlinearity="sigmoid"), "tanh or relu"),
    ],
)
def test_where_equations_differ_an_error_says_why(layer, why):
    with pytest.raises(ConversionError, match="no equivalent") as error:
        layer().to_torch()
    assert why in str(error.value)


@pytest.mark.parametrize("name", ["irnn", "identity_rnn", "orthogonal_rnn"])
def test_cells_with_torchs_equations_convert(name):
    ours = rc.layer(name, 5, 4, dtype=torch.float64)
    torch.testing.assert_close(ours.to_torch()(X)[0], ours(X)[0], atol=1e-15, rtol=1e-14)


def test_other_modules_are_refused():
    with pytest.raises(InputError, match="an nn"):
        rc.from_torch(nn.Linear(2, 3))
