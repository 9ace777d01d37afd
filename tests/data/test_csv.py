"""Delimited text: parts of columns, and every fault with its file, line and column."""

import gzip
from pathlib import Path

import pytest
import torch

from recurra.data import read, read_csv
from recurra.data.data_errors import (
    DataError,
    EmptyFileError,
    EncodingError,
    FormatError,
    MissingColumnError,
    MissingValueError,
    RaggedRowError,
    TimestampError,
    UnseenLabelError,
)
from recurra.errors import OptionError, UnknownNameError

LONG = """unique_id,ds,y,x
a,2024-01-01,1,10
a,2024-01-02,2,20
a,2024-01-03,3,30
b,2024-01-01,5,50
b,2024-01-02,6,60
"""


@pytest.fixture
def table(tmp_path):
    def write(text: str | bytes, name: str = "table.csv"):
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


def test_long_form_is_a_forecast(table):
    data = read(table(LONG))
    assert data.task == "forecasting"
    assert data.names == ["a", "b"]
    assert (data.features, data.target_names) == (("y", "x"), ("y",))
    assert data.lengths.tolist() == [2, 1]
    assert data[0].inputs.tolist() == [[1, 10], [2, 20]]
    assert data[0].target.tolist() == [[2], [3]]
    assert data.series[1].tolist() == [[5, 50], [6, 60]]
    day = 24 * 3600 * 1_000_000
    assert data.times[0].diff().tolist() == [day, day]


@pytest.mark.parametrize(
    "variant", ["bom", "crlf", "gzip", "semicolons", "tabs", "quoted", "blank line at the end", "no end"]
)
def test_the_same_table_however_it_is_written(table, variant):
    text = {
        "bom": "\ufeff" + LONG,
        "crlf": LONG.replace("\n", "\r\n"),
        "semicolons": LONG.replace(",", ";"),
        "tabs": LONG.replace(",", "\t"),
        "quoted": LONG.replace("a,", '"a",'),
        "blank line at the end": LONG + "\n",
        "no end": LONG.rstrip("\n"),
    }.get(variant, LONG)
    content = gzip.compress(text.encode()) if variant == "gzip" else text
    data = read_csv(table(content, "table.csv.gz" if variant == "gzip" else "table.csv"))
    assert data.names == ["a", "b"]
    assert data[0].inputs.tolist() == [[1, 10], [2, 20]]


def test_labels_once_a_sequence_are_classes_and_changing_ones_tags(table):
    once = read_csv(table("unique_id,v,label\na,1,yes\na,2,yes\nb,3,no\n"))
    assert (once.task, once.classes, once.targets.tolist()) == ("classification", ("no", "yes"), [1, 0])
    changing = read_csv(table("unique_id,v,label\na,1,yes\na,2,no\nb,3,no\n"))
    assert changing.task == "tagging"
    assert [changing[k].target.tolist() for k in range(2)] == [[1, 0], [0]]
    assert changing.features == ("v",)


def test_numeric_labels_sort_as_numbers(table):
    data = read_csv(table("unique_id,v,label\na,1,10\nb,2,9\nc,3,2\n"))
    assert data.classes == ("2", "9", "10")


def test_regression_and_transduction(table):
    path = table("unique_id,v,age\na,1,7\na,2,7\nb,3,8\n")
    data = read_csv(path, target="age", task="regression")
    assert data.features == ("v",)
    assert data.targets.tolist() == [[7], [8]]
    assert read_csv(path, target="age", task="transduction")[0].target.tolist() == [[7], [7]]
    with pytest.raises(FormatError, match=r"change within sequence 0.*one value per sequence"):
        read_csv(path, target="v", features=["age"], task="regression")


def test_without_a_header_columns_are_numbered(table):
    data = read_csv(table("1,2\n3,4\n5,6\n"))
    assert data.features == ("f0", "f1")
    assert data.series[0].tolist() == [[1, 2], [3, 4], [5, 6]]


def test_text_columns_are_read_by_character(table):
    data = read_csv(table("text,label\nab,x\nba c,y\n"))
    assert (data.task, data.lengths.tolist()) == ("classification", [2, 4])
    assert "".join(data.vocabulary[t] for t in data[1].inputs) == "ba c"


def refused(error, path, **options):
    with pytest.raises(error) as caught:
        read_csv(path, **options)
    assert caught.value.file == str(path)
    assert str(path) in str(caught.value)
    return caught.value


def test_a_missing_column_gets_the_nearest(table):
    error = refused(MissingColumnError, table(LONG), target="yy")
    assert "did you mean 'y'?" in str(error)


def test_a_ragged_row_is_named(table):
    error = refused(RaggedRowError, table("a,b\n1,2\n\n3\n"))
    assert error.line == 4
    assert "got 1 field, expected 2 fields (a, b)" in str(error)


def test_a_missing_value_has_a_line_and_a_column(table):
    error = refused(MissingValueError, table("a,b\n1,2\n3,\n5,6\n"))
    assert (error.line, error.column) == (3, "b")
    blank_line_above = refused(MissingValueError, table("a,b\n1,2\n\n3,\n5,6\n"))
    assert blank_line_above.line == 4


@pytest.mark.parametrize("gap", ["", "NaN", "nan", "NA", "null"])
def test_gaps_can_be_dropped_or_filled(table, gap):
    path = table(f"unique_id,v\na,{gap}\na,1\na,{gap}\na,3\nb,{gap}\nb,5\n")
    assert refused(MissingValueError, path).line == 2
    filled = read_csv(path, missing="fill")
    assert [filled.series[k][:, 0].tolist() for k in range(2)] == [[1, 1, 1, 3], [5, 5]]


def test_dropping_leaves_rows_out_and_lines_stay_right(table):
    path = table("unique_id,v,label\na,1,x\na,,x\na,3,x\nb,4,q\n")
    data = read_csv(path, missing="drop")
    assert data[0].inputs[:, 0].tolist() == [1, 3]
    assert refused(UnseenLabelError, path, missing="drop", classes=["x", "y"]).line == 5


def test_nothing_to_fill_with(table):
    error = refused(MissingValueError, table("unique_id,v\na,1\na,2\nb,\nb,\n"), missing="fill")
    assert error.column == "v"


def test_a_missing_timestamp_or_label_is_not_made_up(table):
    assert refused(MissingValueError, table("ds,y\n2024-01-01,1\n,2\n"), missing="fill").column == "ds"
    assert refused(MissingValueError, table("v,label\n1,a\n2,\n"), missing="fill").column == "label"


def test_a_number_that_is_none_is_named(table):
    error = refused(FormatError, table("a,b\n1,2\n3,x4\n"))
    assert (error.line, error.column, error.got) == (3, "b", "'x4'")


def test_text_with_few_values_is_a_categorical_input(table):
    data = read_csv(table("weather,v,y\nsun,2,1\nrain,3,2\nsun,4,3\n"))
    assert data.features == ("weather=rain", "weather=sun", "v", "y")
    assert data.series[0].tolist() == [[0, 1, 2, 1], [1, 0, 3, 2], [0, 1, 4, 3]]
    unseen = read_csv(table("weather,v,y\nsnow,2,1\nrain,3,2\n"), categories=data.categories)
    assert unseen.series[0].tolist() == [[0, 0, 2, 1], [1, 0, 3, 2]]
    assert [column.role for column in data.roles.columns] == ["categorical input", "input", "target"]


def test_repeated_timestamps(table):
    error = refused(TimestampError, table("ds,y\n2024-01-01,1\n2024-01-02,2\n2024-01-02,3\n"))
    assert (error.line, error.column) == (4, "ds")
    assert "2024-01-02 twice" in str(error)


def test_timestamps_out_of_order_are_an_error_or_sorted(table):
    path = table("ds,y\n2024-01-02,2\n2024-01-01,1\n2024-01-03,3\n")
    error = refused(TimestampError, path)
    assert error.line == 3
    assert "sort=True" in str(error)
    assert read_csv(path, sort=True).series[0].flatten().tolist() == [1, 2, 3]


def test_repeated_timestamps_stay_an_error_when_sorted_with_their_own_line(table):
    error = refused(TimestampError, table("ds,y\n2024-01-02,2\n2024-01-01,1\n2024-01-02,3\n"), sort=True)
    assert error.line == 4


def test_rows_of_a_sequence_apart_are_an_error_or_gathered(table):
    path = table("unique_id,ds,y\nb,2024-01-01,5\na,2024-01-01,1\nb,2024-01-02,6\na,2024-01-02,2\n")
    error = refused(FormatError, path)
    assert (error.line, error.column) == (4, "unique_id")
    data = read_csv(path, sort=True)
    assert data.names == ["b", "a"]
    assert [data.series[k].flatten().tolist() for k in range(2)] == [[5, 6], [1, 2]]


def test_mixed_frequency_is_an_error_or_accepted(table):
    path = table("ds,y\n2024-01-01,1\n2024-01-02,2\n2024-01-03,3\n2024-01-05,4\n")
    error = refused(TimestampError, path)
    assert error.line == 5
    assert "a step of 2 days among steps of 1 day" in str(error)
    assert read_csv(path, irregular=True).lengths.tolist() == [3]


def test_frequency_must_be_the_same_in_all_sequences(table):
    text = "unique_id,ds,y\na,2024-01-01,1\na,2024-01-02,2\nb,2024-01-01,1\nb,2024-01-03,2\n"
    assert refused(TimestampError, table(text)).line == 5


@pytest.mark.parametrize(
    "dates",
    [
        ("2024-01-15", "2024-02-15", "2024-03-15"),
        ("2023-12-31", "2024-01-31", "2024-02-29", "2024-03-31"),
        ("2024-01-04", "2024-01-05", "2024-01-08", "2024-01-09"),
        ("2023-01-01", "2024-01-01", "2025-01-01"),
        ("2024-01-01T00:00:00Z", "2024-01-01T01:00:00Z", "2024-01-01T02:00:00Z"),
        ("1700", "1701", "1702"),
        ("0.1", "0.2", "0.3", "0.4"),
    ],
    ids=["monthly", "month ends", "business days", "yearly", "hours in UTC", "plain years", "seconds"],
)
def test_calendars_count_as_even(table, dates):
    rows = "".join(f"{date},{k}\n" for k, date in enumerate(dates))
    assert len(read_csv(table("ds,y\n" + rows)).times[0]) == len(dates)


def test_seconds_out_of_step(table):
    error = refused(TimestampError, table("time,y\n0.1,1\n0.2,1\n0.35,2\n"))
    assert error.line == 4
    assert "a step of 0.15 among steps of 0.1" in str(error)


@pytest.mark.parametrize("text", ["\n\n" + LONG, LONG.replace("\n", "\n\n")])
def test_blank_lines_are_nothing(table, text):
    assert read_csv(table(text))[0].inputs.tolist() == [[1, 10], [2, 20]]


def test_dates_that_are_not_iso(table):
    error = refused(TimestampError, table("ds,y\n2024-01-01,1\n02/01/2024,2\n"))
    assert (error.line, error.got) == (3, "'02/01/2024'")


def test_unseen_labels_have_a_line_and_the_nearest(table):
    error = refused(UnseenLabelError, table("v,label\n1,walk\n2,runn\n"), classes=["walk", "run"])
    assert (error.line, error.column) == (3, "label")
    assert "did you mean 'run'" in str(error)


def test_classes_of_another_set_keep_their_order(table):
    data = read_csv(table("unique_id,v,label\na,1,y\nb,2,x\n"), classes=["y", "x", "z"])
    assert (data.targets.tolist(), data.classes) == ([0, 1], ("y", "x", "z"))


def test_invalid_utf8_has_a_line(table):
    error = refused(EncodingError, table(b"v,label\n1,a\n2,caf\xe9\n"))
    assert error.line == 3
    assert "0xe9" in str(error)


def test_utf16_is_refused(table):
    refused(EncodingError, table("a,b\n1,2\n3,4\n".encode("utf-16")))


@pytest.mark.parametrize("content", ["", "\n\n", "a,b\n"])
def test_empty_files(table, content):
    refused(EmptyFileError, table(content))


def test_two_columns_of_the_same_name(table):
    assert refused(FormatError, table("a,b,a\n1,2,3\n")).column == "a"


@pytest.mark.parametrize(("first", "second", "line"), [("one", "3", 2), ("1", "three", 3)])
def test_a_word_in_a_column_of_numbers_has_a_line(table, first, second, line):
    path = table(f"id,x,z\na,{first},2\na,{second},4\nb,5,6\n")
    error = refused(FormatError, path, features=("x", "z"))
    assert (error.line, error.column) == (line, "x")
    assert "expected a number" in str(error)


def test_a_series_of_one_row(table):
    refused(FormatError, table("unique_id,y\na,1\nb,2\nb,3\n"))


def test_no_such_file(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_csv(tmp_path / "absent.csv")


def test_damaged_gzip(table):
    path = table(gzip.compress(LONG.encode() * 50)[:-20], "table.csv.gz")
    refused(DataError, path)


@pytest.mark.parametrize(
    ("options", "error"),
    [({"missing": "guess"}, UnknownNameError), ({"taget": "y"}, OptionError), ({"task": "sing"}, UnknownNameError)],
)
def test_unknown_options(table, options, error):
    with pytest.raises(error):
        read_csv(table(LONG), **options)


def test_a_large_file_is_mapped_and_reads_the_same(table, monkeypatch):
    """Whole numbers first and fractions later: types of a stream are settled by its first block."""
    rows = "".join(f"s{k // 10},{k % 10},{k if k < 60_000 else k + 0.5}\n" for k in range(100_000))
    path = table("unique_id,time,v\n" + rows)
    small = read_csv(path)
    monkeypatch.setattr("recurra.data.readers.csv.IN_MEMORY", 0)
    large = read_csv(path)
    assert type(large.series).__name__ == "NumericColumns"
    assert large.names == small.names
    for k in (0, 5_999, 6_000, 9_999):
        assert torch.equal(large[k].inputs, small[k].inputs)
    assert large.series[9_999][-1, 0] == 99_999.5


def test_a_line_may_be_longer_than_the_fields_of_the_csv_module(tmp_path: Path):
    count = 500  # steps of a sequence: 150 kB of names, one field to whoever takes `;` for the delimiter
    names = ",".join(f"{'s' * 300}_{k}" for k in range(count))
    rows = "\n".join(",".join(str((k * n) % 7) for k in range(count)) + f",{n % 2}" for n in range(1, 5))
    path = tmp_path / "wide.csv"
    path.write_text(f"{names},label\n{rows}\n")
    data = read(path, label="label")
    assert (len(data), data.lengths.tolist()) == (4, [count] * 4)
    long = tmp_path / "long.csv"
    long.write_text("a,b\n" + "x" * 200_000 + ",1\n")
    with pytest.raises(FormatError, match=r"long\.csv"):
        read(long)
