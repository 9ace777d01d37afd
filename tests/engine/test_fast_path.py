"""The prepared call of a dense batch gives what the plain loop gives, and runs where it can."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import recurra as rc
from recurra import cells, layers
from recurra.engine import dispatch
from recurra.engine.backend import set_backend
from recurra.errors import DtypeError, ShapeError


class GeneralPath(Exception):
    """The inputs were converted first."""


@pytest.fixture
def only_prepared(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any) -> None:
        raise GeneralPath

    monkeypatch.setattr(dispatch, "_run", refuse)


def layer(name: str = "lstm", **options: Any) -> rc.Recurrent:
    torch.manual_seed(0)
    return rc.layer(name, 3, 20, dtype=torch.float64, **options)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def flat(results: Any) -> list[Tensor]:
    return [results] if isinstance(results, Tensor) else [t for part in results for t in flat(part)]


OPTIONS: list[dict[str, Any]] = [
    {},
    {"batch_first": True},
    {"initial": "learned"},
    {"num_layers": 2},
    {"bidirectional": True, "batch_first": True},
    {"num_layers": 3, "depth": "graves", "bidirectional": True},
    {"num_layers": 2, "bidirectional": "separate", "initial": "learned"},
]


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn", "projection_lstm", "slstm", "scrn"])
@pytest.mark.parametrize("shape", [(6, 2, 3), (1, 1, 3), (40, 5, 3)], ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@torch.no_grad()
def test_it_gives_what_the_plain_loop_gives(name: str, shape: tuple[int, ...], options: dict, only_prepared: None):
    model, x = layer(name, **options), drawn(*shape)
    first = model(x)
    again = model(x, first[1])
    with set_backend("reference"):
        wanted, wanted_again = model(x), model(x, first[1])
    for ours, theirs in zip(flat((first, again)), flat((wanted, wanted_again)), strict=True):
        assert ours.shape == theirs.shape
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.usefixtures("only_prepared")
@pytest.mark.parametrize(
    "call",
    [
        lambda model, x: model(x, lengths=[6, 4]),
        lambda model, x: model(x, resets=torch.zeros(6, 2, dtype=torch.bool)),
        lambda model, x: model(x, return_trace=True),
    ],
    ids=["lengths", "resets", "trace"],
)
@torch.no_grad()
def test_other_calls_convert_their_inputs_first(call: Any):
    with pytest.raises(GeneralPath):
        call(layer(), drawn(6, 2, 3))


def gradients(model: rc.Recurrent, x: Tensor, state: Any) -> list[Tensor | None]:
    """Of the input, the state and every weight; all of them got part in y and in the final state."""
    y, final = model(x, state)
    total = y.square().sum() + sum(value.sin().sum() for value in flat(final))
    wanted = [v for v in (x, *flat([] if state is None else state), *model.parameters()) if v.requires_grad]
    return list(torch.autograd.grad(total, wanted, allow_unused=True))


@pytest.mark.parametrize("name", ["lstm", "gru", "projection_lstm", "indrnn"])
@pytest.mark.parametrize("given", [True, False], ids=["a state", "no state"])
@pytest.mark.parametrize("frozen", [True, False], ids=["one frozen", "none frozen"])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}], ids=str)
def test_gradients_are_those_of_the_plain_loop(
    name: str, given: bool, frozen: bool, options: dict, only_prepared: None
):
    model, x = layer(name, initial="learned", **options), drawn(7, 2, 3).requires_grad_(not frozen)
    next(model.parameters()).requires_grad_(not frozen)
    cells = model.cell_list
    state = tuple(drawn(len(cells), 2, s.size).requires_grad_() for s in cells[0].carried) if given else None
    state = state[0] if given and len(state) == 1 else state
    found = gradients(model, x, state)
    with set_backend("reference"):
        wanted = gradients(model, x, state)
    for ours, theirs in zip(found, wanted, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_a_checkpointed_layer_takes_the_general_path_in_training(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any) -> None:
        raise GeneralPath

    monkeypatch.setattr(layers, "choose", refuse)
    model, x = layer(checkpoint=True), drawn(6, 2, 3)
    model(x)[0].sum().backward()
    with torch.no_grad(), pytest.raises(GeneralPath):
        model(x)


@torch.no_grad()
def test_what_is_wrong_is_said_as_ever():
    model, x, state = layer(), drawn(6, 2, 3), drawn(1, 2, 20)
    with pytest.raises(ShapeError, match="x"):
        model(drawn(6, 2, 4))
    with pytest.raises(ShapeError, match="state"):
        model(x, (state, drawn(1, 3, 20)))
    with pytest.raises(ShapeError, match="state"):
        model(x, state)
    with pytest.raises(DtypeError, match="x"):
        model(x.float())
    with pytest.raises(ShapeError, match="state"):
        layer("gru")(x, (state,))  # a tuple for a cell with one state


@torch.no_grad()
def test_a_given_state_is_not_written_to_and_none_is_shared():
    model, x, state = layer(), drawn(6, 2, 3), (drawn(1, 2, 20), drawn(1, 2, 20))
    before = [s.clone() for s in state]
    y, final = model(x, state)
    last = y[-1].clone()
    for value in final:
        value.zero_()
    assert torch.equal(y[-1], last)
    assert all(torch.equal(a, b) for a, b in zip(state, before, strict=True))


@torch.no_grad()
def test_a_bias_that_comes_back_is_seen():
    model, x = layer("rnn"), drawn(6, 2, 3)
    model.cell_list[0].drop_biases()
    without = model(x)[0]
    next(model.cell_list[0].affines()).b = nn.Parameter(drawn(20))
    found = model(x)[0]
    with set_backend("reference"):
        torch.testing.assert_close(found, model(x)[0], rtol=1e-12, atol=1e-14)
    assert not torch.allclose(found, without)


class OnesAndTwos(cells.LSTM):
    """A cell that says itself what its states start from."""

    def initial_state(self, batch: int, like: Tensor) -> tuple[Tensor, ...]:
        return tuple(like.new_full((batch, state.size), i) for i, state in enumerate(self.carried, 1))


def test_a_cell_may_say_what_its_states_start_from(only_prepared: None):
    own, x = rc.Recurrent(OnesAndTwos, 3, 20, dtype=torch.float64), drawn(4, 2, 3)
    found = own(x)[0]
    with set_backend("compiled"):
        given = own(x, (torch.ones(1, 2, 20).double(), 2 * torch.ones(1, 2, 20).double()))[0]
    torch.testing.assert_close(found, given, rtol=0, atol=0)
