"""Forecasting problems: series as a table `unique_id, ds, y`, their step, season, horizon and held-out end."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from recurra.data.data_errors import FormatError
from recurra.data.precision import double_precision
from recurra.data.readers.column_roles import OBSERVED, ColumnRole, Roles
from recurra.data.readers.dispatch import TABLES, format_of, read
from recurra.data.readers.frequency import DAY, FrequencyDetector
from recurra.data.readers.layout import NO_COLUMN
from recurra.data.readers.open_files import existing, text_encoding
from recurra.data.readers.table_facts import is_constant_within
from recurra.data.readers.table_scan import is_dated
from recurra.data.readers.table_sources import OpenTable
from recurra.data.sequences import SequenceSet
from recurra.estimators.covariates import codes
from recurra.estimators.panel_future import format_times
from recurra.problem import holdout
from recurra.problem.hints import Hints
from recurra.problem.problem import Problem
from recurra.problem.sequences import TABLE_OPTIONS

#: microseconds between steps → (name, usual season length)
CLOCK_STEPS = {
    DAY // 1440: ("every minute", 60),
    DAY // 288: ("every 5 minutes", 288),
    DAY // 144: ("every 10 minutes", 144),
    DAY // 96: ("every 15 minutes", 96),
    DAY // 48: ("every 30 minutes", 48),
    DAY // 24: ("hourly", 24),
    DAY: ("daily", 7),
    7 * DAY: ("weekly", 52),
}
#: months between steps → (name, usual season length)
MONTH_STEPS = {1: ("monthly", 12), 3: ("quarterly", 4), 12: ("yearly", 1)}
MAX_WINDOWS = 10
MAX_SHOWN = 5  # columns that a line lists
#: reads all columns that are asked for as inputs, row by row
AS_INPUTS: dict[str, Any] = {"unlabelled": True, "form": "long"}


def from_table(hints: Hints, opened: OpenTable, roles: Roles) -> Problem:
    """The problem of a table of series; inputs that are constant within each series are static."""
    id, time, source = roles.one("id"), roles.named("time"), opened.source
    table = source.read(source.schema.names, 0, source.rows)
    observed, targets = list(roles.named(OBSERVED)), list(roles.named("target"))
    inputs = [name for name in roles.inputs if name not in (*targets, *observed)]
    static = [c for c in inputs if c in roles.named("static") or (id and is_constant_within(table, c, id))]
    for name in static:
        if id and not is_constant_within(table, name, id):
            raise FormatError(hints.path, "values that change within a series", "one value per series", column=name)
    kind = None if not time else source.schema.field("+".join(time)).type
    unit = "date" if kind is not None and is_dated(kind) else "seconds" if _is_float(kind) else "whole"
    schema = {"task": "forecast", "format": hints.format, "form": "long", "id": id, "time": list(time)}
    schema |= {"target": targets[0] if len(targets) == 1 else targets, "unit": unit, **hints.cleaning}
    covariates = {"known": [c for c in inputs if c not in static], "static": static, "observed": observed}
    shown = tuple(replace(c, role="static") if c.name in static else c for c in roles.columns)
    return _problem(hints, schema | covariates, roles.reason, shown)


def from_file(hints: Hints) -> Problem | None:
    """The problem of a file that holds series without named columns, or None if it holds something else."""
    if hints.task not in (None, "forecast"):
        return None
    data = read(hints.path, hints.format)
    if data.task not in ("forecasting", "next_step") or data.series is None:
        return None
    width = data.series[0].shape[1]
    if width > 1:
        expected = "one numeric column (CSV and Parquet files may have several)"
        raise FormatError(hints.path, f"{width} numeric columns", expected)
    dated = data.times is not None and int(torch.as_tensor(data.times[0]).abs().max()) > 10**9
    schema = {"task": "forecast", "format": hints.format, "id": None, "time": "ds" if data.times is not None else None}
    schema |= {
        "target": (*data.features, "y")[0],
        "known": [],
        "static": [],
        "observed": [],
        "unit": "date" if dated else "whole",
    }
    return _problem(hints, schema, "the file has a numeric series")


def _problem(hints: Hints, schema: dict[str, Any], reason: str, columns: tuple[ColumnRole, ...] = ()) -> Problem:
    table, notes, categories = read_series(hints.path, schema)
    schema = {**schema, "categories": categories}
    lengths = series_lengths(table)
    step, usual = _step_and_season(table, schema)
    season = hints.season or (usual if 2 * usual < min(lengths) else 1)
    horizon = hints.horizon or _horizon(season, min(lengths))
    train, test, how = _hold_out(table, schema, horizon, hints.test, hints.path)
    schema = {**schema, "horizon": horizon, "season": season, "held": min(series_lengths(test[0])) if test else 0}
    options = {"horizon": horizon, "season": season, "random_state": hints.seed}
    options |= {key: tuple(schema[key]) for key in ("known", "static", "observed")}
    each = " each" if len(lengths) > 1 else ""
    summary = (
        hints.file_summary,
        ("task", f"forecast: {reason}"),
        *_other_reading(schema, columns),
        ("columns", _columns(schema)),
        ("series", f"{len(lengths):,}, {_range(lengths)} steps{each}, {step}"),
        ("horizon", _steps(horizon) + (f", season length {season}" if season > 1 else "")),
        ("held out", how),
        *(("note", note) for note in notes),
    )
    targets = schema["target"] if isinstance(schema["target"], list) else None
    return Problem("forecast", hints.source, (train, targets), test, "mase", summary, options, schema, columns)


def _other_reading(schema: dict[str, Any], columns: tuple[ColumnRole, ...]) -> tuple[tuple[str, str], ...]:
    """What else could be asked of the table: the target at every step, from the other columns at that step."""
    kinds = ("number", "integer")
    unused = [c.name for c in columns if c.role == "ignored" and c.type.startswith(kinds) and "--observed" in c.why]
    if not unused or isinstance(schema["target"], list):
        return ()
    shown = ", ".join(unused[:MAX_SHOWN]) + (", …" if len(unused) > MAX_SHOWN else "")
    said = f"a number for every step, {schema['target']!r} from {shown} at the same step: --task regress-steps"
    return (("or", said),)


def _is_float(kind: pa.DataType | None) -> bool:
    return kind is not None and pa.types.is_floating(kind)


# ---------------------------------------------------------------------------------------------------- reading


def read_table(path: str | Path, schema: dict[str, Any]) -> pa.Table:
    """The series of a file as a table `unique_id, ds, y` and covariates."""
    return read_series(path, schema)[0]


def read_series(path: str | Path, schema: dict[str, Any]) -> tuple[pa.Table, tuple[str, ...], dict[str, list[str]]]:
    """The series of a file as a table `unique_id, ds, y` and covariates, what the reader changed, and categories.

    Several targets keep their names instead of `y`.
    """
    covariates = [*schema["known"], *schema["static"], *schema.get("observed", ())]
    with double_precision():
        if schema["format"] not in TABLES:
            return _as_table(read(path, schema["format"]), schema, ["y"]), (), {}
        several = isinstance(schema["target"], list)
        targets = schema["target"] if several else [schema["target"]]
        data = read(path, schema["format"], **_reader_options(schema), features=[*targets, *covariates], **AS_INPUTS)
        categories = {name: list(values) for name, values in data.categories.items()}
        columns = dict(zip([*targets, *covariates], [*(targets if several else ["y"]), *covariates], strict=True))
        return _as_table(data, schema, list(columns.values()), list(columns)), data.notes, categories


def _reader_options(schema: dict[str, Any]) -> dict[str, Any]:
    found = {key: schema[key] for key in TABLE_OPTIONS if schema.get(key) and key != "static"}
    return {"id": NO_COLUMN, "time": NO_COLUMN} | found


def read_future(path: str | Path, schema: dict[str, Any]) -> pa.Table:
    """The known inputs of steps to come, as a table `unique_id, ds` and covariates; a target is not needed."""
    path = existing(path)
    options = _reader_options(schema)
    with double_precision(), text_encoding(schema.get("encoding")):
        data = read(path, format_of(path), **options, features=schema["known"], **AS_INPUTS)
        return _as_table(data, schema, schema["known"])


def _as_table(
    data: SequenceSet, schema: dict[str, Any], columns: list[str], read_as: list[str] | None = None
) -> pa.Table:
    """Columns of a set as a table; `read_as` are their names in the set, if these are others."""
    values = [np.asarray(x) for x in (data.inputs if data.series is None else data.series)]  # (T, columns) each
    if data.names is not None:
        names = [data.name(k) for k in range(len(values))]
    else:
        names = ["series"] if len(values) == 1 else [str(k) for k in range(len(values))]
    ids = np.repeat(np.array(names, dtype=object), [len(v) for v in values])
    table: dict[str, Any] = {"unique_id": ids}
    if data.times is not None:
        table["ds"] = format_times(np.concatenate([np.asarray(t) for t in data.times]), schema["unit"])
    numbers = codes(np.concatenate(values), tuple(read_as or columns), data.categories)
    for k, name in enumerate(columns):
        known = data.categories.get((read_as or columns)[k])
        table[name] = numbers[:, k] if known is None else np.array(["", *known], object)[numbers[:, k].astype(int)]
    return pa.table(table)


def series_starts(table: pa.Table) -> np.ndarray:
    """(n + 1,) row numbers: the first row of every series, and the number of rows."""
    ids = np.asarray(table.column("unique_id").to_pylist(), dtype=object)
    return np.concatenate([[0], np.flatnonzero(ids[1:] != ids[:-1]) + 1, [len(ids)]])


def series_lengths(table: pa.Table) -> list[int]:
    return np.diff(series_starts(table)).tolist()


def append_steps(past: pa.Table, future: pa.Table) -> pa.Table:
    """Each series of `future` with its past in front, in the order of `future`."""
    before = dict(split_series(past))
    pairs = split_series(future)
    return pa.concat_tables(
        [pa.concat_tables([before[name], after]) if name in before else after for name, after in pairs]
    )


def split_series(table: pa.Table) -> list[tuple[str, pa.Table]]:
    """(name, table) of every series."""
    starts = series_starts(table).tolist()
    cut = [table.slice(a, b - a) for a, b in pairwise(starts)]
    return [(piece.column("unique_id")[0].as_py(), piece) for piece in cut]


def count_windows(held: pa.Table, horizon: int) -> int:
    """How many consecutive forecasts of `horizon` steps fit into the shortest held-out series, at least 1."""
    return max(1, min(series_lengths(held)) // horizon)


# ---------------------------------------------------------------------------------------------------- inferring


def _step_and_season(table: pa.Table, schema: dict[str, Any]) -> tuple[str, int]:
    """The name of the time step and the usual season length, from the times of the first series."""
    if "ds" not in table.column_names:
        return "one per row", 1
    if schema["unit"] != "date":
        return _plain_step(table, schema.get("time")), 1
    times = table.column("ds").to_numpy().astype("datetime64[us]").astype(np.int64)
    detector = FrequencyDetector(dated=True)
    first = times[: series_lengths(table)[0]]
    detector.feed(first, np.ones(len(first) - 1, dtype=bool))
    for name, step in detector.steps.items():
        if name == "clock" and step in CLOCK_STEPS:
            return CLOCK_STEPS[step][0], CLOCK_STEPS[step][1]
        if name.startswith("month") and step in MONTH_STEPS:
            return MONTH_STEPS[step][0], MONTH_STEPS[step][1]
        if name == "business day" and step == 1:
            return "business days", 5
    return _in_words(*next(iter(detector.steps.items()), ("clock", None))), 1


def _in_words(calendar: str, step: int | None) -> str:
    """A step without a usual name: every 4 days, every 2 months."""
    if step is None:
        return "evenly spaced"
    if calendar != "clock":
        return f"every {step} {calendar.removesuffix(' end')}s"
    for unit, size in (
        ("week", 7 * DAY),
        ("day", DAY),
        ("hour", DAY // 24),
        ("minute", DAY // 1440),
        ("second", 10**6),
    ):
        if step % size == 0:
            return f"every {step // size} {unit}{'s' if step != size else ''}"
    return f"every {step / 1e6:g} seconds"


def _plain_step(table: pa.Table, time: Any) -> str:
    times = table.column("ds").to_numpy()[:2]
    if len(times) < 2:
        return "one per row"
    step = times[1] - times[0]
    if [name.lower() for name in ([time] if isinstance(time, str) else time or ())] == ["year"]:
        return "yearly" if step == 1 else f"every {step:g} years"
    return f"steps of {step:g}"


def _horizon(season: int, shortest: int) -> int:
    usual = season if 4 <= season <= 24 else 12
    return max(1, min(usual, shortest // 5))


def _hold_out(
    table: pa.Table, schema: dict[str, Any], horizon: int, test: Any, path: Path
) -> tuple[pa.Table, tuple[Any, Any] | None, str]:
    fraction = holdout.holdout_fraction(test)
    if fraction is None:
        return table, (read_table(test, schema), None), f"{Path(test).name}, which continues this file"
    if not fraction:
        return table, None, "nothing"
    shortest = min(series_lengths(table))
    windows = max(1, min(MAX_WINDOWS, int(fraction * shortest / horizon)))
    held = windows * horizon
    if shortest - held < horizon + 2:
        expected = (
            f"at least {2 * horizon + 2} to train and test a horizon of {horizon}; set a shorter one with horizon="
        )
        raise FormatError(path, f"a series of {_steps(shortest)}", expected)
    starts = series_starts(table)
    ends = np.zeros(table.num_rows, dtype=bool)
    for stop in starts[1:]:
        ends[stop - held : stop] = True
    forecasts = f"{windows} forecast{'s' if windows > 1 else ''} of {_steps(horizon)}"
    return table.filter(pa.array(~ends)), (table.filter(pa.array(ends)), None), f"last {_steps(held)}, {forecasts}"


def _steps(count: int) -> str:
    return f"{count:,} step{'s' if count != 1 else ''}"


def _columns(schema: dict[str, Any]) -> str:
    roles = {key: schema[key] for key in ("id", "time", "target") if schema.get(key)}
    roles = {name: [value] if isinstance(value, str) else value for name, value in roles.items()}
    if "time" in roles:
        roles["time"] = ["+".join(roles["time"])]
    shown = [f"{name} {', '.join(map(repr, columns))}" for name, columns in roles.items()]
    for name in ("known", "static", "observed"):
        shown += [f"{name} {', '.join(map(repr, schema[name]))}"] if schema[name] else []
    return ", ".join(shown)


def _range(lengths: list[int]) -> str:
    return f"{min(lengths):,} to {max(lengths):,}" if min(lengths) < max(lengths) else f"{lengths[0]:,}"
