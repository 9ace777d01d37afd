"""Roles of columns: what each column of a table is used for, and why; a draft in which they are collected."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from ..sequences import Task
from .column_kinds import type_name
from .layout import Layout

CATEGORICAL, OBSERVED, IGNORED = "categorical input", "observed input", "ignored"
INPUTS = ("input", CATEGORICAL, OBSERVED, "static")


@dataclass(frozen=True)
class ColumnRole:
    """What a column is used for, and why."""

    name: str
    type: str
    role: str
    why: str


@dataclass(frozen=True)
class Roles:
    """The roles of all columns and the task.

    `form` is "long" (a row is a step), "wide" (a row is a sequence, its steps in columns) or "nested" (a row is a
    sequence, its steps in a list or a text). `channels` are the columns of a wide table, step by step.
    """

    task: Task
    reason: str
    form: str
    columns: tuple[ColumnRole, ...]
    channels: dict[str, list[str]] = field(default_factory=dict)

    def named(self, *roles: str) -> tuple[str, ...]:
        """The columns with one of these roles, in the order of the file."""
        return tuple(column.name for column in self.columns if column.role in roles)

    def one(self, role: str) -> str | None:
        return next(iter(self.named(role)), None)

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.named(*INPUTS)


@dataclass
class RoleDraft:
    """Roles while they are found."""

    table: pa.Table
    given: Layout
    file: str | Path
    strict: bool
    kinds: dict[str, str]
    found: dict[str, tuple[str, str]] = field(default_factory=dict)

    def assign(self, column: str | None, role: str, why: str) -> None:
        if column is not None and column not in self.found:
            self.found[column] = (role, why)

    def free(self, *kinds: str) -> list[str]:
        return [name for name, kind in self.kinds.items() if name not in self.found and (not kinds or kind in kinds)]

    def inputs(self, kind: str) -> list[str]:
        """Columns of a kind that are inputs, or may become inputs."""
        chosen = [name for name, (role, _) in self.found.items() if role in INPUTS and self.kinds[name] == kind]
        return self.free(kind) if self.given.features is None else chosen

    def one(self, role: str) -> str | None:
        return next((name for name, (found, _) in self.found.items() if found == role), None)

    def has_inputs(self) -> bool:
        return any(role in INPUTS for role, _ in self.found.values())

    def times(self) -> list[str]:
        return [name for name, (found, _) in self.found.items() if found == "time"]

    def result(self, task: Task, reason: str, form: str, channels: dict[str, list[str]] | None = None) -> Roles:
        columns = []
        for item in self.table.schema:
            role, why = self.found.get(item.name, (IGNORED, "has no use here"))
            columns.append(ColumnRole(item.name, type_name(self.table, item.name), role, why))
        return Roles(task, reason, form, tuple(columns), channels or {})


def first_named(names: Sequence[str], columns: Iterable[str]) -> str | None:
    """The first of `names` that is a column, in any case."""
    lowered = {column.strip().lower(): column for column in columns}
    return next((lowered[name] for name in names if name in lowered), None)
