"""The leaderboard section: scores are plotted, outliers only listed."""

from recurra.inspect.leaderboard_figure import leaderboard

ROWS = [
    {"cell": "gru", "test accuracy": "98.0 ± 1.0 %", "units": "38", "scores": [97.0, 99.0]},
    {"cell": "lstm", "test accuracy": "97.0 ± 1.0 %", "units": "32", "scores": [96.0, 98.0]},
    {"cell": "rnn", "test accuracy": "96.5 ± 0.5 %", "units": "68", "scores": [96.0, 97.0]},
    {"cell": "<b>majority</b>", "test accuracy": "8.4 %", "units": "", "scores": [8.4]},
]


def test_scores_are_drawn_and_outliers_listed():
    figure, table = leaderboard(ROWS).blocks
    assert figure.figure is not None
    dots, means = figure.figure.to_dict()["data"]
    assert list(dots["x"]) == [97.0, 99.0, 96.0, 98.0, 96.0, 97.0]
    assert list(means["x"]) == [98.0, 97.0, 96.5]
    assert list(means["y"]) == ["gru", "lstm", "rnn"]
    assert "Not plotted because of outlying scores: 1" in figure.text
    assert list(table.header) == ["cell", "test accuracy", "units"]
    assert [row[0] for row in table.rows] == ["gru", "lstm", "rnn", "<b>majority</b>"]
    assert list(table.numeric) == [False, True, True]


def test_rows_without_scores_are_a_table_alone():
    rows = [{key: value for key, value in row.items() if key != "scores"} for row in ROWS]
    assert [block.kind for block in leaderboard(rows).blocks] == ["table"]
    assert leaderboard([]).blocks == []


def test_equal_scores_are_all_drawn():
    rows = [{"cell": name, "score": "1", "scores": [1.0, 1.0]} for name in "abc"]
    figure = leaderboard(rows).blocks[0].figure
    assert figure is not None
    assert len(figure.to_dict()["data"][1]["x"]) == 3


def test_names_cannot_become_markup():
    rows = [*ROWS[:2], {**ROWS[3], "scores": [97.5]}]
    figure = leaderboard(rows).blocks[0].figure
    assert figure is not None
    assert "&lt;b&gt;majority&lt;/b&gt;" in figure.to_dict()["data"][1]["y"]
