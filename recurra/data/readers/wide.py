"""Wide tables: every row is a sequence, its steps are columns; other columns are the same at every step."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from ..data_errors import FormatError, MissingValueError
from ..sequences import SequenceSet
from .column_kinds import kind_of
from .column_roles import Roles
from .indicators import indicator_names, numbers
from .labels import Encoder, classes_of
from .layout import Layout
from .odd_values import Marks, of_sentinels
from .table_scan import Place, strings
from .table_sources import Source

MAX_SHOWN = 4  # columns that a note lists


def from_wide(source: Source, layout: Layout, roles: Roles, file: str | Path, place: Place) -> SequenceSet:
    """A set with one sequence (T, channels + static inputs) per row."""
    table = source.read(source.schema.names, 0, source.rows)
    static = roles.named("static")
    names = [name for steps in roles.channels.values() for name in steps]
    wanted = [*names, *static, *roles.named("target")]
    keep = _complete_rows(table, wanted, layout, file, place)
    if not keep.all():
        table = table.filter(pa.array(keep))
    lines = np.flatnonzero(keep)
    values = np.stack([_channel(table, steps) for steps in roles.channels.values()], axis=2)  # (n, T, channels)
    notes = _notes(values, roles, lambda row: place(int(lines[row])))
    fixed, fixed_names, categories = _static(table, static, layout)
    repeated = np.broadcast_to(fixed[:, None, :], (len(fixed), values.shape[1], fixed.shape[1]))
    inputs = torch.from_numpy(np.concatenate([values, repeated], axis=2)).to(torch.get_default_dtype())
    id = roles.one("id")
    about: dict[str, Any] = {
        "features": (*((channel or "value") for channel in roles.channels), *fixed_names),
        "names": None if id is None else strings(table.column(id).combine_chunks()).to_pylist(),
        "categories": categories,
        "roles": roles,
        "source": str(file),
        "notes": notes,
    }
    lengths = torch.full((len(inputs),), inputs.shape[1], dtype=torch.int64)
    target = roles.one("target")
    if target is None or roles.task not in ("classification", "regression"):
        return SequenceSet(list(inputs), torch.zeros(len(inputs), 1), lengths, "regression", **about)
    if roles.task == "regression":
        rows = pc.cast(table.column(target), pa.float64(), safe=False).to_numpy().copy()[:, None]
        return SequenceSet(list(inputs), torch.from_numpy(rows).to(inputs.dtype), lengths, "regression", **about)
    labels = strings(table.column(target).combine_chunks()).to_pylist()
    encoder = Encoder(layout.classes or classes_of(labels), file, target)
    targets = encoder.encode(labels, [place(int(row)) for row in lines] if layout.classes else None)
    return SequenceSet(list(inputs), targets, lengths, "classification", classes=encoder.known, **about)


def _notes(values: np.ndarray, roles: Roles, place: Place) -> tuple[str, ...]:
    """Numbers in the steps (n, T, channels) that may mean missing values."""
    notes: list[str] = []
    names = [name for steps in roles.channels.values() for name in steps]
    if list(roles.channels) == [""] and not all(map(_says_its_place, names)):
        shown = ", ".join(names[:MAX_SHOWN]) + (", …" if len(names) > MAX_SHOWN else "")
        notes.append(f"the columns {shown} are taken as the steps of a sequence; if rows are the steps: --id none")
    for k, (channel, steps) in enumerate(roles.channels.items()):
        marks = Marks()
        marks.feed(values[:, :, k].ravel(), 0)
        name = channel or f"{steps[0]} … {steps[-1]}"
        notes += of_sentinels(name, marks, lambda at: place(at // values.shape[1]))
    return tuple(notes)


def _says_its_place(name: str) -> bool:
    """Whether the name of a column has a number or a date, which orders it among others."""
    return any(sign.isdigit() for sign in name)


def _channel(table: pa.Table, steps: list[str]) -> np.ndarray:
    """(n, T)."""
    return np.stack([pc.cast(table.column(name), pa.float64(), safe=False).to_numpy() for name in steps], axis=1)


def _static(table: pa.Table, names: tuple[str, ...], layout: Layout) -> tuple[np.ndarray, tuple[str, ...], dict]:
    """(n, S): static inputs, their names, and the categories of those that are texts."""
    texts = [name for name in names if kind_of(table.schema.field(name).type) == "text"]
    known = dict(layout.categories or {})
    categories = {
        name: known.get(name) or classes_of(strings(table.column(name).combine_chunks()).to_pylist()) for name in texts
    }
    if not names:
        return np.zeros((table.num_rows, 0)), (), categories
    found = numbers(table.select(list(names)), categories).double().numpy()
    return found, indicator_names(names, categories), categories


def _complete_rows(table: pa.Table, names: list[str], layout: Layout, file: str | Path, place: Place) -> np.ndarray:
    """(rows,) bool: rows without a missing value; unless they shall be dropped, a missing value is an error."""
    keep = np.ones(table.num_rows, dtype=bool)
    for name in names:
        if name not in table.column_names:
            continue
        gaps = table.column(name).is_null(nan_is_null=pa.types.is_floating(table.schema.field(name).type)).to_numpy()
        if gaps.any() and layout.missing != "drop":
            expected = 'a number (sequences of unequal length need one row per step); use missing="drop"'
            raise MissingValueError(file, "nothing", expected, place(int(np.flatnonzero(gaps)[0])), name)
        keep &= ~gaps
        if (
            pa.types.is_floating(table.schema.field(name).type)
            and (infinite := np.isinf(table.column(name).to_numpy())).any()
        ):
            row = int(np.flatnonzero(infinite)[0])
            raise FormatError(file, str(table.column(name)[row].as_py()), "a finite number", place(row), name)
    if not keep.any():
        raise FormatError(file, "a missing value in every row", "at least one complete row")
    return keep
