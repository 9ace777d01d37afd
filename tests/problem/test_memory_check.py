"""Tables that do not fit into memory are refused before they are read, with the way that works."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

import recurra as rc
from recurra.data.data_errors import SizeError
from recurra.problem import memory_check


@pytest.fixture
def folder(tmp_path):
    """40 sequences of 50 steps in two files."""
    ids = np.repeat(np.arange(40), 50)
    random = np.random.default_rng(0)
    columns = {"id": ids, "t": np.tile(np.arange(50), 40), "a": random.normal(size=2000), "b": random.normal(size=2000)}
    rows = pa.table(columns | {"label": np.where(ids % 2 == 0, "even", "odd")})
    for part in range(2):
        (tmp_path / f"part={part}").mkdir()
        pq.write_table(rows.slice(1000 * part, 1000), tmp_path / f"part={part}" / "rows.parquet", row_group_size=100)
    return tmp_path


def test_a_larger_set_is_refused_and_trains_in_windows(folder, monkeypatch):
    assert rc.infer_problem(folder, id="id", time="t", target="label", ignore="part").task == "classify"
    monkeypatch.setattr(memory_check, "free_memory", lambda: 100_000)
    with pytest.raises(SizeError, match=r"2,000 rows of 5 columns, about 0.0 GB.*rc.train.fit\(model") as refused:
        rc.infer_problem(folder, id="id", time="t", target="label", ignore="part")
    assert isinstance(refused.value, rc.InputError)
    data = rc.data.read(folder, id="id", time="t", features=("a", "b"), label="label", task="classification")

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = rc.GRU(2, 4), nn.Linear(4, 2)

        def forward(self, x, lengths):
            return self.head(self.layer(x, lengths=lengths)[0].mean(0))

    torch.manual_seed(0)
    assert rc.train.fit(Network(), rc.data.Batches(data, 8), epochs=1, progress=False).steps == 5


def test_the_command_line_says_so_in_one_paragraph(folder, monkeypatch, capsys):
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from recurra.cli.app import app

    monkeypatch.setattr(memory_check, "free_memory", lambda: 100_000)
    done = CliRunner().invoke(app, ["fit", str(folder), "--id", "id", "--target", "label", "--time", "t"])
    assert done.exit_code == 2
    assert "rc.train.fit(model, rc.data.Batches(" in " ".join(done.output.split())
    assert "Traceback" not in done.output


def test_free_memory_is_that_of_the_control_group(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_check, "MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(memory_check, "GROUP", tmp_path)
    assert memory_check.free_memory() is None
    (tmp_path / "meminfo").write_text("MemTotal:  9000 kB\nMemAvailable:    2000 kB\n")
    assert memory_check.free_memory() == 2000 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("500\n")
    assert memory_check.free_memory() == 2000 * 1024
    (tmp_path / "memory.max").write_text("700\n")
    assert memory_check.free_memory() == 200
