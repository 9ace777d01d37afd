"""Hyperparameter search: validation split, search space, resuming."""

import sys
from pathlib import Path

import numpy as np
import optuna
import pytest
from compare.data import tagged, turns, waves

from recurra.compare import compare
from recurra.compare.parameter_budget import NetworkFactory
from recurra.compare.plan import RunConfig
from recurra.compare.tuning import _rebuild_study, _search_space, _settings, search, with_validation_split
from recurra.compare.worker import WorkerSetup
from recurra.errors import InputError, MissingPackageError
from recurra.problem import infer_problem


def setup(file: object, folder: Path, **config) -> WorkerSetup:
    return WorkerSetup(RunConfig({"source": str(file)}, **config), folder, 1, 60.0)


def test_validation_sequences_come_from_the_training_data(tmp_path):
    problem = infer_problem(str(turns(tmp_path / "turns.csv", 40)))
    inner = with_validation_split(problem)
    taken = {id(x) for x in (*inner.train[0], *inner.test[0])}
    assert taken == {id(x) for x in problem.train[0]}
    assert len(inner.train[0]) + len(inner.test[0]) == len(problem.train[0])
    assert set(inner.test[1]) == {"left", "right"}


def test_validation_steps_precede_the_test_steps(tmp_path):
    problem = infer_problem(str(waves(tmp_path / "waves.csv")), season=12, horizon=6)
    inner = with_validation_split(problem)
    assert inner.train[0].num_rows + inner.test[0].num_rows == problem.train[0].num_rows
    for name in ("a", "b"):
        parts = [part.to_pylist() for part in (inner.train[0], inner.test[0])]
        learned, held = ([row["ds"] for row in part if row["unique_id"] == name] for part in parts)
        assert len(held) % 6 == 0
        assert max(learned) < min(held)
        assert max(held) < min(row["ds"] for row in problem.test[0].to_pylist())
    short = infer_problem(str(waves(tmp_path / "short.csv", 24)), horizon=8)
    with pytest.raises(InputError, match="tune"):
        with_validation_split(short)


def test_sentences_and_text(tmp_path):
    problem = infer_problem(str(tagged(tmp_path / "tags.conll")))
    inner = with_validation_split(problem)
    assert sorted(inner.train[0] + inner.test[0]) == sorted(problem.train[0])
    assert [len(tags) for tags in inner.test[1]] == [len(words) for words in inner.test[0]]
    (tmp_path / "text.txt").write_text("abcdefghij" * 20)
    problem = infer_problem(str(tmp_path / "text.txt"))
    inner = with_validation_split(problem)
    assert inner.train[0] + inner.test[0] == problem.train[0]


def test_a_resumed_search_tries_the_same_settings(tmp_path):
    file = turns(tmp_path / "turns.csv")
    problem, told = infer_problem(str(file)), setup(file, tmp_path, tune=9)

    def trials(first: list[dict], count: int) -> list[dict]:
        done = list(first)
        while len(done) < count:
            params = _rebuild_study(optuna, done, problem, told).ask(_search_space(optuna, problem, told)).params
            done.append({"params": params, "value": None if len(done) == 3 else -np.log(params["lr"])})
        return done

    whole = trials([], 9)
    assert trials(whole[:4], 9) == whole
    assert len({trial["params"]["lr"] for trial in whole}) == 9


def test_depth_changes_the_hidden_size_not_the_parameters(tmp_path):
    file = turns(tmp_path / "turns.csv")
    problem, told = infer_problem(str(file)), setup(file, tmp_path, tune=2, hidden_size=24)
    networks = NetworkFactory(problem, {})
    wanted = networks.parameters("lstm", 24)
    for depth in (1, 2):
        found = _settings({"lr": 0.01, "num_layers": depth}, told, networks, "gru")
        assert networks.parameters("gru", found["hidden_size"], num_layers=depth) == pytest.approx(wanted, rel=0.05)
    free = setup(file, tmp_path, tune=2, budget="time")
    assert "hidden_size" in _search_space(optuna, problem, free)
    assert "hidden_size" not in _search_space(optuna, problem, told)
    assert "lr" not in _search_space(optuna, problem, setup(file, tmp_path, settings={"lr": 0.1}))


def test_the_best_trial_is_chosen(tmp_path):
    file = turns(tmp_path / "turns.csv", 40)
    problem = infer_problem(str(file))
    heard = []
    found = search(
        setup(file, tmp_path, tune=3, epochs=2, hidden_size=4), problem, "rnn", lambda share, word: heard.append(share)
    )
    values = [trial["value"] for trial in found["trials"]]
    assert found["score"] == max(values)
    assert found["settings"] == found["trials"][values.index(max(values))]["settings"]
    assert all(0 <= share <= 1 for share in heard)


def test_without_optuna_the_error_names_the_extra(tmp_path, monkeypatch):
    file = turns(tmp_path / "turns.csv")
    monkeypatch.setitem(sys.modules, "optuna", None)
    for option in ({"tune": 2}, {"storage": "sqlite:///x.db"}):
        with pytest.raises(MissingPackageError, match=r"recurra\[tune\]"):
            compare(str(file), **option, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
