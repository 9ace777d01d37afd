"""Columns that count time within sequences, and numbers to predict at every step of trials."""

import numpy as np
import pytest

import recurra as rc

RANDOM = np.random.default_rng(0)


def trials(path, lengths, clock="ms", step=10):
    rows = [f"trial,{clock},emg,force"]
    for k, length in enumerate(lengths):
        emg = RANDOM.normal(size=length)
        rows += [f"T{k},{t * step:g},{emg[t]:.3f},{np.tanh(emg[t]):.3f}" for t in range(length)]
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize(("clock", "step"), [("ms", 10), ("elapsed", 0.02), ("cycle", 1)])
def test_a_column_that_grows_alike_in_all_sequences_is_their_time(clock, step, tmp_path):
    problem = rc.infer_problem(trials(tmp_path / "trials.csv", [12] * 8, clock, step), target="force")
    assert {column.name: column.role for column in problem.columns}[clock] == "time"


def test_a_number_at_every_step_of_trials_of_many_lengths(tmp_path):
    problem = rc.infer_problem(trials(tmp_path / "trials.csv", range(9, 19)), target="force")
    assert (problem.task, problem.schema["inputs"]) == ("regress_steps", ["emg"])
    assert "to forecast it: --task forecast" in dict(problem.summary)["task"]
    asked = rc.infer_problem(tmp_path / "trials.csv", target="force", task="forecast", horizon=2)
    assert asked.task == "forecast"


def test_sequences_of_one_length_are_forecast_and_the_other_reading_is_offered(tmp_path):
    problem = rc.infer_problem(trials(tmp_path / "trials.csv", [12] * 8), target="force")
    assert problem.task == "forecast"
    assert dict(problem.summary)["or"].endswith("'force' from emg at the same step: --task regress-steps")
