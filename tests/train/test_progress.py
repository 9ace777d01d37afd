"""Progress of a loop where there is no bar."""

import time

from recurra.train import progress


def test_plain_lines_count_down(monkeypatch, capsys):
    monkeypatch.setattr(progress, "stderr_is_terminal", lambda: True)
    monkeypatch.setattr(progress, "is_installed", lambda name: False)
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for _ in progress.show_progress(range(4), "features", 4):
        now[0] += 6
    monkeypatch.undo()
    assert "features: 1/4, 18 s left\nfeatures: 2/4, 12 s left\n" in capsys.readouterr().err
