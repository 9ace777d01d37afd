"""The verdict: what wins, ties within the spread, and baselines that are better."""

import pytest
from compare.test_leaderboard import problem, row

from recurra.compare.leaderboard import Leaderboard


def board(tmp_path, scores, metric="accuracy", higher=True):
    """`scores`: name → scores of its seeds; a name in capitals is a baseline."""
    rows = [
        row(name, seed, score, "baseline" if name.isupper() else "cell")
        for name, each in scores.items()
        for seed, score in enumerate(each)
    ]
    return Leaderboard.of(rows, problem(metric, higher), tmp_path)


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        (
            {"gru": [0.90, 0.92], "rnn": [0.80, 0.82], "LINEAR": [0.7]},
            "gru wins with 91.0 ± 1.4 %, 10.0 points better than rnn (81.0 ± 1.4 %), more than the spread over seeds. "
            "gru is 21.0 points better than the best baseline, LINEAR (70.0 %), more than the spread over seeds.",
        ),
        (
            {"gru": [0.90, 0.92], "rnn": [0.90, 0.92], "LINEAR": [0.915]},
            "gru (91.0 ± 1.4 %) and the baseline LINEAR (91.5 %) tie: no cell is better than LINEAR here.",
        ),
        (
            {"gru": [0.90, 0.92], "LINEAR": [0.99]},
            "The baseline LINEAR wins with 99.0 %, 8.0 points better than the best cell, gru (91.0 ± 1.4 %), more than "
            "the spread over seeds.",
        ),
        (
            {"gru": [0.9], "rnn": [0.8]},
            "gru wins with 90.0 %, 10.0 points better than rnn (80.0 %) (one seed each: repeat with more seeds before "
            "relying on it).",
        ),
        (
            {"gru": [0.90, 0.92], "rnn": [0.90, 0.91], "mgu": [0.5, 0.5]},
            "gru is first with 91.0 ± 1.4 %; rnn ties with it within the spread over seeds.",
        ),
    ],
)
def test_the_verdict_names_what_wins(tmp_path, scores, said):
    assert board(tmp_path, scores).verdict == said


def test_lower_is_better_for_errors(tmp_path):
    found = board(tmp_path, {"gru": [0.5, 0.52], "NAIVE": [0.9]}, "mase", higher=False)
    assert found.verdict.startswith("gru reaches 0.5100 ± 0.0141. gru is 0.3900 better than the best baseline, NAIVE")
    assert found.to_json()["verdict"] == found.verdict


def test_failed_cells_are_said(tmp_path):
    rows = [{"name": "gru", "seed": 0, "kind": "cell", "error": "NonFiniteError: step 3"}]
    found = Leaderboard.of([*rows, row("linear", 0, 0.5, "baseline")], problem(), tmp_path)
    assert found.verdict == "All cells failed. The best baseline is linear (50.0 %)."
