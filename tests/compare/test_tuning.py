"""The search: what it sees, what it tries, what it needs."""

import sys
from pathlib import Path

import numpy as np
import optuna
import pytest
from compare.data import tagged, turns, waves

from recurra.compare import compare
from recurra.compare.plan import Rules
from recurra.compare.sizes import Blank
from recurra.compare.tuning import _settings, _space, _study, search, validated
from recurra.compare.worker import Duty
from recurra.errors import InputError, MissingPackageError
from recurra.problem import ask


def duty(file: object, folder: Path, **rules) -> Duty:
    return Duty(Rules({"source": str(file)}, **rules), folder, 1, 60.0)


def test_sequences_to_judge_by_come_from_the_training_data(tmp_path):
    question = ask(str(turns(tmp_path / "turns.csv", 40)))
    inner = validated(question)
    taken = {id(x) for x in (*inner.train[0], *inner.test[0])}
    assert taken == {id(x) for x in question.train[0]}
    assert len(inner.train[0]) + len(inner.test[0]) == len(question.train[0])
    assert set(inner.test[1]) == {"left", "right"}


def test_series_to_judge_by_end_where_the_test_begins(tmp_path):
    question = ask(str(waves(tmp_path / "waves.csv")), season=12, horizon=6)
    inner = validated(question)
    assert inner.train[0].num_rows + inner.test[0].num_rows == question.train[0].num_rows
    for name in ("a", "b"):
        parts = [part.to_pylist() for part in (inner.train[0], inner.test[0])]
        learned, held = ([row["ds"] for row in part if row["unique_id"] == name] for part in parts)
        assert len(held) % 6 == 0
        assert max(learned) < min(held)
        assert max(held) < min(row["ds"] for row in question.test[0].to_pylist())
    short = ask(str(waves(tmp_path / "short.csv", 24)), horizon=8)
    with pytest.raises(InputError, match="tune"):
        validated(short)


def test_sentences_and_text(tmp_path):
    question = ask(str(tagged(tmp_path / "tags.conll")))
    inner = validated(question)
    assert sorted(inner.train[0] + inner.test[0]) == sorted(question.train[0])
    assert [len(tags) for tags in inner.test[1]] == [len(words) for words in inner.test[0]]
    (tmp_path / "text.txt").write_text("abcdefghij" * 20)
    question = ask(str(tmp_path / "text.txt"))
    inner = validated(question)
    assert inner.train[0] + inner.test[0] == question.train[0]


def test_a_search_that_was_interrupted_tries_what_it_would_have_tried(tmp_path):
    file = turns(tmp_path / "turns.csv")
    question, told = ask(str(file)), duty(file, tmp_path, tune=9)

    def trials(first: list[dict], count: int) -> list[dict]:
        done = list(first)
        while len(done) < count:
            params = _study(optuna, done, question, told).ask(_space(optuna, question, told)).params
            done.append({"params": params, "value": None if len(done) == 3 else -np.log(params["lr"])})
        return done

    whole = trials([], 9)
    assert trials(whole[:4], 9) == whole
    assert len({trial["params"]["lr"] for trial in whole}) == 9


def test_depth_changes_the_units_not_the_parameters(tmp_path):
    file = turns(tmp_path / "turns.csv")
    question, told = ask(str(file)), duty(file, tmp_path, tune=2, hidden_size=24)
    blank = Blank(question, {})
    wanted = blank.parameters("lstm", 24)
    for depth in (1, 2):
        found = _settings({"lr": 0.01, "num_layers": depth}, told, blank, "gru")
        assert blank.parameters("gru", found["hidden_size"], num_layers=depth) == pytest.approx(wanted, rel=0.05)
    free = duty(file, tmp_path, tune=2, budget="time")
    assert "hidden_size" in _space(optuna, question, free)
    assert "hidden_size" not in _space(optuna, question, told)
    assert "lr" not in _space(optuna, question, duty(file, tmp_path, settings={"lr": 0.1}))


def test_the_best_of_the_trials(tmp_path):
    file = turns(tmp_path / "turns.csv", 40)
    question = ask(str(file))
    heard = []
    found = search(
        duty(file, tmp_path, tune=3, epochs=2, hidden_size=4), question, "rnn", lambda share, word: heard.append(share)
    )
    values = [trial["value"] for trial in found["trials"]]
    assert found["score"] == max(values)
    assert found["settings"] == found["trials"][values.index(max(values))]["settings"]
    assert all(0 <= share <= 1 for share in heard)


def test_without_optuna_it_says_what_to_install(tmp_path, monkeypatch):
    file = turns(tmp_path / "turns.csv")
    monkeypatch.setitem(sys.modules, "optuna", None)
    for option in ({"tune": 2}, {"storage": "sqlite:///x.db"}):
        with pytest.raises(MissingPackageError, match=r"recurra\[tune\]"):
            compare(str(file), **option, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
