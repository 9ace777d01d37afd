"""Bidirectional networks with perceptrons as transitions, against the equations written as two loops."""

import pytest
import torch

import recurra as rc
from recurra.errors import InputError, ShapeError

OPTIONS = [
    {},
    {"transition": (5,), "output": (6, 4)},
    {"shortcuts": 3, "window": 2},
    {"transition": (7, 5), "output": (6,), "shortcuts": 2, "window": 1},
]


def by_hand(model: rc.BaldiBRNN, x: torch.Tensor) -> torch.Tensor:
    def mlp(cell: rc.Cell, seen: torch.Tensor, past: list[torch.Tensor]) -> torch.Tensor:
        a = cell.first
        total = a.b + seen @ a.U.T + sum(h @ getattr(a, n).T for n, h in zip(a.recurrent(), past, strict=True))
        value = torch.tanh(total)
        for affine in cell.deeper:
            value = torch.tanh(value @ affine.W.T + affine.b)
        return value

    def states(layer: rc.Recurrent, seen: list[torch.Tensor]) -> list[torch.Tensor]:
        cell = layer.cells[0]
        past = [x.new_zeros(x.shape[1], cell.hidden_size)] * cell.carried[0].depth
        found = []
        for one in seen:
            found.append(mlp(cell, one, past))
            past = [found[-1], *past[:-1]]
        return found

    empty = torch.zeros_like(x[0])
    at = lambda t: x[t] if 0 <= t < len(x) else empty  # noqa: E731
    seen = [torch.cat([at(t + k) for k in range(-model.window, model.window + 1)], dim=-1) for t in range(len(x))]
    past, future = states(model.past, seen), states(model.future, seen[::-1])[::-1]
    return torch.stack(
        [model.readout(torch.cat([f, b, s], dim=-1)) for f, b, s in zip(past, future, seen, strict=True)]
    )


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_is_its_definition(options: dict):
    model = rc.BaldiBRNN(3, (4, 5), 2, **options).double()
    x = torch.randn(11, 2, 3, dtype=torch.float64)
    torch.testing.assert_close(model(x), by_hand(model, x), rtol=1e-11, atol=1e-11)


def test_single_layers_are_the_bidirectional_rnn():
    model, layer = rc.BaldiBRNN(3, 4, 2).double(), rc.RNN(3, 4, bidirectional=True).double()
    for cell, source in zip(layer.cells, (model.past, model.future), strict=True):
        first = source.cells[0].first
        with torch.no_grad():
            cell.a.W.copy_(first.W)
            cell.a.U.copy_(first.U)
            cell.a.b.copy_(first.b)
    x = torch.randn(9, 2, 3, dtype=torch.float64)
    expected = model.readout(torch.cat([layer(x)[0], x], dim=-1))
    torch.testing.assert_close(model(x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_results_do_not_depend_on_padding(options: dict):
    model = rc.BaldiBRNN(3, 4, 2, batch_first=True, **options).double()
    x = torch.randn(3, 10, 3, dtype=torch.float64)
    lengths, padded = torch.tensor([10, 3, 6]), x.clone()
    for b, n in enumerate(lengths):
        padded[b, n:] = torch.nan
    y = model(padded, lengths)
    for b, n in enumerate(lengths):
        torch.testing.assert_close(y[b : b + 1, :n], model(x[b : b + 1, :n]), rtol=1e-12, atol=1e-12)
        assert (y[b, n:] == 0).all()


def test_past_and_future_both_matter():
    model = rc.BaldiBRNN(3, 4, 2, shortcuts=2).double()
    x = torch.randn(7, 1, 3, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(model(x)[3].sum(), x)
    assert (gradient.abs().sum(dim=(1, 2)) > 0).all()


def test_what_is_wrong_is_named():
    with pytest.raises(InputError, match="window"):
        rc.BaldiBRNN(3, 4, 2, window=-1)
    with pytest.raises(InputError, match="shortcuts"):
        rc.BaldiBRNN(3, 4, 2, shortcuts=0)
    with pytest.raises(ShapeError, match="x: got shape"):
        rc.BaldiBRNN(3, 4, 2)(torch.zeros(5, 2, 4))
