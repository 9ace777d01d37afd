"""Parquet, Arrow, JSON lines and dataframes: the same table gives the same sequences, and large files stay on disk."""

import json
import subprocess
import sys
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import torch

from recurra.data import Batches, Streams, from_table, read, read_arrow, read_jsonl, read_parquet
from recurra.data.data_errors import (
    EmptyFileError,
    EncodingError,
    FormatError,
    MissingColumnError,
    MissingValueError,
    TimestampError,
    UnseenLabelError,
)

COLUMNS = {
    "unique_id": ["a", "a", "a", "b", "b"],
    "ds": [datetime(2024, 1, day) for day in (1, 2, 3, 1, 2)],
    "y": [1.0, 2.0, 3.0, 5.0, 6.0],
}


class Frame:
    """What dataframes of today offer to be read by others."""

    def __arrow_c_stream__(self, requested_schema=None):
        return pa.table(COLUMNS).__arrow_c_stream__(requested_schema)


class OldFrame:
    """What dataframes offered before that."""

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True):
        return pa.table(COLUMNS).__dataframe__(nan_as_null, allow_copy)


@pytest.fixture(
    params=[
        "parquet",
        "small row groups",
        "arrow file",
        "arrow stream",
        "feather",
        "jsonl",
        "frame",
        "old frame",
        "dict",
    ]
)
def same_table(request, tmp_path):
    table = pa.table(COLUMNS)
    path = tmp_path / "table"
    match request.param:
        case "parquet":
            pq.write_table(table, path)
        case "small row groups":
            pq.write_table(table, path, row_group_size=2)
        case "arrow file":
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table)
        case "arrow stream":
            path = path.with_suffix(".arrow")
            with pa.ipc.new_stream(path, table.schema) as writer:
                writer.write_table(table)
        case "feather":
            feather.write_feather(table, path)
        case "jsonl":
            rows = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
            path.write_text("".join(json.dumps(row | {"ds": row["ds"].isoformat()}) + "\n" for row in rows))
        case "frame":
            return from_table(Frame())
        case "old frame":
            return from_table(OldFrame())
        case "dict":
            return from_table(COLUMNS)
    return read(path)


def test_the_same_table_in_every_format(same_table):
    data = same_table
    assert (data.task, data.names, data.features) == ("forecasting", ["a", "b"], ("y",))
    assert data.lengths.tolist() == [2, 1]
    assert data[0].inputs.tolist() == [[1], [2]]
    assert data[0].target.tolist() == [[2], [3]]
    assert data.series[1].tolist() == [[5], [6]]
    assert data.times[1].diff().tolist() == [86_400_000_000]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_list_columns_make_a_row_a_sequence(tmp_path, kind):
    table = pa.table(
        {
            "inputs": [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]]],
            "label": ["x", "y"],
            "unique_id": ["first", "second"],
        }
    )
    path = tmp_path / f"lists.{kind}"
    pq.write_table(table, path) if kind == "parquet" else feather.write_feather(table, path)
    data = read(path)
    assert (data.task, data.classes, data.names) == ("classification", ("x", "y"), ["first", "second"])
    assert data[0].inputs.tolist() == [[1, 2], [3, 4]]
    assert [int(example.target) for example in data] == [0, 1]
    assert data.lengths.tolist() == [2, 1]


def test_lists_side_by_side_are_features(tmp_path):
    path = tmp_path / "lists.jsonl"
    path.write_text('{"u": [1, 2, 3], "v": [4, 5, 6], "y": 9}\n{"u": [1], "v": [2], "y": 8}\n')
    data = read(path, features=["u", "v"], target="y", task="regression")
    assert data[0].inputs.tolist() == [[1, 4], [2, 5], [3, 6]]
    assert [example.target.tolist() for example in data] == [[9], [8]]
    assert data.task == "regression"


def test_tagged_tokens_in_json_lines(tmp_path):
    path = tmp_path / "tagged.jsonl"
    path.write_text('{"tokens": ["the", "cat"], "tags": ["D", "N"]}\n{"tokens": ["the"], "tags": ["D"]}\n')
    data = read(path)
    assert (data.task, data.classes) == ("tagging", ("D", "N"))
    assert [data.vocabulary[t] for t in data[0].inputs] == ["the", "cat"]
    assert data[0].target.tolist() == [0, 1]
    unseen = tmp_path / "unseen.jsonl"
    unseen.write_text('{"tokens": ["the"], "tags": ["D"]}\n{"tokens": ["dog"], "tags": ["V"]}\n')
    with pytest.raises(UnseenLabelError) as caught:
        read(unseen, classes=data.classes, vocabulary=data.vocabulary)
    assert caught.value.line == 2
    assert read(unseen, vocabulary=data.vocabulary)[1].inputs.tolist() == [0]  # <unk>


def test_text_in_json_lines_is_language_without_a_label(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "abc"}\n{"text": "cab"}\n')
    data = read(path)
    assert data.task == "language"
    assert "".join(data.vocabulary[t] for t in data[1].target) == "ab"


@pytest.mark.parametrize(
    ("lines", "error", "line"),
    [
        ('{"y": 1}\n{"y": }\n', FormatError, 2),
        ('{"y": 1}\n[2]\n', FormatError, 2),
        ('{"y": 1}\n\n{"y": "two"}\n', FormatError, 3),
        ('{"y": 1}\n\n{"y": null}\n', MissingValueError, 3),
        ('{"x": [1, 2], "y": [3]}\n', FormatError, 1),
        ('{"x": [1, 2]}\n{"x": []}\n', FormatError, 2),
        ('{"x": [1, 2]}\n{"x": [3, null]}\n', MissingValueError, 2),
        ("\n", EmptyFileError, None),
    ],
)
def test_faults_in_json_lines_have_a_line(tmp_path, lines, error, line):
    path = tmp_path / "faulty.jsonl"
    path.write_text(lines)
    with pytest.raises(error) as caught:
        read_jsonl(path, features=["x", "y"] if '"x": [1, 2], "y"' in lines else None)
    assert caught.value.line == line
    assert str(path) in str(caught.value)


def test_json_lines_that_are_not_utf8(tmp_path):
    path = tmp_path / "faulty.jsonl"
    path.write_bytes(b'{"text": "abc"}\n{"text": "caf\xe9"}\n')
    with pytest.raises(EncodingError) as caught:
        read_jsonl(path)
    assert caught.value.line == 2


def test_gaps_inside_lists_are_filled_or_the_sequence_dropped(tmp_path):
    path = tmp_path / "gaps.jsonl"
    path.write_text('{"x": [1.0, null, 3.0]}\n{"x": [4.0, 5.0]}\n')
    assert read_jsonl(path, missing="fill").series[0].flatten().tolist() == [1, 1, 3]
    assert read_jsonl(path, missing="drop").series[0].flatten().tolist() == [4, 5]


def test_faults_in_binary_tables_have_a_row(tmp_path):
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"ds": [1, 2, 4], "y": [1.0, 2.0, 3.0]}), path)
    with pytest.raises(TimestampError) as caught:
        read_parquet(path)
    assert caught.value.line == 3
    with pytest.raises(MissingColumnError, match="did you mean 'ds'"):
        read_parquet(path, time="dss")


def test_faults_across_the_bounds_of_batches_are_found(tmp_path, monkeypatch):
    """What holds from row to row must hold from the last row of one batch to the first of the next."""
    monkeypatch.setattr("recurra.data.readers.table_sources.SCAN_ROWS", 4)
    good = {"unique_id": ["a"] * 8, "ds": list(range(8)), "y": [float(k) for k in range(8)], "label": ["u"] * 8}
    assert from_table(good).task == "classification"
    assert from_table(good | {"label": ["u"] * 4 + ["v"] * 4}).task == "tagging"
    with pytest.raises(TimestampError) as caught:
        from_table(good | {"ds": [0, 1, 2, 3, 3, 4, 5, 6]})
    assert caught.value.line == 5
    with pytest.raises(TimestampError) as caught:
        from_table(good | {"ds": [0, 1, 2, 3, 5, 6, 7, 8]})
    assert caught.value.line == 5
    with pytest.raises(FormatError) as caught:
        from_table(good | {"unique_id": list("aabbabbb")}, irregular=True)
    assert caught.value.line == 5
    assert from_table(good | {"unique_id": list("aaaabbbb"), "ds": [0, 1, 2, 3, 0, 1, 2, 3]}).names == ["a", "b"]


@pytest.mark.parametrize("content", [b"PAR1 and then nonsense PAR1", b"ARROW1\0\0 and then nonsense"])
def test_damaged_binary_tables(tmp_path, content):
    path = tmp_path / "damaged"
    path.write_bytes(content)
    with pytest.raises(FormatError):
        read(path)


def test_many_json_lines_are_mapped_and_read_the_same(tmp_path, monkeypatch):
    """Whole numbers first and fractions later, in blocks that end in the middle of lines."""
    path = tmp_path / "large.jsonl"
    path.write_text("".join(f'{{"unique_id": "s{k // 10}", "y": {k if k < 600 else k + 0.5}}}\n' for k in range(1000)))
    small = read_jsonl(path)
    monkeypatch.setattr("recurra.data.readers.jsonl.IN_MEMORY", 0)
    monkeypatch.setattr("recurra.data.readers.jsonl.BLOCK", 1000)
    large = read_jsonl(path)
    assert type(large.series).__name__ == "NumericColumns"
    assert large.names == small.names
    assert all(torch.equal(large.series[k], small.series[k]) for k in range(100))
    assert large.series[99][-1, 0] == 999.5


def test_types_that_are_no_numbers():
    with pytest.raises(FormatError, match="another type"):
        from_table({"y": [1.0, 2.0], "blob": [b"a", b"b"]})


def test_a_parquet_file_with_damaged_pages(tmp_path):
    path = tmp_path / "damaged.parquet"
    pq.write_table(pa.table({"y": np.random.default_rng(0).standard_normal(5000)}), path, compression="zstd")
    content = bytearray(path.read_bytes())
    content[50:2000] = b"\xff" * 1950
    path.write_bytes(content)
    with pytest.raises(FormatError):
        read_parquet(path)


def test_a_table_without_rows(tmp_path):
    path = tmp_path / "empty.arrow"
    feather.write_feather(pa.table({"y": pa.array([], pa.float64())}), path)
    with pytest.raises(EmptyFileError):
        read_arrow(path)


def test_what_is_no_table():
    with pytest.raises(FormatError, match="a dict of columns"):
        from_table(3)


def test_a_giant_row_group_is_unpacked_once(tmp_path, monkeypatch):
    monkeypatch.setattr("recurra.data.readers.arrow.GROUP", 1000)
    path = tmp_path / "table.parquet"
    values = np.random.default_rng(0).standard_normal(5000)
    pq.write_table(pa.table({"y": values}), path)
    data = read_parquet(path)
    assert torch.equal(data.series[0][:, 0], torch.from_numpy(values).float())
    assert torch.equal(data.window(0, 4000, 4003).inputs[:, 0], torch.from_numpy(values[4000:4003]).float())


def test_row_groups_are_forgotten_when_the_cache_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr("recurra.data.readers.table_sources.CACHE_BYTES", 3000)
    path = tmp_path / "table.parquet"
    ids = np.repeat(np.arange(50), 20)
    pq.write_table(pa.table({"unique_id": ids, "y": np.arange(1000.0)}), path, row_group_size=100)
    data = read_parquet(path)
    for k in torch.randperm(50).tolist():
        assert data.series[k].flatten().tolist() == list(range(20 * k, 20 * k + 20))
    source = data.series.source
    assert len(source.cache.tables) <= 3


STREAM = """
import re, sys
from recurra.data import Batches, Streams, read_parquet

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024

import recurra.data.readers.table_sources, torch
recurra.data.readers.table_sources.CACHE_BYTES = 16 << 20
before = peak()
data = read_parquet(sys.argv[1])
total = sum(float(batch.inputs.double().sum()) for batch in Batches(data, 16, window=64).epoch(0))
streamed = sum(float(chunk.inputs.double().sum()) for chunk in Streams(data, 4, 5000).epoch(0))
print(before, peak(), total, streamed, int(data.lengths.sum()))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads VmHWM from /proc")
def test_a_file_much_larger_than_the_memory_used_for_it(tmp_path, repository_root):
    """320 MB of random numbers, which Parquet cannot pack, read twice in less than half of that.

    The peak follows from the row groups in use and those kept (here 16 MB), not from the size of the file.
    """
    path, random, expected, rows = tmp_path / "large.parquet", np.random.default_rng(0), 0.0, 500
    schema = pa.schema([("unique_id", pa.int32()), *((f"x{k}", pa.float64()) for k in range(8))])
    with pq.ParquetWriter(path, schema) as writer:
        for group in range(100):
            ids = np.repeat(np.arange(group * 100, group * 100 + 100, dtype=np.int32), rows)
            values = random.standard_normal((8, len(ids)))
            expected += values.astype(np.float32).astype(np.float64).reshape(8, 100, rows)[:, :, :-1].sum()
            writer.write_table(pa.table([ids, *values], schema=schema))
    assert path.stat().st_size > 300e6
    command = [sys.executable, "-c", STREAM, path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=repository_root, timeout=500)
    assert done.returncode == 0, done.stderr
    before, after, total, streamed, steps = map(float, done.stdout.split())
    assert steps == 100 * 100 * (rows - 1)
    assert abs(total - expected) < 1e-6 * steps
    assert abs(streamed - expected) < 1e-6 * steps
    assert after - before < 150


def test_batches_and_streams_over_parquet(tmp_path):
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"unique_id": np.repeat(np.arange(10), 7), "y": np.arange(70.0)}), path, row_group_size=16)
    data = read_parquet(path)
    inputs = [value for batch in Batches(data, 3).epoch(0) for value in batch.inputs.flatten().tolist()]
    assert sorted(inputs) == [float(7 * k + t) for k in range(10) for t in range(6)]
    chunks = torch.cat([chunk.inputs for chunk in Streams(data, 2, 4).epoch(0)])[..., 0]
    assert chunks.T.flatten().tolist() == sorted(inputs)
