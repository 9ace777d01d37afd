"""Every file of `files/` is read as a person expects, or refused with its place and a remedy; never misread."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reading.expected import READINGS, Reading
from reading.reading_table import columns_of, sequences_and_steps

import recurra as rc
from recurra.data.data_errors import DataError
from recurra.data.readers.dispatch import TABLES
from recurra.problem import read_like_training

FILES = Path(__file__).parent / "files"
READ = [name for name, expected in READINGS.items() if not expected.error]
REFUSED = [name for name, expected in READINGS.items() if expected.error]
#: `rc.data.read` predicts every column one step ahead, or tags the steps
READ_ANYWAY = ("wide_no_target.csv", "label_without_id.csv", "names_of_rows.csv", "label_at_the_end.csv")
#: files whose models are fitted in every run; those of all files in the slow runs
FITTED = (
    "sensors.csv",
    "text_input.csv",
    "wide_static.csv",
    "archive_multi.arff",
    "shops_visitors.csv",
    "amounts.csv",
    "steps_of_persons.csv",
)
SMALL = {"hidden_size": 2, "epochs": 1}


def problem_of(name: str) -> tuple[Reading, rc.Problem]:
    expected = READINGS[name]
    return expected, rc.infer_problem(FILES / name, **expected.options)


def test_every_file_has_a_row():
    assert sorted(path.name for path in FILES.iterdir()) == sorted(READINGS)


@pytest.mark.parametrize("name", READ)
def test_roles_and_counts(name):
    expected, problem = problem_of(name)
    assert problem.task == expected.task
    if expected.task == "language":
        return
    found = columns_of(problem)
    if problem.columns:
        for role in ("id", "time", "target", "inputs", "observed", "static", "ignored"):
            assert found[role] == getattr(expected, role), role
    assert sequences_and_steps(problem) == (expected.sequences, expected.steps)
    if expected.first is not None:
        assert problem.train[0]["y"][0].as_py() == expected.first


@pytest.mark.parametrize(
    ("name", "reader"),
    [(name, rc.infer_problem) for name in REFUSED]
    + [(name, rc.data.read) for name in REFUSED if name not in READ_ANYWAY],
)
def test_refused_with_place_and_remedy(name, reader):
    with pytest.raises(DataError) as caught:
        reader(FILES / name)
    for piece in (*READINGS[name].error, name):
        assert piece in str(caught.value)


@pytest.mark.parametrize("name", [name for name in READ if READINGS[name].task in ("classify", "regress")])
def test_rc_data_read_sees_the_same_sequences(name):
    expected, problem = problem_of(name)
    options = {key: value for key, value in expected.options.items() if key not in ("target", "inputs")}
    data = rc.data.read(FILES / name, **options)
    X, y = problem.train[0] + problem.test[0], np.concatenate([problem.train[1], problem.test[1]])
    assert sorted(len(x) for x in X) == sorted(data.lengths.tolist())
    total = sum(float(np.asarray(example.inputs).sum()) for example in data)
    assert total == pytest.approx(sum(float(x.sum()) for x in X), abs=1e-4)  # float32 against float64
    if data.classes:
        assert sorted(float(c) if not isinstance(c, str) else c for c in map(_number, data.classes)) == sorted(
            set(map(_number, y.tolist()))
        )


def _number(label: Any) -> Any:
    try:
        return float(label)
    except ValueError:
        return label


@pytest.mark.parametrize(
    "name", [name if name in FITTED else pytest.param(name, marks=pytest.mark.slow) for name in READ]
)
def test_fit_and_predict_from_the_same_file(name):
    expected, problem = problem_of(name)
    more = {"batch_size": 2} if problem.task == "language" else {}
    model: Any = problem.estimator("gru", **SMALL, **more).fit(*problem.train)
    assert np.isfinite(problem.score(model))
    again = read_like_training(FILES / name, problem.schema)
    if problem.task == "forecast":
        ahead = again.X if problem.options["known"] else None
        if ahead is None:
            found = model.predict(data=again.X)
            assert sum(found[name].null_count for name in found.column_names) == 0
            assert len(found.column_names) == 2 + expected.target.count(",") + bool(expected.time)
    elif problem.task != "language":
        assert len(model.predict(again.X)) == expected.sequences


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize(
    "name", ["sensors.csv", "sensors_pandas.csv", "text_input.csv", "wide_static.csv", "amounts.csv"]
)
def test_estimators_read_dataframes_as_the_file(name, library):
    expected, problem = problem_of(name)
    frame = pytest.importorskip(library).read_csv(FILES / name)
    kind = rc.SequenceClassifier if expected.task == "classify" else rc.SequenceRegressor
    options = {"random_state": 0, **SMALL}
    bare = frame.drop(columns=expected.target) if library == "pandas" else frame.drop(expected.target)
    named, beside = kind(**options).fit(frame, expected.target), kind(**options).fit(bare, frame[expected.target])
    again = read_like_training(FILES / name, problem.schema)
    direct = kind(**options).fit(again.X, again.y)
    for model in (named, beside):
        assert model.columns_ == tuple(problem.schema["features"])
        np.testing.assert_array_equal(model.predict(bare), direct.predict(again.X))


def test_the_table_in_the_docs_is_up_to_date(repository_root):
    from reading.reading_table import render

    assert (repository_root / "docs" / "reading.md").read_text(encoding="utf-8") == render()


def test_the_files_are_those_of_the_script(tmp_path):
    from reading.write_files import write_all

    write_all(tmp_path)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (FILES / path.name).read_bytes(), path.name


def test_formats_of_tables_are_covered():
    suffixes = {"csv": ".csv", "jsonl": ".jsonl", "json": ".json", "arff": ".arff", "tsf": ".tsf", "excel": ".xlsx"}
    covered = {path.suffix for path in FILES.iterdir()}
    assert {suffixes[name] for name in TABLES if name in suffixes} <= covered
