"""The leaderboard: ranking, mean and std, table, JSON, SVG."""

import json
import math
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from recurra.compare.leaderboard import Leaderboard


def row(name, seed, score, kind="cell", **more):
    return {"name": name, "seed": seed, "kind": kind, "score": score, "parameters": 10, "seconds": 1.0, **more}


def problem(metric="accuracy", higher=True):
    return SimpleNamespace(source="x/data.csv", task="classify", metric=metric, higher_is_better=higher)


ROWS = [
    row("majority", 0, 0.5, "baseline"),
    row("lstm", 0, 0.8),
    row("lstm", 1, 0.9, seconds=3.0),
    row("gru", 0, 0.95),
    {"name": "gru", "seed": 1, "kind": "cell", "error": "NonFiniteError: step 3"},
    {"name": "bad", "seed": 0, "kind": "cell", "error": "NonFiniteError: step 1"},
]


def test_best_first_and_failures_last(tmp_path):
    board = Leaderboard.of(ROWS, problem(), tmp_path)
    assert [one.name for one in board.entries] == ["gru", "lstm", "majority", "bad"]
    assert board.best.name == "gru"
    lstm = board.entries[1]
    assert lstm.mean == pytest.approx(0.85)
    assert lstm.std == pytest.approx(math.sqrt(0.005))
    assert lstm.seconds == 2.0
    assert board.entries[0].errors == ("NonFiniteError: step 3",)
    assert board.entries[0].std is None
    less = Leaderboard.of(ROWS, problem("mase", False), tmp_path)
    assert [one.name for one in less.entries] == ["majority", "lstm", "gru", "bad"]


def test_ties_rank_the_smaller_model_first(tmp_path):
    rows = [row("big", 0, 0.9, parameters=100), row("small", 0, 0.9, parameters=99)]
    assert Leaderboard.of(rows, problem(), tmp_path).entries[0].name == "small"


def test_the_table_fits_into_80_columns(tmp_path):
    board = Leaderboard.of(ROWS, problem(), tmp_path)
    console = Console(width=80, record=True, file=StringIO())
    console.print(board)
    text = console.export_text()
    assert "85.0 ± 7.1 %" in text
    assert "majority (baseline)" in text
    assert "failed" in text
    assert "…" not in text
    assert [line[""] for line in board.table_rows()] == ["1", "2", "3", "4"]


def test_json_holds_every_row(tmp_path):
    board = Leaderboard.of(ROWS, problem(), tmp_path, tmp_path / "report.html")
    plain = json.loads(json.dumps(board.to_json(), allow_nan=False))
    assert [one["name"] for one in plain["rows"]] == ["gru", "lstm", "majority", "bad"]
    assert plain["rows"][1]["scores"] == [0.8, 0.9]
    assert plain["rows"][2]["baseline"] is True
    assert plain["rows"][3]["mean"] is None
    assert plain["report"].endswith("report.html")


def test_save_svg(tmp_path):
    Leaderboard.of(ROWS, problem(), tmp_path).save_svg(tmp_path / "board.svg")
    text = (tmp_path / "board.svg").read_text(encoding="utf-8")
    assert text.startswith("<svg")
    assert "majority" in text


def test_the_title_fits_on_one_line(tmp_path):
    problem = SimpleNamespace(source="japanese_vowels", task="classify", metric="accuracy", higher_is_better=True)
    names = ("orthogonal_rnn", "majority (baseline)")
    rows = [row(name, seed, 0.9, parameters=6129, hidden_size=68) for name in names for seed in range(3)]
    console = Console(width=80, record=True, file=StringIO())
    console.print(Leaderboard.of(rows, problem, tmp_path))
    title = "japanese_vowels: test accuracy, mean ± std of 3 seeds; higher is better"
    assert console.export_text().splitlines()[0].strip() == title
