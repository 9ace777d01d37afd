"""A fit inside an estimator goes on where it was stopped, and is heard from outside."""

import signal

import numpy as np
import pytest

import recurra as rc
from recurra.train.checkpoint import Checkpoints, saved
from recurra.train.fit_context import fit_context
from recurra.train.fit_errors import Interrupted


def _data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(24, 7, 3)), np.arange(24) % 2


class StopAt:
    """Sends this process the signal a scheduler would send, in the middle of an epoch."""

    def __init__(self, step):
        self.step = step

    def __call__(self, event, run):
        if event == "step" and run.progress.step == self.step:
            signal.raise_signal(signal.SIGTERM)


def _classifier():
    return rc.SequenceClassifier("gru", 5, epochs=4, batch_size=8, random_state=3)


def test_an_interrupted_estimator_goes_on_to_the_same_weights(tmp_path):
    X, y = _data()
    whole = _classifier().fit(X, y)
    with fit_context(tmp_path / "run", [StopAt(5)]), pytest.raises(Interrupted) as stopped:
        _classifier().fit(X, y)
    assert stopped.value.checkpoint is not None
    steps = []
    with fit_context(
        tmp_path / "run", [lambda event, run: steps.append(run.progress.step) if event == "step" else None]
    ):
        resumed = _classifier().fit(X, y)
    assert steps == list(range(6, 13))
    assert resumed.history_ == whole.history_
    np.testing.assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))


def test_outside_nothing_is_kept(tmp_path):
    X, y = _data()
    with fit_context(tmp_path / "inside"):
        pass
    heard = []
    with fit_context(None, [lambda event, run: heard.append(event)]):
        _classifier().fit(X, y)
    assert heard[0] == "start"
    assert heard[-1] == "end"
    count = len(heard)
    _classifier().fit(X, y)
    assert len(heard) == count
    assert list(tmp_path.iterdir()) == []


def test_two_fits_in_a_row_do_not_take_each_others_place(tmp_path):
    X, y = _data()
    whole = [_classifier().fit(X, y), _classifier().set_params(cell="lstm").fit(X, y)]
    for _ in range(2):  # the second time, both are found finished
        with fit_context(tmp_path / "run"):
            kept = [_classifier().fit(X, y), _classifier().set_params(cell="lstm").fit(X, y)]
        for one, other in zip(whole, kept, strict=True):
            np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["fit-1", "fit-2"]


def test_short_epochs_are_not_all_saved_but_the_last_one_is(tmp_path):
    X, y = _data()
    counts = []
    for apart in (0.0, 1000.0):
        kept = Checkpoints(tmp_path / f"{apart}", keep=100, apart=apart)
        with fit_context(kept):
            whole = _classifier().fit(X, y)
        numbers = [path.name for path in saved(tmp_path / f"{apart}" / "fit-1")]
        counts.append(len(numbers))
        with fit_context(kept, [lambda event, run: pytest.fail("a step again") if event == "step" else None]):
            again = _classifier().fit(X, y)
        np.testing.assert_array_equal(whole.predict_proba(X), again.predict_proba(X))
    assert counts == [1 + 4, 1 + 1]  # one before the first step
