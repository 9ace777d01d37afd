"""NARX and hierarchical networks, learned step by step: outputs of a call, gradients of autograd."""

import pytest
import torch
from helpers import assert_close

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.models.as_layer import as_layer
from recurra.train import RTRL, Predictor

NETWORKS = {
    "narx": lambda: rc.NARX(3, 2, 5, input_delays=(0, 2), output_delays=(1, 3)),
    "narx without the present": lambda: rc.NARX(3, 2, 4, input_delays=(3, 1), output_delays=(2,)),
    "arx": lambda: rc.NARX(3, 2, input_delays=(0,), output_delays=(1, 2)),
    "adjacent": lambda: rc.HierarchicalRNN(3, [3, 2], [1, 3], "lstm"),
    "same step": lambda: rc.HierarchicalRNN(3, [3, 2, 2], [1, 2, 4], "gru", same_step=True),
    "faster": lambda: rc.HierarchicalRNN(3, [3, 2], [2, 3], "rnn", wiring="faster"),
    "clockwork": lambda: rc.ClockworkRNN(3, 6, (1, 2, 4)),
}
on_every_network = pytest.mark.parametrize("name", NETWORKS)


@on_every_network
def test_the_layer_of_one_cell_is_the_network(name: str) -> None:
    model, x = NETWORKS[name]().double(), torch.randn(9, 2, 3, dtype=torch.float64)
    with set_backend("reference"):
        assert_close(as_layer(model)(x)[0], model(x)[0])


@on_every_network
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_rtrl_has_the_gradients_of_autograd(name: str, backend: str) -> None:
    model = Predictor(NETWORKS[name]().double(), 2)
    x, target = (torch.randn(9, 2, size, dtype=torch.float64) for size in (3, 2))
    with set_backend(backend):
        found = RTRL(model, "mse").gradients(x, target)
    torch.nn.functional.mse_loss(model(x)[0], target).backward()
    expected = {n: p.grad for n, p in model.named_parameters()}
    assert found.keys() == expected.keys()
    for n, gradient in expected.items():
        assert_close(found[n], gradient)


@on_every_network
@pytest.mark.parametrize(
    "learner", ["SnAp", "UORO", "KFRTRL", "ForwardGradient", "EProp", "RFLO", "FPTT", "DEKF", "UKF"]
)
def test_other_learners_train_networks(name: str, learner: str) -> None:
    model = Predictor(NETWORKS[name](), 2)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    if learner in ("EProp", "RFLO") and name.startswith("narx"):
        with pytest.raises(rc.OptionError, match="NARX network with a hidden layer"):
            getattr(rc.train, learner)(model).step(torch.randn(9, 1, 3), torch.randn(9, 1, 2))
        return
    loss = getattr(rc.train, learner)(model).step(torch.randn(9, 1, 3), torch.randn(9, 1, 2))
    assert loss > 0
    local = learner in ("EProp", "RFLO")  # a reset gate acts through W (r ⊙ h), which local traces leave out
    moved = {n: not torch.equal(before[n], p) for n, p in model.named_parameters() if not (local and ".r." in n)}
    assert all(moved.values()), moved


def test_levels_that_a_step_cannot_hold_are_refused_by_name() -> None:
    with pytest.raises(rc.OptionError, match=r"a level of \w+ with delayed states"):
        RTRL(rc.HierarchicalRNN(3, [4, 2], [1, 2], "delay_rnn"))


def test_a_second_recurrence_beside_the_network_is_refused() -> None:
    with pytest.raises(rc.InputError, match="GRU"):
        RTRL(Predictor(rc.ClockworkRNN(3, 4, (1, 2)), rc.GRU(4, 2)))
