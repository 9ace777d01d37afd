"""Questions about what comes next in series of numbers."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from recurra.data.data_errors import FormatError
from recurra.data.readers.dispatch import read
from recurra.data.readers.frequency import DAY, Cadence
from recurra.data.readers.table_scan import is_dated
from recurra.data.sequences import SequenceSet
from recurra.estimators.panel import written_times
from recurra.problem import holdout
from recurra.problem.columns import Parts
from recurra.problem.hints import Asked
from recurra.problem.problem import Question
from recurra.problem.sequences import doubles
from recurra.problem.tabular import FORMATS, constant_within

#: microseconds between steps → (what to call that, steps after which things tend to repeat)
CLOCKS = {
    DAY // 1440: ("a minute", 60),
    DAY // 288: ("five minutes", 288),
    DAY // 144: ("ten minutes", 144),
    DAY // 96: ("a quarter of an hour", 96),
    DAY // 48: ("a half hour", 48),
    DAY // 24: ("an hour", 24),
    DAY: ("a day", 7),
    7 * DAY: ("a week", 52),
}
MONTHS = {1: ("a month", 12), 3: ("a quarter", 4), 12: ("a year", 1)}
MOST_WINDOWS = 10


def from_columns(asked: Asked, table: pa.Table, parts: Parts) -> Question:
    """The question of a table of series."""
    still = [c for c in parts.inputs if parts.id and constant_within(table, c, parts.id)]
    known = [c for c in parts.inputs if c not in still]
    kind = table.schema.field(parts.time).type if parts.time else None
    unit = "date" if kind is not None and is_dated(kind) else "seconds" if _is_float(kind) else "whole"
    reading = {"task": "forecast", "format": asked.format, "id": parts.id, "time": parts.time, "target": parts.target}
    return _question(asked, reading | {"known": known, "static": still, "unit": unit, **asked.cleaning}, parts.why)


def alone(asked: Asked) -> Question | None:
    """The question of a file without a choice of columns, or None where it asks something else."""
    if asked.task not in (None, "forecast"):
        return None
    data = read(asked.path, asked.format)
    if data.task not in ("forecasting", "next_step") or data.series is None:
        return None
    width = data.series[0].shape[1]
    if width > 1:
        expected = "one column to forecast; several can be named in a CSV or Parquet file"
        raise FormatError(asked.path, f"{width} columns of numbers", expected)
    dated = data.times is not None and int(torch.as_tensor(data.times[0]).abs().max()) > 10**9
    reading = {"task": "forecast", "format": asked.format, "id": None, "time": "ds" if data.times is not None else None}
    reading |= {"target": (*data.features, "y")[0], "known": [], "static": [], "unit": "date" if dated else "whole"}
    return _question(asked, reading, "the file holds a series of numbers")


def _question(asked: Asked, reading: dict[str, Any], why: str) -> Question:
    table = read_table(asked.path, reading)
    lengths = lengths_of(table)
    step, usual = _cadence(table, reading)
    season = asked.season or (usual if 2 * usual < min(lengths) else 1)
    horizon = asked.horizon or _horizon(season, min(lengths))
    train, check, how = _hold_out(table, reading, horizon, asked.test, asked.path)
    reading = {**reading, "horizon": horizon, "season": season, "held": min(lengths_of(check[0])) if check else 0}
    options = {"horizon": horizon, "season": season, "random_state": asked.seed}
    options |= {key: tuple(reading[key]) for key in ("known", "static")}
    each = " each" if len(lengths) > 1 else ""
    facts = (
        asked.file,
        ("task", f"forecast: {why}"),
        ("columns", _columns(reading)),
        ("series", f"{len(lengths):,}, {_range(lengths)} steps{each}; a step is {step}"),
        ("horizon", f"{horizon} steps ahead" + (f"; things repeat every {season} steps" if season > 1 else "")),
        ("held out", how),
    )
    return Question("forecast", asked.source, (train, None), check, "mase", facts, options, reading)


def _is_float(kind: pa.DataType | None) -> bool:
    return kind is not None and pa.types.is_floating(kind)


# ---------------------------------------------------------------------------------------------------- reading


def read_table(path: str | Path, reading: dict[str, Any]) -> pa.Table:
    """The series of a file as `unique_id, ds, y` and covariates."""
    covariates = [*reading["known"], *reading["static"]]
    with doubles():
        if reading["format"] not in FORMATS:
            return _as_table(read(path, reading["format"]), reading, ["y"])
        options = {key: reading[key] for key in ("id", "time", "missing", "sort") if reading.get(key)}
        columns = [reading["target"], *covariates]
        data = read(path, reading["format"], **options, features=columns, target=reading["target"], task="transduction")
        return _as_table(data, reading, ["y", *covariates])


def _as_table(data: SequenceSet, reading: dict[str, Any], columns: list[str]) -> pa.Table:
    values = [np.asarray(x) for x in (data.inputs if data.series is None else data.series)]  # (T, columns) each
    if data.names is not None:
        names = [data.name(k) for k in range(len(values))]
    else:
        names = ["series"] if len(values) == 1 else [str(k) for k in range(len(values))]
    ids = np.repeat(np.array(names, dtype=object), [len(v) for v in values])
    table: dict[str, Any] = {"unique_id": ids}
    if data.times is not None:
        table["ds"] = written_times(np.concatenate([np.asarray(t) for t in data.times]), reading["unit"])
    numbers = np.concatenate(values)
    return pa.table(table | {name: numbers[:, k] for k, name in enumerate(columns)})


def starts_of(table: pa.Table) -> np.ndarray:
    """Where series begin, and the end."""
    ids = np.asarray(table.column("unique_id").to_pylist(), dtype=object)
    return np.concatenate([[0], np.flatnonzero(ids[1:] != ids[:-1]) + 1, [len(ids)]])


def lengths_of(table: pa.Table) -> list[int]:
    return np.diff(starts_of(table)).tolist()


def joined(past: pa.Table, future: pa.Table) -> pa.Table:
    """Series with the steps that follow, in the order of the future; series without a future are left out."""
    before = dict(pieces(past))
    together = [pa.concat_tables([before[name], after]) if name in before else after for name, after in pieces(future)]
    return pa.concat_tables(together)


def pieces(table: pa.Table) -> list[tuple[str, pa.Table]]:
    """Every series by its name."""
    starts = starts_of(table).tolist()
    cut = [table.slice(a, b - a) for a, b in pairwise(starts)]
    return [(piece.column("unique_id")[0].as_py(), piece) for piece in cut]


def windows_in(held: pa.Table, horizon: int) -> int:
    """Forecasts of `horizon` steps, one after the other, that fit into what was held out."""
    return max(1, min(lengths_of(held)) // horizon)


# ---------------------------------------------------------------------------------------------------- what is found


def _cadence(table: pa.Table, reading: dict[str, Any]) -> tuple[str, int]:
    """What a step is, and after how many of them things tend to repeat."""
    if reading["unit"] != "date" or "ds" not in table.column_names:
        return ("a row", 1) if reading["time"] is None else (f"a row ({reading['time']!r})", 1)
    times = table.column("ds").to_numpy().astype("datetime64[us]").astype(np.int64)
    cadence = Cadence(dated=True)
    first = times[: lengths_of(table)[0]]
    cadence.feed(first, np.ones(len(first) - 1, dtype=bool))
    for name, step in cadence.steps.items():
        if name == "clock" and step in CLOCKS:
            return CLOCKS[step][0], CLOCKS[step][1]
        if name.startswith("month") and step in MONTHS:
            return MONTHS[step][0], MONTHS[step][1]
        if name == "business day" and step == 1:
            return "a business day", 5
    return "evenly spaced", 1


def _horizon(season: int, shortest: int) -> int:
    usual = season if 4 <= season <= 24 else 12
    return max(1, min(usual, shortest // 5))


def _hold_out(
    table: pa.Table, reading: dict[str, Any], horizon: int, test: Any, path: Path
) -> tuple[pa.Table, tuple[Any, Any] | None, str]:
    part = holdout.share(test)
    if part is None:
        return table, (read_table(test, reading), None), f"{Path(test).name}, which goes on after this file"
    if not part:
        return table, None, "nothing"
    shortest = min(lengths_of(table))
    windows = max(1, min(MOST_WINDOWS, int(part * shortest / horizon)))
    held = windows * horizon
    if shortest - held < horizon + 2:
        expected = f"{2 * horizon + 2} steps or more, or a shorter horizon, to learn and to test {horizon} steps ahead"
        raise FormatError(path, f"a series of {shortest} steps", expected)
    starts = starts_of(table)
    ends = np.zeros(table.num_rows, dtype=bool)
    for stop in starts[1:]:
        ends[stop - held : stop] = True
    times = f"{windows} forecasts of {horizon} steps" if windows > 1 else f"one forecast of {horizon} steps"
    return table.filter(pa.array(~ends)), (table.filter(pa.array(ends)), None), f"the last {held} steps, {times}"


def _columns(reading: dict[str, Any]) -> str:
    parts = {key: reading[key] for key in ("id", "time", "target") if reading.get(key)}
    shown = [f"{name} {column!r}" for name, column in parts.items()]
    for name in ("known", "static"):
        shown += [f"{name} {', '.join(map(repr, reading[name]))}"] if reading[name] else []
    return ", ".join(shown)


def _range(lengths: list[int]) -> str:
    return f"{min(lengths):,} to {max(lengths):,}" if min(lengths) < max(lengths) else f"{lengths[0]:,}"
