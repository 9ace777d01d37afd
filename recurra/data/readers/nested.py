"""Tables with one row per sequence: columns of lists, of token lists, or of text."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from ...errors import ShapeError
from ...numerals import is_number
from ..data_errors import FormatError, MissingValueError
from ..sequences import SequenceSet, Task
from ..stores import Store
from .labels import UNKNOWN, Encoder, classes_of, vocabulary_of
from .layout import Layout
from .sort_and_fill import fill
from .table_scan import Place, strings
from .table_sources import Source


def from_nested(source: Source, layout: Layout, kinds: dict[str, str], file: str | Path, place: Place) -> SequenceSet:
    """A set with one sequence per row. A gap inside a list is a missing value; "drop" drops the sequence."""
    features = layout.features or ()
    _check_steps(source, features, file)
    _check_no_mixture(source, features, kinds, file, place)
    tokens = len(features) == 1 and _holds_text(source.schema.field(features[0]).type)
    scan = _NestedScan(layout, file, place, tokens)
    for batch in source.scan([*features, *_targets(layout), *([layout.id] if layout.id else [])]):
        scan.feed(batch)
    about: dict[str, Any] = {"source": str(file), "features": () if tokens else features, "names": scan.names or None}
    lengths = torch.tensor(scan.lengths, dtype=torch.int64)
    if tokens:
        about["vocabulary"] = layout.vocabulary or vocabulary_of(scan.tokens)
        inputs: Store = Tokens(source, features[0], Encoder(about["vocabulary"], file, features[0]))
    else:
        inputs = ListColumns(source, features, filled=layout.missing == "fill")
    result = _with_targets(source, layout, kinds, scan, inputs, lengths, about, file)
    return result if not scan.gaps else result.select([i for i in range(len(result)) if i not in scan.gaps])


def _check_steps(source: Source, features: tuple[str, ...], file: str | Path) -> None:
    """Steps are numbers or lists of numbers, not objects."""
    for name in features:
        kind = source.schema.field(name).type
        value = getattr(kind, "value_type", None)
        if value is not None and pa.types.is_struct(value):
            fields = ", ".join(value.field(k).name for k in range(value.num_fields))
            expected = f"numbers or lists of numbers; write a list for each of {fields}"
            raise FormatError(file, f"steps that are objects ({fields})", expected, column=name)


def _check_no_mixture(
    source: Source, features: tuple[str, ...], kinds: dict[str, str], file: str | Path, place: Place
) -> None:
    """Beside other columns, one of text is one of numbers with a slip in it; and lists stand beside lists alone."""
    if len(features) == 1:
        return
    row, texts = 0, [name for name in features if kinds[name] == "text"]
    for batch in source.scan(texts) if texts else ():
        for name in texts:
            for k, text in enumerate(strings(batch.column(name)).to_pylist()):
                if text is not None and not is_number(text):
                    raise FormatError(file, repr(text), "a number", place(row + k), name)
        row += batch.num_rows
    if single := [name for name in features if kinds[name] != "list"]:
        raise FormatError(file, f"{kinds[single[0]]} beside columns of lists", "lists only", column=single[0])


class _NestedScan:
    """Collects lengths, tokens, labels and gaps of every row."""

    def __init__(self, layout: Layout, file: str | Path, place: Place, tokens: bool):
        self.layout, self.file, self.place, self.is_tokens = layout, file, place, tokens
        self.rows, self.lengths, self.tokens, self.labels = 0, [], Counter(), set()
        self.gaps: set[int] = set()
        self.names: list[str] = []
        self.known = None if layout.vocabulary is None or UNKNOWN in layout.vocabulary else set(layout.vocabulary)

    def feed(self, batch: pa.RecordBatch) -> None:
        features = self.layout.features or ()
        for offset, row in enumerate(batch.to_pylist()):
            line = self.place(self.rows + offset)
            for name in row:
                self._check_gap(row[name], name, line, self.rows + offset)
            self._measure({name: row[name] for name in features}, line)
            if self.is_tokens and row[features[0]] is not None:
                self._count(row[features[0]], features[0], line)
            if self.layout.id:
                self.names.append(str(row[self.layout.id]))
            if self.layout.label and row[self.layout.label] is not None:
                self._label(row[self.layout.label], line)
        self.rows += batch.num_rows

    def _check_gap(self, value: object, name: str, line: int, row: int) -> None:
        if not _has_gap(value):
            return
        if self.layout.missing == "error" or (self.layout.missing == "fill" and not isinstance(value, list)):
            raise MissingValueError(self.file, "nothing", 'a value; use missing="drop"', line, name)
        if self.layout.missing == "drop":
            self.gaps.add(row)

    def _measure(self, lists: dict[str, Any], line: int) -> None:
        lengths = {name: len(value) if value is not None else 1 for name, value in lists.items()}
        name = next(iter(lengths))
        if len(set(lengths.values())) > 1:
            raise FormatError(self.file, f"lists of lengths {lengths}", "lists of the same length in a row", line)
        if not lengths[name]:
            raise FormatError(self.file, "an empty sequence", "at least one step", line, name)
        for name, value in lists.items():
            widths = {len(step) if isinstance(step, list) else 0 for step in value or ()}
            if len(widths) > 1 and not self.is_tokens:
                raise FormatError(self.file, f"steps of {sorted(widths)} numbers", "as many at every step", line, name)
        self.lengths.append(lengths[next(iter(lengths))])

    def _count(self, tokens: Any, name: str, line: int) -> None:
        self.tokens.update(tokens)
        if self.known is not None:
            Encoder(self.layout.vocabulary or (), self.file, name).encode(tokens, [line] * len(tokens))

    def _label(self, value: Any, line: int) -> None:
        labels = [str(label) for label in value] if isinstance(value, list) else [str(value)]
        self.labels.update(labels)
        if self.layout.classes is not None:
            Encoder(self.layout.classes, self.file, self.layout.label).encode(labels, [line] * len(labels))


def _has_gap(value: object) -> bool:
    if isinstance(value, list):
        return any(_has_gap(item) for item in value)
    return value is None or (isinstance(value, float) and value != value)


def _targets(layout: Layout) -> list[str]:
    return ([layout.label] if layout.label else []) + list(layout.target or ())


def _holds_text(kind: pa.DataType) -> bool:
    while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)


@dataclass(frozen=True)
class ListColumns:
    """List columns as (T, D): one list of numbers per feature, or one list of frames."""

    source: Source
    columns: tuple[str, ...]
    filled: bool = False

    def __len__(self) -> int:
        return self.source.rows

    def __getitem__(self, index: int) -> Tensor:
        row = self.source.read(self.columns, index, index + 1).to_pylist()[0]
        parts = []
        for name in self.columns:
            part = np.asarray(row[name], dtype=np.float64)
            part = part[:, None] if part.ndim == 1 else part
            if part.ndim != 2:
                raise ShapeError(name, f"a sequence of shape {part.shape}", "(T,) or (T, D)")
            parts.append(part)
        values = np.concatenate(parts, axis=1)
        if self.filled:
            begins = np.arange(len(values)) == 0
            values = np.stack([fill(column, begins) for column in values.T], axis=1)
        return torch.from_numpy(values).to(torch.get_default_dtype())


@dataclass(frozen=True)
class ScalarColumns:
    """Columns with one number per sequence, as (q,)."""

    source: Source
    columns: tuple[str, ...]

    def __len__(self) -> int:
        return self.source.rows

    def __getitem__(self, index: int) -> Tensor:
        row = self.source.read(self.columns, index, index + 1).to_pylist()[0]
        return torch.tensor([float(row[name]) for name in self.columns], dtype=torch.get_default_dtype())


@dataclass(frozen=True)
class Tokens:
    """A column of token lists, or of text as characters, as (T,) int64."""

    source: Source
    column: str
    encoder: Encoder

    def __len__(self) -> int:
        return self.source.rows

    def __getitem__(self, index: int) -> Tensor:
        value = self.source.read([self.column], index, index + 1).column(0)[0].as_py()
        return self.encoder.encode(str(token) for token in value)


@dataclass(frozen=True)
class LabelColumn(Tokens):
    """A column with one label per sequence, as () int64."""

    def __getitem__(self, index: int) -> Tensor:
        value = self.source.read([self.column], index, index + 1).column(0)[0].as_py()
        return torch.tensor(self.encoder.number(str(value)))


def _with_targets(
    source: Source,
    layout: Layout,
    kinds: dict[str, str],
    scan: _NestedScan,
    inputs: Store,
    lengths: Tensor,
    about: dict[str, Any],
    file: str | Path,
) -> SequenceSet:
    label, target = layout.label, layout.target
    if label is not None:
        encoder = Encoder(layout.classes or classes_of(scan.labels), file, label)
        about["classes"] = encoder.known
        task: Task = "tagging" if kinds[label] == "list" else "classification"
        store = Tokens(source, label, encoder) if task == "tagging" else LabelColumn(source, label, encoder)
        return SequenceSet(inputs, store, lengths, task, **about)
    if target is None or layout.task in ("forecasting", "next_step", "language"):
        task = "language" if about.get("vocabulary") else layout.task or "next_step"
        return SequenceSet.one_step_ahead(inputs, lengths, task, **about)
    listed = kinds[target[0]] == "list"
    store = ListColumns(source, target) if listed else ScalarColumns(source, target)
    return SequenceSet(inputs, store, lengths, "transduction" if listed else "regression", target_names=target, **about)
