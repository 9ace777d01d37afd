"""What a learner cannot honour is refused by name, instead of a gradient of something else."""

from collections.abc import Callable

import pytest
import torch
from helpers import assert_close
from torch import Tensor, nn

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.train import BPTT, DEKF, DNI, FORCE, FPTT, RTRL, UKF, EProp, OriginalLSTMRule, Predictor, SnAp


@pytest.fixture(autouse=True)
def _plain_loop():
    with set_backend("reference"):
        yield


def data(steps: int = 6, outputs: int = 2) -> tuple[Tensor, Tensor]:
    return torch.randn(steps, 2, 3, dtype=torch.float64), torch.randn(steps, 2, outputs, dtype=torch.float64)


def change(model: nn.Module, learner: rc.train.Learner, *batch: Tensor) -> dict[str, Tensor]:
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    learner.step(*batch)
    return {n: before[n] - p.detach() for n, p in model.named_parameters()}


class Rectified(nn.Module):
    """A layer and a head with something between them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = rc.GRU(3, 4), rc.Readout(4, 2)

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        h, state = self.layer(x, state)
        return self.head(torch.relu(h)), state


class Plain(Rectified):
    """The same as a Predictor, by another class."""

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        h, state = self.layer(x, state)
        return self.head(h), state


class Forgetful(nn.Module):
    """Returns a state that it does not take."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = rc.GRU(3, 4), rc.Readout(4, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h, state = self.layer(x)
        return self.head(h), state


@pytest.mark.parametrize("learner", [RTRL, SnAp, EProp, DEKF, UKF, FORCE, OriginalLSTMRule])
def test_a_module_that_is_not_its_head_of_its_layer(learner: Callable) -> None:
    with pytest.raises(rc.InputError, match=r"Rectified, which is not head\(layer\(x\)\)"):
        learner(Rectified())


def test_a_module_that_is_its_head_of_its_layer_is_taken_as_it_is() -> None:
    model, (x, target) = Plain().double(), data()
    model.layer.eval()
    found = RTRL(model, "mse").gradients(x, target)
    assert model.training
    assert not model.layer.training
    nn.functional.mse_loss(model(x)[0], target).backward()
    for name, p in model.named_parameters():
        assert_close(found[name], p.grad)


@pytest.mark.parametrize("learner", [lambda m: BPTT(m, k1=2), lambda m: BPTT(m, carry=True), FPTT, DNI])
def test_a_state_that_cannot_be_given_back(learner: Callable) -> None:
    for model in (Forgetful().double(), nn.Sequential(nn.Linear(3, 3), rc.GRU(3, 2)).double()):
        with pytest.raises(rc.OptionError, match=r"takes none|a layer of one direction"):
            learner(model).step(*data())


@pytest.mark.parametrize("learner", [RTRL, UKF, DEKF, DNI, FORCE, OriginalLSTMRule, lambda m: BPTT(m, k1=2)])
def test_a_layer_that_carries_its_own_state(learner: Callable) -> None:
    with pytest.raises(rc.OptionError, match="initial='carried'"):
        learner(Predictor(rc.LSTM(3, 4, initial="carried"), 2))


def test_whole_calls_start_from_the_state_that_a_layer_carries() -> None:
    model, (x, target) = Predictor(rc.GRU(3, 4, initial="carried"), 2).double(), data()
    state = model(torch.randn(3, 2, 3, dtype=torch.float64))[1]
    nn.functional.mse_loss(model(x, state.detach())[0], target).backward()
    expected = {n: p.grad for n, p in model.named_parameters()}
    model.layer.carried_state = [(state[0].detach(),)]
    found = change(model, BPTT(model, "mse", "sgd", 1.0), x, target)
    for name, gradient in expected.items():
        assert_close(found[name], gradient)


@pytest.mark.parametrize("learner", [UKF, EProp, rc.train.RFLO, OriginalLSTMRule])
def test_a_learned_start_that_would_not_learn(learner: Callable) -> None:
    with pytest.raises(rc.OptionError, match="learned start"):
        learner(Predictor(rc.LSTM(3, 4, initial="learned"), 2))


@pytest.mark.parametrize("name", ["delay_rnn", "tau_gru"])
def test_a_learned_start_of_a_delayed_state(name: str) -> None:
    model, (x, target) = Predictor(rc.layer(name, 3, 4, initial="learned"), 2).double(), data()
    with set_backend("auto"):
        found = RTRL(model, "mse").gradients(x, target)
    nn.functional.mse_loss(model(x)[0], target).backward()
    assert float(found["layer.cells.0.h_0"].abs().max()) > 0
    for n, p in model.named_parameters():
        assert_close(found[n], torch.zeros_like(p) if p.grad is None else p.grad)


@pytest.mark.parametrize("learner", [RTRL, SnAp, DEKF, UKF, EProp])
def test_what_is_drawn_in_training(learner: Callable) -> None:
    x, target = (value[:, :1].float() for value in data())
    drawn = [
        Predictor(rc.LSTM(3, 4, modifiers=rc.WeightDrop(0.5)), 2),
        Predictor(rc.GRU(3, 4, 2, dropout=0.5), 2),
    ]
    if learner in (DEKF, UKF):
        drawn.append(Predictor(rc.GRU(3, 4), nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2))))
    for model in drawn:
        with pytest.raises(rc.OptionError, match="training mode"):
            learner(model).step(x, target)
        if learner is not EProp or model is drawn[0]:  # e-prop takes one layer
            assert learner(model.eval()).step(x, target) > 0


@pytest.mark.parametrize("learner", [BPTT, RTRL, DEKF, UKF, DNI, FORCE])
def test_a_model_with_nothing_to_train(learner: Callable) -> None:
    with pytest.raises(rc.InputError, match="without trainable parameters"):
        learner(Predictor(rc.GRU(3, 4), 2).requires_grad_(False))


def test_force_leaves_a_frozen_head_alone() -> None:
    model = Predictor(rc.GRU(3, 4), 2)
    model.head.requires_grad_(False)
    with pytest.raises(rc.OptionError, match="head without requires_grad"):
        FORCE(model)


def test_a_model_of_more_than_x() -> None:
    with pytest.raises(rc.InputError, match="ESRNN, which reads y, series"):
        BPTT(rc.models.ESRNN(2, 3))
    with pytest.raises(rc.InputError, match="EncoderDecoder, which reads source, target"):
        BPTT(rc.models.EncoderDecoder(rc.GRU(3, 4), rc.GRU(7, 4), outputs=5))


@pytest.mark.parametrize("run", [rc.train.fit, rc.train.evaluate])
def test_fit_reads_no_batch_as_time(run: Callable) -> None:
    xs = [torch.randn(4, 3) for _ in range(4)]
    data = rc.data.SequenceSet.from_arrays(xs, [torch.randn(4, 2) for _ in xs], "forecasting")
    for model in (rc.LSTM(3, 2, batch_first=True), nn.LSTM(3, 2, batch_first=True)):
        with pytest.raises(rc.InputError, match="LSTM with batch_first=True"):
            run(model, data)


# ---------------------------------------------------------------------------------------------------- BPTT


@pytest.mark.parametrize("k1", [2, 4, 5, 6])
def test_no_window_is_truncated_by_k2_of_the_whole(k1: int) -> None:
    """Also the last one, which may be shorter than k1."""
    model, (x, target) = Predictor(rc.GRU(3, 4), 2).double(), data()
    nn.functional.mse_loss(model(x)[0], target).backward()
    expected = {n: p.grad for n, p in model.named_parameters()}
    found = change(model, BPTT(model, "mse", "sgd", 1.0, k1=k1, k2=6, update="call"), x, target)
    for name, gradient in expected.items():
        assert_close(found[name], gradient)


@pytest.mark.parametrize(
    "network", [lambda: rc.HierarchicalRNN(3, [1, 1], [1, 2]), lambda: rc.NARX(3, 2, 4), lambda: nn.LSTM(3, 2)]
)
def test_l1_reaches_every_recurrent_network(network: Callable[[], nn.Module]) -> None:
    model, (x, target) = network().double(), data()
    y = model(x)[0]
    (nn.functional.mse_loss(y, target) + 0.3 * y.abs().sum() / 12).backward()
    expected = {n: p.grad for n, p in model.named_parameters()}
    found = change(model, BPTT(model, "mse", "sgd", 1.0, l1=0.3), x, target)
    for name, gradient in expected.items():
        assert_close(found[name], gradient)


def test_l1_of_a_model_without_recurrence_is_refused() -> None:
    with pytest.raises(rc.OptionError, match="no recurrent layer"):
        BPTT(nn.Linear(3, 2).double(), l1=0.1).step(*data())


class LastOutput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = rc.GRU(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layer(x)[0][-1])


def test_as_many_steps_as_sequences_are_no_outputs_per_step() -> None:
    model, (x, _) = LastOutput().double(), data(2)
    target = torch.randint(2, (2,))
    expected = float(nn.functional.cross_entropy(model(x).detach(), target))
    assert BPTT(model).step(x, target) == pytest.approx(expected)


def test_outputs_of_other_steps_than_x_are_refused() -> None:
    model = rc.TDNN(3, [4, 2], [(-1, 0, 1), (0,)]).double()  # two frames shorter
    with pytest.raises(rc.ShapeError, match="6 steps, as x"):
        BPTT(model).step(*data())


# ---------------------------------------------------------------------------------------------------- DNI


@pytest.mark.parametrize(
    "network", [lambda: rc.HierarchicalRNN(3, [3, 2], [1, 3], "lstm"), lambda: rc.NARX(3, 2, 4, output_delays=(1, 3))]
)
def test_dni_trains_networks_in_windows(network: Callable[[], nn.Module]) -> None:
    model, (x, target) = Predictor(network(), 2).double(), data()
    nn.functional.mse_loss(model(x)[0], target).backward()
    expected = {n: p.grad.clone() for n, p in model.named_parameters()}
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    found = change(model, DNI(model, "mse", "sgd", 1.0, window=6), x, target)
    for name, gradient in expected.items():
        assert_close(found[name], gradient)
    model.load_state_dict(before)
    windows = DNI(model, "mse", "sgd", 1.0, window=2, update="call")
    truncated = change(model, windows, x, target)
    model.load_state_dict(before)
    for name, gradient in change(model, BPTT(model, "mse", "sgd", 1.0, k1=2, update="call"), x, target).items():
        assert_close(truncated[name], gradient)  # the map is still zero
    assert windows.step(x, target) > 0


@pytest.mark.parametrize(
    ("learner", "model", "got"),
    [
        (FORCE, lambda: Predictor(rc.HierarchicalRNN(3, [2, 2], [1, 2]), 2), "Predictor of HierarchicalRNN"),
        (FORCE, lambda: rc.BaldiBRNN(3, 4, 2), "BaldiBRNN"),
        (OriginalLSTMRule, lambda: Predictor(rc.HierarchicalRNN(3, [2, 2], [1, 2]), 2), "HierarchicalRNN"),
        (OriginalLSTMRule, lambda: Predictor(rc.NARX(3, 2, 4)), "NARX"),
    ],
)
def test_networks_are_refused_by_their_own_names(learner: Callable, model: Callable, got: str) -> None:
    with pytest.raises(rc.RecurraError, match=f"^model: got {got}, expected"):
        learner(model())
