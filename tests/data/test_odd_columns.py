"""Columns beside the data of a table, or of an odd type: used, ignored or refused, never misread."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recurra as rc
from recurra.data.data_errors import FormatError
from recurra.problem.reread import read_like_training


@pytest.fixture
def frame():
    """24 sequences of 5 steps, `x` higher in sequences labelled q."""
    rng = np.random.default_rng(0)
    rows = [{"id": s, "t": t, "x": rng.normal() + s % 2, "label": "pq"[s % 2]} for s in range(24) for t in range(5)]
    return pd.DataFrame(rows)


def _roles(path, **options):
    return {column.name: column.role for column in rc.infer_problem(path, **options).columns}


def test_the_index_of_a_sorted_frame_is_no_input(frame, tmp_path):
    """Sorted by label, the index tells the label."""
    frame.sort_values("label", kind="stable").to_parquet(tmp_path / "sorted.parquet")
    assert _roles(tmp_path / "sorted.parquet")["__index_level_0__"] == "ignored"
    frame.sort_values("label", kind="stable").reset_index().to_csv(tmp_path / "sorted.csv", index=False)
    assert _roles(tmp_path / "sorted.csv")["index"] == "ignored"


@pytest.mark.parametrize(("name", "kind"), [("label", "binary"), ("t", "duration")])
def test_a_named_column_of_an_odd_type_is_refused(frame, tmp_path, name, kind):
    """It was ignored, and something else was predicted."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    odd = {
        "label": pa.array([text.encode() for text in frame.label], pa.binary()),
        "t": pa.array(frame.t.tolist(), pa.duration("s")),
    }[name]
    pq.write_table(table.set_column(table.column_names.index(name), name, odd), tmp_path / "odd.parquet")
    with pytest.raises(FormatError, match=f"column '{name}': got a column of type {kind}"):
        rc.infer_problem(tmp_path / "odd.parquet")
    assert rc.infer_problem(tmp_path / "odd.parquet", ignore=name)


def test_whole_numbers_beyond_double_precision_are_inputs(frame, tmp_path):
    frame["x"] = (1e3 * frame.x).astype("int64") + 2**60
    frame.to_parquet(tmp_path / "large.parquet")
    problem = rc.infer_problem(tmp_path / "large.parquet")
    assert problem.train[0][0][0, -1] == pytest.approx(2**60, rel=1e-9)


@pytest.mark.parametrize("suffix", ["csv", "xlsx"])
def test_a_faulty_column_can_be_left_out_as_its_error_says(frame, tmp_path, suffix):
    frame = frame.assign(z=frame.x).astype({"x": object})
    frame.loc[7, "x"] = "oops"
    path = tmp_path / f"faulty.{suffix}"
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_excel(path, index=False)
    with pytest.raises(FormatError, match=r"line 9, column 'x': got 'oops' in sequence '1'.* leave the column out"):
        rc.infer_problem(path)
    problem = rc.infer_problem(path, ignore="x")
    assert problem.schema["inputs"] == ["z"]
    assert len(read_like_training(path, problem.schema).X) == 24


def test_labels_and_ids_of_a_sheet_may_mix_numbers_and_text(frame, tmp_path):
    frame = frame.astype({"id": object, "label": object})
    frame.loc[frame.id == 5, "id"] = "A5"
    frame["label"] = [1 if label == "p" else "x" for label in frame.label]
    frame.to_excel(tmp_path / "mixed.xlsx", index=False)
    problem = rc.infer_problem(tmp_path / "mixed.xlsx")
    assert (problem.task, sorted(set(problem.train[1]))) == ("classify", ["1", "x"])
    assert len(problem.train[0]) + len(problem.test[0]) == 24


@pytest.mark.parametrize("suffix", ["csv", "parquet", "json"])
def test_days_of_a_time_zone_are_days(tmp_path, suffix):
    """The day on which clocks change has 23 hours."""
    days = pd.date_range("2021-03-01", periods=60, tz="Europe/Berlin")
    frame, path = pd.DataFrame({"ds": days, "y": np.sin(np.arange(60.0))}), tmp_path / f"days.{suffix}"
    if suffix == "parquet":
        frame.to_parquet(path)
    elif suffix == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.assign(ds=[day.isoformat() for day in days]).to_json(path, orient="records")
    problem = rc.infer_problem(path)
    assert dict(problem.summary)["series"] == "1, 60 steps, daily"
    assert str(problem.train[0].column("ds")[0].as_py()).startswith("2021-03-01")
