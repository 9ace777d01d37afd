"""Training on a partitioned folder of Parquet files that is read in windows, killed in the middle of an epoch."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from train import runs
from train.worker import parquet

from recurra.data.readers import table_sources
from recurra.tensor_files import read_json
from recurra.train import checkpoint


def write_days(folder: Path, sequences: int = 60, steps: int = 12) -> None:
    """One folder a day, in an order that is not that of time; every sequence goes on for three days."""
    random = np.random.default_rng(0)
    for day in range(3):
        ids, times = np.repeat(np.arange(sequences), steps), np.tile(np.arange(steps), sequences) + steps * day
        x, y = random.normal(size=(2, len(ids)))
        rows = pa.table({"id": ids, "t": times, "x": x, "y": y, "label": np.where(x > 0, "a", "b")})
        path = folder / f"day={9 - day}" / "part.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(rows, path, row_group_size=48)


@pytest.mark.slow
@pytest.mark.parametrize("regrouped", [False, True])
def test_a_run_killed_in_the_middle_of_an_epoch_resumes_bit_equal(tmp_path, monkeypatch, regrouped):
    """Where days split sequences the rows are regrouped; one day alone is read row group by row group, in windows."""
    monkeypatch.setattr(table_sources, "CACHE_BYTES", table_sources.CACHE_BYTES)  # the worker sets it, here too
    write_days(tmp_path / "data")
    data = tmp_path / "data" if regrouped else tmp_path / "data" / "day=9"
    train, _ = parquet(str(data))
    assert len(train) > 7  # two batches are one step
    assert regrouped or train.window < len(train.sequences) / 3
    options = {"case": "parquet", "data": str(data), "every": 1, "pause": 0.1}
    whole = runs.Forked(tmp_path / "whole", options)
    killed = runs.kill_after(tmp_path / "killed", options, 6, start=runs.Forked)
    assert killed
    at = read_json(checkpoint.saved(tmp_path / "killed")[-1] / "progress.json")
    assert 0 < at["index"] < len(train), "not in the middle of an epoch"
    for run in (whole, runs.Forked(tmp_path / "killed", options)):
        code, _, err = runs.finish(run)
        assert code == 0, err
    runs.assert_same(runs.final_state(tmp_path / "whole"), runs.final_state(tmp_path / "killed"))
