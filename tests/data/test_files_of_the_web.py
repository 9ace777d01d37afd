"""Small copies of tables that people download: air quality, household power, clicks, labelled intervals."""

from datetime import datetime, timedelta

import numpy as np
import pytest

import recurra as rc
from recurra.data.data_errors import FormatError

X = np.sin(np.arange(80.0))
HOURS = [datetime(2004, 3, 15) + timedelta(hours=k) for k in range(80)]


@pytest.fixture
def file(tmp_path):
    def write(name: str, *lines: str):
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


def test_clocks_with_points_and_a_temperature_called_t(file):
    rows = [
        f"{t:%d/%m/%Y;%H.%M.%S};{x + 2:.1f};{10 * x:.1f};;".replace(f";{x + 2:.1f};", ";2,5;")
        for t, x in zip(HOURS, X, strict=True)
    ]
    rows = [row[:20] + row[20:].replace(".", ",") for row in rows]
    problem = rc.infer_problem(file("airq.csv", "Date;Time;CO;T;;", *rows), target="T")
    assert (problem.schema["time"], dict(problem.summary)["series"]) == (["Date", "Time"], "1, 80 steps, hourly")


def test_one_column_shows_the_decimal_sign_of_all(file):
    rows = [f"{t:%d/%m/%Y;%H:%M:%S};{4 + x:.3f};{234 + x:.2f}" for t, x in zip(HOURS, X, strict=True)]
    problem = rc.infer_problem(file("power.txt", "Date;Time;power;volts", *rows), target="power")
    assert problem.train[0]["y"][0].as_py() == 4.0


def test_seconds_called_ts_are_the_time(file):
    rows = [f"u{k // 8},{1_600_000_000 + 37 * k},{x:.2f},{'yes' if k // 8 % 2 else 'no'}" for k, x in enumerate(X)]
    problem = rc.infer_problem(file("clicks.csv", "user,ts,dwell,churn", *rows))
    assert (problem.schema["time"], problem.schema["inputs"]) == (["ts"], ["dwell"])


def test_columns_that_do_not_say_their_order_are_told_and_rows_may_be_the_steps(file):
    rows = [f"{10 * k},{10 * k + 9},{'ab'[k // 9 % 2]},{x:.2f}" for k, x in enumerate(X)]
    path = file("intervals.csv", "start,end,label,x", *rows)
    note = dict(rc.infer_problem(path).summary)["note"]
    assert note == "the columns start, end, x are taken as the steps of a sequence; if rows are the steps: --id none"
    assert rc.infer_problem(path, id="none").task == "classify_steps"


def test_a_time_of_day_alone_is_not_advised_as_an_input(file):
    rows = [f"{k // 60:02d}:{k % 60:02d}:00,{x:.2f}" for k, x in enumerate(X)]
    why = {c.name: c.why for c in rc.infer_problem(file("clock.csv", "time,v", *rows)).columns}
    assert why["time"] == "a time of day without a date; the rows are taken in their order"


def test_a_word_among_numbers_may_mean_a_missing_value(file):
    path = file("gaps.csv", "t,v", *(f"{k},{'-' if k == 7 else x}" for k, x in enumerate(X)))
    with pytest.raises(FormatError, match='if it means a missing value, say so with na="-"'):
        rc.infer_problem(path)
    assert rc.infer_problem(path, na="-", fill="interpolate").task == "forecast"
