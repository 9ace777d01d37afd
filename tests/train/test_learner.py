"""What all learners share."""

import copy

import numpy as np
import pytest
import torch
from cases import Case, draw_inputs, randomise

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.train import BPTT, DEKF, RTRL, OriginalLSTMRule, Predictor, learn
from recurra.train.learner import step_targets

LEARNERS = [BPTT, RTRL, OriginalLSTMRule, DEKF]


@pytest.mark.parametrize("learner", LEARNERS)
def test_one_signature(learner) -> None:
    """Each learns the same small thing through the same call."""
    case = Case("lstm")
    torch.manual_seed(1)
    model = Predictor(case.layer(), 2)
    settings = {} if learner is DEKF else {"optimizer": "adam", "rate": 0.05}
    x, target = draw_inputs(case, steps=4), torch.randint(0, 2, (4, 2))
    mask = torch.ones(4, 2, dtype=torch.bool)
    with set_backend("reference"):
        losses = learn(learner(model, loss="cross_entropy", **settings), [(x, target, mask)] * 15, 15)
    assert len(losses) == 15
    assert all(isinstance(loss, float) for loss in losses)
    assert losses[-1] < 0.9 * losses[0]


def test_targets_are_spread_over_the_steps() -> None:
    x = torch.zeros(4, 3, 2)
    mask = torch.arange(4)[:, None] < torch.tensor([4, 2, 1])
    asked = step_targets(x, torch.tensor([5, 6, 7]), mask)
    assert asked.counts.nonzero().tolist() == [[0, 2], [1, 1], [3, 0]]
    assert asked.target[asked.counts].tolist() == [7, 6, 5]
    assert asked.lengths.tolist() == [4, 2, 1]
    ignored = step_targets(x, torch.tensor([[1, -100, 2]] * 4), None)
    assert ignored.counts.all(0).tolist() == [True, False, True]
    holes = step_targets(x, torch.zeros(4, 3, 1), ~mask)
    assert holes.lengths is None


def test_bad_models() -> None:
    with pytest.raises(rc.RecurraError, match="batch_first"):
        Predictor(rc.layer("gru", 3, 4, batch_first=True), 2)
    with pytest.raises(rc.RecurraError, match="model: got int"):
        BPTT(3)
    with pytest.raises(rc.RecurraError, match="x: got shape"):
        BPTT(Predictor(rc.layer("gru", 3, 4), 2)).step(torch.zeros(3, 3), torch.zeros(3, dtype=torch.int64))


# ------------------------------------------------------------------------------------------ logits and probabilities


def softmax_model() -> tuple[Predictor, torch.Tensor, torch.Tensor]:
    case = Case("lstm")
    layer = case.layer()
    model = Predictor(layer, randomise(rc.Readout(layer, 3, softmax=True).double()))
    return model, draw_inputs(case, steps=4), torch.randint(0, 3, (4, 2))


def negative_log_likelihood(p: torch.Tensor, target: torch.Tensor) -> float:
    return -float(torch.stack([p[t, b, k].log() for (t, b), k in np.ndenumerate(target.numpy())]).mean())


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_softmax_head_is_not_normalised_twice(learner) -> None:
    model, x, target = softmax_model()
    expected = negative_log_likelihood(model(x)[0].detach(), target)
    if learner is DEKF:  # moves its weights at every step: only the first is comparable
        expected, x, target = negative_log_likelihood(model(x)[0][:1].detach(), target[:1]), x[:1], target[:1]
    assert learner(model, "cross_entropy").step(x, target) == pytest.approx(expected, rel=1e-12)


def test_fit_and_evaluate_of_probabilities() -> None:
    model, x, target = softmax_model()
    data = rc.data.SequenceSet.from_arrays(list(x.unbind(1)), list(target.unbind(1)), "tagging")
    expected = negative_log_likelihood(model(x)[0].detach(), target)
    assert rc.train.evaluate(model, data)["loss"] == pytest.approx(expected, rel=1e-5)  # data are float32
    result = rc.train.fit(model, data, epochs=1, lr=1e-9, progress=False)
    assert result.history[0]["loss"] == pytest.approx(expected, rel=1e-5)


def test_kalman_filter_observes_probabilities_once() -> None:
    """A softmax head and the same head without it are one model: one update moves them alike."""
    moved = []
    first, x, target = softmax_model()
    for softmax in (True, False):
        model = copy.deepcopy(first)
        model.head.softmax = softmax
        DEKF(model, "cross_entropy").step(x, target)
        moved.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(*moved, rtol=1e-9, atol=1e-9)  # a cholesky factor is between them


def test_a_loss_of_logits_for_a_softmax_head_is_refused() -> None:
    model = softmax_model()[0]
    for loss in (torch.nn.CrossEntropyLoss(), torch.nn.BCEWithLogitsLoss()):
        with pytest.raises(rc.InputError, match="a loss of logits, for a model that returns probabilities"):
            BPTT(model, loss)


def test_binary_cross_entropy_of_a_sigmoid_head() -> None:
    layer = Case("rnn").layer()
    model = Predictor(layer, torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Sigmoid()).double())
    x, target = draw_inputs(Case("rnn"), steps=4), torch.randint(0, 2, (4, 2, 2)).double()
    p = model(x)[0].detach()
    expected = -(target * p.log() + (1 - target) * (1 - p).log()).sum(-1).mean()
    assert BPTT(model, "binary_cross_entropy").step(x, target) == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize("kind", [BPTT, RTRL])
def test_two_learners_do_not_share_the_moments_of_an_optimizer(kind):
    x = torch.randn(6, 2, 3)
    made = [kind(Predictor(rc.GRU(3, 4), 1), "mse", rate=0.01) for _ in range(2)]
    made[0].step(x, x[..., :1])
    made[1].load_state_dict(made[0].state_dict())
    moments = [each["exp_avg"].clone() for each in made[0].optimizer.state.values()]
    made[1].step(x, x[..., :1])
    assert moments
    for before, after in zip(moments, made[0].optimizer.state.values(), strict=True):
        assert torch.equal(before, after["exp_avg"])
