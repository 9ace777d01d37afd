"""What all learners share."""

import pytest
import torch
from cases import Case, draw_inputs

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
