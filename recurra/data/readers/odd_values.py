"""Values a person should be told of: numbers that stand for missing values, and texts that training did not have."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .column_kinds import kind_of
from .table_scan import Place, index_in, strings

#: numbers that instruments and archives write where nothing was measured
SENTINELS = (-99.0, -999.0, -9999.0, -99999.0, -999999.0, 999.0, 9999.0, 99999.0, 999999.0)
SENTINELS += (-99.9, -999.9, 999.9, 9999.9, -32768.0, 32767.0, -(2.0**31), 2.0**31 - 1)
SENTINELS += (1e20, -1e20, 1e30, -1e30, -1e34)
FAR = 1.0  # how far from the other values, in the range that these span
MAX_SHARE = 0.9  # of a column that may be missing
MAX_SHOWN = 3  # texts that a note lists


@dataclass
class Marks:
    """The possible sentinels of a column: value → (rows, first row); and the range of the other values."""

    found: dict[float, tuple[int, int]] = field(default_factory=dict)
    low: float = np.inf
    high: float = -np.inf
    rows: int = 0

    def feed(self, values: np.ndarray, first: int) -> None:
        values = values.astype(np.float64)
        suspects = np.isin(values, SENTINELS)
        for value in np.unique(values[suspects]).tolist():
            rows = np.flatnonzero(values == value)
            count, start = self.found.get(value, (0, first + int(rows[0])))
            self.found[value] = (count + len(rows), start)
        others = values[~suspects & np.isfinite(values)]
        if len(others):
            self.low, self.high = min(self.low, float(others.min())), max(self.high, float(others.max()))
        self.rows += len(values)

    def far(self) -> list[float]:
        """The suspects that lie far from the other values."""
        span = self.high - self.low
        return [
            value
            for value, (count, _) in self.found.items()
            if span > 0
            and count <= MAX_SHARE * self.rows
            and max(self.low - value, value - self.high) >= max(FAR * span, 1.0)
        ]


@dataclass
class OddValues:
    """Collected batch by batch from the inputs and targets of a table."""

    numbers: Sequence[str]
    known: Mapping[str, Sequence[str]]  # text column → the values that training had
    marks: dict[str, Marks] = field(default_factory=dict)
    unknown: dict[str, dict[str, int]] = field(default_factory=dict)
    rows: int = 0

    def feed(self, batch: pa.RecordBatch) -> None:
        for name in dict.fromkeys(self.numbers):
            column, kind = batch.column(name), batch.schema.field(name).type
            if kind_of(kind) == "number" and not pa.types.is_boolean(kind) and not pa.types.is_null(kind):
                values = pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
                self.marks.setdefault(name, Marks()).feed(values, self.rows)
        for name, values in self.known.items():
            column = strings(batch.column(name))
            unknown = column.filter(index_in(column, pa.array(values, pa.string())).is_null()).drop_null()
            for each in unknown.value_counts().to_pylist():
                counts = self.unknown.setdefault(name, {})
                counts[each["values"]] = counts.get(each["values"], 0) + each["counts"]
        self.rows += batch.num_rows

    def notes(self, place: Place) -> tuple[str, ...]:
        """What was found, in sentences."""
        return (*self._of_sentinels(place), *(_of_unknown(name, counts) for name, counts in self.unknown.items()))

    def _of_sentinels(self, place: Place) -> Iterable[str]:
        for name, marks in self.marks.items():
            yield from of_sentinels(name, marks, place)


def of_sentinels(name: str, marks: Marks, place: Place) -> Iterable[str]:
    """A sentence for every number of a column that may mean a missing value."""
    for value in marks.far():
        count, row = marks.found[value]
        times = "once" if count == 1 else f"{count:,} times"
        yield (
            f"{name!r} has {value:.15g} {times} (first in line {place(row)}), far from its other values, "
            f"{marks.low:g} to {marks.high:g}; if it means a missing value: --na {value:.15g}"
        )


def _of_unknown(name: str, counts: Mapping[str, int]) -> str:
    shown = ", ".join(map(repr, list(counts)[:MAX_SHOWN])) + (", …" if len(counts) > MAX_SHOWN else "")
    total = sum(counts.values())
    rows = "1 row" if total == 1 else f"{total:,} rows"
    return f"{name!r} has {shown} in {rows}, which training did not have; read as no category"
