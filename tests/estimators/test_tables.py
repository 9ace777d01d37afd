"""Tables of every kind that Arrow can read: its own, dicts of columns, and objects that offer nothing but a stream."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import recurra as rc
from recurra.data.data_errors import FormatError
from recurra.errors import InputError, UnknownNameError

QUICK = {"hidden_size": 5, "epochs": 2, "random_state": 0}


class Stream:
    """A dataframe of which nothing is known but that Arrow can read it."""

    def __init__(self, table: pa.Table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


class Interchange:
    """A dataframe that knows the older protocol alone."""

    def __init__(self, table: pa.Table):
        self.table = table

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> object:
        return self.table.__dataframe__(nan_as_null, allow_copy)


def once(table: pa.Table) -> pa.RecordBatchReader:
    """A stream that can be read a single time."""
    return table.to_reader(max_chunksize=7)


FORMS: list[Callable[[pa.Table], Any]] = [Stream, Interchange, once, lambda table: table.to_pydict()]


def months(rows: int, series: int = 3) -> pa.Table:
    random = np.random.default_rng(0)
    when = np.arange("2015-01", "2025-01", dtype="datetime64[M]")[:rows].astype("datetime64[us]")
    ids = np.repeat([f"shop{k}" for k in range(series)], rows).astype(object)
    y = np.concatenate([100 * (k + 1) + 10 * np.sin(np.arange(rows) / 2) for k in range(series)])
    columns = {"unique_id": ids, "ds": np.tile(when, series), "y": y + random.normal(size=len(y))}
    return pa.table(columns | {"offer": random.integers(0, 2, len(y)).astype(float)})


@pytest.mark.parametrize("form", FORMS)
def test_forecasts_from_any_table(form):
    table = months(40)
    expected = rc.Forecaster(horizon=3, **QUICK).fit(table).predict()
    found = rc.Forecaster(horizon=3, **QUICK).fit(form(table)).predict()
    assert found.equals(expected)
    assert found["ds"].to_pylist()[0].isoformat() == "2018-05-01T00:00:00"


def test_names_by_category_and_labels_of_rows():
    table = months(40)
    expected = rc.Forecaster(horizon=3, **QUICK).fit(table).predict()
    codes = pa.array([int(name[4:]) for name in table["unique_id"].to_pylist()], pa.uint32())
    names = pa.array(["shop0", "shop1", "shop2"], pa.string_view())
    numbered = table.set_column(0, "unique_id", pa.DictionaryArray.from_arrays(codes, names))
    assert rc.Forecaster(horizon=3, **QUICK).fit(Stream(numbered)).predict().equals(expected)
    labelled = table.append_column("row", pa.array(range(120))).append_column("label", table["unique_id"])
    sent = {"index_columns": ["row"], "columns": [], "column_indexes": []}
    labelled = labelled.replace_schema_metadata({"pandas": json.dumps(sent)})
    assert rc.SequenceClassifier(**QUICK).fit(Stream(labelled)).columns_ == ("y", "offer")


def test_covariates_and_backtests_from_a_stream():
    table, ahead = months(40), months(43).filter(pa.array([k % 43 >= 40 for k in range(3 * 43)]))
    model = rc.Forecaster(horizon=3, known=("offer",), **QUICK).fit(Stream(table))
    expected = model.predict(future=ahead)
    assert model.predict(future=Stream(ahead.drop_columns("y"))).equals(expected)
    assert model.predict(data=Stream(table), future=once(ahead)).equals(expected)
    assert model.backtest(Stream(table), windows=2).scores == model.backtest(table, windows=2).scores


def test_one_series_needs_no_name():
    table = months(40, series=1)
    expected = rc.Forecaster(horizon=3, **QUICK).fit(table).predict()
    found = rc.Forecaster(horizon=3, **QUICK).fit(Stream(table.select(["ds", "y"]))).predict()
    np.testing.assert_array_equal(found["y"], expected["y"])
    assert found["ds"].equals(expected["ds"])


@pytest.mark.parametrize("form", FORMS)
def test_sequences_from_any_table(form):
    table = months(12, series=8)
    labels = pa.array([("odd", "even")[int(name[4:]) % 2 == 0] for name in table["unique_id"].to_pylist()])
    labelled = table.append_column("label", labels)
    model = rc.SequenceClassifier(**QUICK).fit(labelled)
    same = rc.SequenceClassifier(**QUICK).fit(form(labelled))
    np.testing.assert_array_equal(same.predict_proba(form(table)), model.predict_proba(table))
    assert same.score(form(labelled)) == model.score(labelled)


def test_one_row_a_sequence():
    X = np.random.default_rng(0).normal(size=(10, 6))
    wide = pa.table({f"t{k}": X[:, k] for k in range(6)})
    expected = rc.SequenceRegressor(**QUICK).fit(X, X.sum(axis=1)).predict(X)
    for form in (wide, Stream(wide)):
        found = rc.SequenceRegressor(**QUICK).fit(form, X.sum(axis=1)).predict(form)
        np.testing.assert_array_equal(found, expected)


WORDS = {
    "unique_id": [0, 0, 0, 1, 1, 2, 2, 2],
    "word": ["the", "old", "man", "rain", "fell", "he", "saw", "rain"],
    "tag": ["D", "A", "N", "N", "V", "P", "V", "N"],
}
LISTS = [["the", "old", "man"], ["rain", "fell"], ["he", "saw", "rain"]]
TAGS = [["D", "A", "N"], ["N", "V"], ["P", "V", "N"]]


@pytest.mark.parametrize("form", [pa.table, lambda columns: Stream(pa.table(columns)), dict])
def test_words_from_any_table(form):
    small = QUICK | {"tagger_options": {"word_size": 4, "char_size": 3, "char_features": 3}}
    expected = rc.SequenceTagger(**small).fit(LISTS, TAGS)
    found = rc.SequenceTagger(**small).fit(form(WORDS))
    bare = form({name: WORDS[name] for name in ("unique_id", "word")})
    for one, other in zip(found.predict_proba(bare), expected.predict_proba(LISTS), strict=True):
        np.testing.assert_array_equal(one, other)
    assert found.predict(bare) == expected.predict(LISTS)
    assert found.score(form(WORDS)) == expected.score(LISTS, TAGS)
    renamed = {"unique_id": WORDS["unique_id"], "token": WORDS["word"], "part of speech": WORDS["tag"]}
    assert rc.SequenceTagger(**small).fit(form(renamed), "part of speech").predict(bare) == found.predict(bare)


def test_texts_from_a_column():
    quick = QUICK | {"batch_size": 2, "chunk": 5}
    texts = ["to be or not to be", "that is the question"]
    expected = rc.LanguageModelEstimator(**quick).fit(texts)
    for form in (pa.table({"text": texts}), Stream(pa.table({"text": texts}))):
        assert rc.LanguageModelEstimator(**quick).fit(form).score(form) == expected.score(texts)


def test_what_is_wrong_with_a_table_is_named():
    with pytest.raises(UnknownNameError, match="a table without the column 'text': words"):
        rc.LanguageModelEstimator().fit(pa.table({"words": ["to be"]}))
    with pytest.raises(InputError, match=r"column 'text', row 1: got None"):
        rc.LanguageModelEstimator().fit(Stream(pa.table({"text": ["to be", None]})))
    with pytest.raises(InputError, match="the columns unique_id, tag, expected a column named word or token"):
        rc.SequenceTagger().fit({"unique_id": [0], "tag": ["N"]})
    with pytest.raises(UnknownNameError, match="did you mean 'tag'"):
        rc.SequenceTagger().fit(WORDS, "tagg")
    with pytest.raises(InputError, match="y: got nothing, expected the tags"):
        rc.SequenceTagger().fit(LISTS)


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize(("name", "target"), [("steps_of_persons.csv", "activity"), ("labels_over_time.csv", "label")])
def test_steps_of_a_table_as_of_the_file(name, target, library):
    """Without a usual name for the id, or with dates and none; the target named or beside the rows."""
    path = Path(__file__).parents[1] / "reading" / "files" / name
    frame = pytest.importorskip(library).read_csv(path)
    bare = frame.drop(columns=target) if library == "pandas" else frame.drop(target)
    options = {"cell": "gru", "hidden_size": 2, "epochs": 1, "random_state": 0}
    problem = rc.infer_problem(path, target=target, test=0)
    expected = rc.StepClassifier(**options).fit(*problem.train).predict(problem.train[0])
    for data, y in ((frame, target), (bare, frame[target])):
        model = rc.StepClassifier(**options).fit(data, y)
        for found, rows in zip(model.predict(bare), expected, strict=True):
            np.testing.assert_array_equal(found, rows)
        assert 0 <= model.score(data, y) <= 1


def small(**options):
    return rc.SequenceClassifier("gru", hidden_size=2, epochs=1, random_state=0, **options)


def test_the_levels_of_an_index_are_columns():
    pd = pytest.importorskip("pandas")
    k = np.arange(48)
    frame = pd.DataFrame({"id": k // 4, "t": k % 4, "x": np.sin(k), "label": np.array(["a", "b"])[k // 4 % 2]})
    model = small().fit(frame.set_index(["id", "t"]), "label")
    assert model.columns_ == ("x",)
    np.testing.assert_array_equal(
        model.predict(frame.set_index(["id", "t"])), small().fit(frame, "label").predict(frame)
    )


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_series_of_lists_is_a_list_of_sequences(library):
    series = pytest.importorskip(library).Series([[1.0, 2.0], [3.0, 1.0, 2.0]] * 6)
    model = small().fit(series, [0, 1] * 6)
    np.testing.assert_array_equal(model.predict(series), model.predict([np.array(x) for x in series.to_list()]))


def test_text_where_training_had_numbers_is_named():
    table = {"id": [0, 0, 1, 1], "x": [1.0, 2.0, 3.0, 4.0], "label": ["a", "a", "b", "b"]}
    model = small().fit(table, "label")
    with pytest.raises(FormatError, match=r"column 'x': got text such as '1.0x', expected numbers, as in training"):
        model.predict({**table, "x": [f"{v}x" for v in table["x"]]})


def test_text_is_no_series_to_forecast():
    table = {"ds": [f"2024-01-{k + 1:02d}" for k in range(20)], "y": ["a", "b"] * 10}
    with pytest.raises(InputError, match=r"column 'y': got text such as 'a', expected numbers to forecast"):
        rc.Forecaster(horizon=2).fit(table)


def test_labels_that_are_none_and_weights_of_other_classes_are_named():
    X = np.zeros((4, 3, 1))
    with pytest.raises(InputError, match=r"y\[1\]: got None"):
        small().fit(X, ["a", None, "a", "b"])
    with pytest.raises(InputError, match="class_weight: got a weight of 7"):
        small(class_weight={0: 1, 7: 2}).fit(X, [0, 1, 0, 1])


def test_advice_names_what_can_be_done_with_a_table():
    table = {"id": [0, 1, 0, 1], "x": [1.0, 2.0, 3.0, 4.0], "label": ["a", "b", "a", "b"]}
    with pytest.raises(FormatError, match=r"contiguous rows; sort the rows by sequence and time$"):
        small().fit(table, "label")
    gap = {"ds": [f"2024-01-{k:02d}" for k in (1, 2, 3, 5, 6, 7, 8, 9)], "y": [1.0] * 8}
    with pytest.raises(InputError, match=r"evenly spaced steps; fill the gaps in the table$"):
        rc.Forecaster(horizon=2).fit(gap)


@pytest.mark.parametrize("kind", ["int64", "int8", "float64", "bool", "category"])
@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_classes_have_the_type_of_the_column_of_labels(tmp_path, kind, library):
    """They were texts: `predict` answered "1" where the column has 1."""
    rows = [(n, n % 2 + 0.1 * step) for n in range(12) for step in range(3)]
    frame = pd.DataFrame(rows, columns=["id", "x"])
    frame["label"] = (frame.id % 2).astype(kind)
    labels = frame.groupby("id").label.first().to_numpy()
    given = frame if library is pd.DataFrame else pl.from_pandas(frame)
    model = rc.SequenceClassifier("gru", hidden_size=4, epochs=1, random_state=0).fit(given, "label")
    assert model.classes_.dtype == np.asarray(labels).dtype or kind in ("int8", "category")
    model.save(tmp_path / "model")
    assert set(rc.load(tmp_path / "model").predict(given).tolist()) <= set(labels.tolist())


def test_forecasts_keep_the_time_zone_of_the_index():
    """Days stay days where clocks change; hours are hours of one clock, UTC, in between."""
    for frequency in ("D", "h"):
        times = pd.date_range("2021-03-01", periods=60, freq=frequency, tz="Europe/Berlin")
        series = pd.Series(np.sin(np.arange(60.0)), index=times, name="y")
        found = rc.Forecaster("gru", horizon=3, hidden_size=4, epochs=1, random_state=0).fit(series).predict()
        expected = pd.date_range(times[-1], periods=4, freq=frequency)[1:]
        assert found.index.equals(expected.rename("ds").as_unit(found.index.unit))
        assert found.index.tz == times.tz
