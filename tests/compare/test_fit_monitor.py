"""The training monitor of a comparison and its state in checkpoints."""

from recurra.compare.fit_monitor import FitMonitor
from recurra.train.run import restore_states, states_of


def test_seconds_in_a_checkpoint_of_0_1_0_are_restored():
    """Version 0.1.0 stored them under the class name of that time."""
    monitor = FitMonitor(lambda fraction, note: None)
    restore_states([monitor], {"0 Watch": {"seconds": 3.0, "this": 2.0}})
    assert monitor.seconds == 3.0
    assert states_of([monitor]) == {"0 Watch": {"seconds": 3.0, "this": 2.0}}
