"""The training monitor of a comparison and its state in checkpoints."""

import itertools
from types import SimpleNamespace

import numpy as np

import recurra as rc
from recurra.compare import fit_monitor
from recurra.compare.fit_monitor import FitMonitor
from recurra.train.fit_context import fit_context
from recurra.train.run import restore_states, states_of


def test_seconds_in_a_checkpoint_of_0_1_0_are_restored():
    """Version 0.1.0 stored them under the class name of that time."""
    monitor = FitMonitor(lambda fraction, note: None)
    restore_states([monitor], {"0 Watch": {"seconds": 3.0, "this": 2.0}})
    assert monitor.seconds == 3.0
    assert states_of([monitor]) == {"0 Watch": {"seconds": 3.0, "this": 2.0}}


def test_a_fit_ends_at_its_limit(monkeypatch):
    """With a clock that ticks once a look: one second an event, the first step is not counted."""
    ticks = itertools.count()
    monkeypatch.setattr(fit_monitor, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    monitor = FitMonitor(lambda fraction, note: None, limit=5.0)
    chance = np.random.default_rng(0)
    model = rc.SequenceClassifier("rnn", hidden_size=4, epochs=1000, random_state=0)
    with fit_context(callbacks=[monitor]):
        model.fit(list(chance.standard_normal((20, 5, 2))), chance.integers(0, 2, 20))
    assert 5 <= monitor.seconds / monitor.fits <= 7  # the ends of the epoch and of the run follow
