"""Parquet sets of many files and row groups, in any order, against the same rows in memory."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from recurra.data import Batches, from_table, read
from recurra.data.data_errors import DataError, FormatError, TimestampError
from recurra.data.readers import table_sources


def table(first: int = 0, count: int = 12, steps: int = 10) -> pa.Table:
    """`count` sequences of `steps` rows with a class each; every value tells its sequence and its time."""
    ids = np.repeat(np.arange(first, first + count), steps)
    times = np.tile(np.arange(steps), count)
    labels = np.where(ids % 2, "odd", "even")
    return pa.table({"id": [f"s{k:03d}" for k in ids], "t": times, "x": ids + times / 100, "label": labels})


def write(rows: pa.Table, path: Path, group: int = 20) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, row_group_size=group)


def by_name(data) -> dict[str, tuple]:
    return {data.name(k): (data[k].inputs.tolist(), data.classes[int(data[k].target)]) for k in range(len(data))}


def test_files_of_a_folder_are_one_table(tmp_path):
    for number in range(3):
        write(table(12 * number), tmp_path / "deep" / f"part-{2 - number}.parquet")
    (tmp_path / "_metadata").write_bytes(b"x")
    write(table(99), tmp_path / "_temporary" / "part.parquet")
    data, expected = read(tmp_path), from_table(table(0, 36))
    assert len(data) == 36
    assert data.task == "classification"
    assert by_name(data) == by_name(expected)


def test_folders_named_column_value_add_columns(tmp_path):
    rows = table()
    for k in range(12):
        part = rows.slice(10 * k, 10).drop_columns(["label"])
        write(part, tmp_path / f"label={'odd' if k % 2 else 'even'}" / "speed=7" / f"{k}.parquet")
    data = read(tmp_path, label="label", features=("x", "speed"), id="id", time="t", task="classification")
    assert by_name(data) == {k: ([[*x, 7.0] for x in v], label) for k, (v, label) in by_name(from_table(rows)).items()}


def test_a_sequence_in_many_row_groups_in_any_order(tmp_path):
    """One file per day, as Spark writes them: every sequence is in all of them; the files have no order of time."""
    rows, pieces = table(), []
    for day in (1, 0):
        places = np.flatnonzero(rows.column("t").to_numpy() // 5 == day)
        pieces.append(rows.take(pa.array(places)))
    for number, piece in enumerate(pieces):
        write(piece, tmp_path / "days" / f"day={number}" / "part.parquet", group=15)
    write(pa.concat_tables(pieces), tmp_path / "one.parquet", group=15)
    expected = by_name(from_table(rows))
    for path in (tmp_path / "days", tmp_path / "one.parquet"):
        data = read(path, id="id", time="t", features="x", label="label", task="classification")
        assert by_name(data) == expected
        assert data[3].inputs.flatten().tolist() == sorted(data[3].inputs.flatten().tolist())


def test_runs_that_overlap_in_time_are_refused(tmp_path):
    rows = table()
    for number, keep in enumerate([[0, 1, 2, 3, 8], [4, 5, 6, 7, 9]]):
        places = np.flatnonzero(np.isin(rows.column("t").to_numpy(), keep))
        write(rows.take(pa.array(places)), tmp_path / f"{number}.parquet")
    with pytest.raises(TimestampError, match="sort=True"):
        read(tmp_path)
    assert by_name(read(tmp_path, sort=True)) == by_name(from_table(rows))


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (lambda rows: rows.drop_columns(["x"]), "no such column"),
        (lambda rows: rows.set_column(2, "x", rows.column("x").cast(pa.string())), "string"),
    ],
)
def test_files_that_differ_are_refused(tmp_path, second, words):
    write(table(), tmp_path / "a.parquet")
    write(second(table(20)), tmp_path / "b.parquet")
    with pytest.raises(FormatError, match=words) as caught:
        read(tmp_path)
    assert "b.parquet" in str(caught.value)


def test_a_folder_without_a_value_and_a_damaged_file_are_named(tmp_path):
    write(table(), tmp_path / "group=__HIVE_DEFAULT_PARTITION__" / "a.parquet")
    with pytest.raises(DataError, match="group"):
        read(tmp_path, features=("x", "group"), label="label", id="id", time="t")
    (tmp_path / "group=__HIVE_DEFAULT_PARTITION__" / "b.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(FormatError, match=r"b\.parquet"):
        read(tmp_path)


@pytest.fixture
def large(tmp_path, monkeypatch):
    """A set of six files with 30 row groups of eight sequences each, of which two are cached."""
    monkeypatch.setattr(table_sources, "CACHE_BYTES", 2400)
    for number in range(6):
        write(table(40 * number, 40), tmp_path / f"{number}.parquet", group=80)
    return read(tmp_path)


def test_windows_follow_the_cache_and_the_file(large, monkeypatch):
    train, _ = large.split(0.5, 0.5)  # in random order
    decoded, decode = [], table_sources.ParquetSource._open
    monkeypatch.setattr(table_sources.ParquetSource, "_open", lambda self: decoded.append(self.path) or decode(self))

    def seen(batches: Batches) -> list[int]:
        """The sequences of an epoch, by their first values; `decoded` then counts row groups."""
        decoded.clear()
        return [int(value) for batch in batches.epoch(0) for value in batch.inputs[0, :, 0]]

    batches = Batches(train, 4, seed=1, bucket=1)
    assert batches.window is not None
    assert 2 <= batches.window <= 12
    order = seen(batches)
    assert len(decoded) <= 60  # each of 30 row groups twice at most, where a batch joins two windows
    assert order != sorted(order)
    assert sorted(seen(Batches(train, 4, seed=1, bucket=1, window=len(train)))) == sorted(order)
    assert len(decoded) > 90  # nearly one for each of the 120 sequences
    rest = [batch.ids.tolist() for batch in Batches(train, 4, seed=1, bucket=1).epoch(0, 7)]
    assert rest == [ids.tolist() for ids in batches.plan(0)[7:]]


def test_small_files_are_shuffled_whole(tmp_path):
    write(table(), tmp_path / "a.parquet")
    assert Batches(read(tmp_path / "a.parquet"), 4).window is None
    assert torch.equal(torch.cat(Batches(read(tmp_path), 4).plan(0)).sort().values, torch.arange(12))
