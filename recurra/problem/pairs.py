"""Translation problems: reading pairs of texts, a source and what it becomes."""

from pathlib import Path
from typing import Any

from recurra.data.data_errors import FormatError, MissingColumnError, MissingValueError
from recurra.data.readers.dispatch import TABLES, open_table
from recurra.data.readers.layout import Layout
from recurra.data.readers.open_files import existing
from recurra.data.readers.table_sources import OpenTable
from recurra.errors import InputError
from recurra.problem import holdout
from recurra.problem.hints import Hints
from recurra.problem.problem import LoadedData, Problem


def translation_problem(hints: Hints) -> Problem:
    """The problem of turning each text of one column into that of another."""
    if hints.format not in TABLES:
        raise FormatError(hints.path, f"the format {hints.format}", "a table with two columns of texts")
    source, target = _columns(hints)
    schema = {"task": "translate", "format": hints.format, "inputs": [source], "target": target}
    schema |= {
        name: hints.cleaning[name] for name in ("missing", "decimal", "sheet", "encoding") if hints.cleaning.get(name)
    }
    train, test, how = _split(hints, schema, read_pairs(hints.path, schema))
    held = f"{len(test[0]):,} for testing ({how})" if test else "none held out"
    summary = (
        hints.file_summary,
        ("task", "translate: as given"),
        ("columns", f"source {source!r}, target {target!r}"),
        ("pairs", f"{len(train[0]):,} for training, {held}"),
        *(("texts", f"{name}: {_letters(texts)}") for name, texts in ((source, train[0]), (target, train[1]))),
        ("example", f"{_shortened(train[0][0])} → {_shortened(train[1][0])}"),
    )
    return Problem("translate", hints.source, train, test, "accuracy", summary, {"random_state": hints.seed}, schema)


def _columns(hints: Hints) -> tuple[str, str]:
    """The columns of source and target: those given, else the first two that are left."""
    given = hints.columns
    names = open_table(hints.path, hints.format, Layout.of_writing(hints.cleaning)).source.schema.names
    inputs = list(given["inputs"] or ())
    for name in (*inputs, *given["ignore"], *([given["target"]] if given["target"] else [])):
        if name not in names:
            raise MissingColumnError.among(hints.path, name, names)
    if len(inputs) > 1:
        raise InputError("inputs", f"{len(inputs)} columns", "one column of texts to translate")
    left = [name for name in names if name not in (*given["ignore"], given["target"])]
    source = inputs[0] if inputs else next(iter(left), None)
    target = given["target"] or next((name for name in left if name != source), None)
    if source is None or target is None or source == target:
        raise FormatError(hints.path, f"the columns {', '.join(names)}", "a column of sources and one of targets")
    return source, target


def _split(hints: Hints, schema: dict[str, Any], data: LoadedData) -> tuple[Any, Any, str]:
    fraction = holdout.holdout_fraction(hints.test)
    if fraction is None:
        other = read_pairs(hints.test, schema)
        if other.y is None:
            raise MissingColumnError(hints.test, "no targets", f"the column {schema['target']!r}")
        return (data.X, data.y), (other.X, other.y), f"from {Path(hints.test).name}"
    rows = holdout.random_split(len(data.X), fraction, hints.seed)
    train, test = (([data.X[k] for k in chosen], [data.y[k] for k in chosen]) for chosen in rows)
    return train, test if rows[1] else None, f"random {fraction:.0%}, seed {hints.seed}"


def read_pairs(path: str | Path, schema: dict[str, Any]) -> LoadedData:
    """Sources and targets of a file. A plain text has one source per line, and no targets."""
    path = existing(path)
    if schema["format"] == "text":
        from recurra.problem.text import read_text

        lines = [line.strip() for line in read_text(path).splitlines() if line.strip()]
        return LoadedData(lines, None, lines)
    opened = open_table(path, schema["format"], Layout.of_writing(schema))
    [source], target, known = schema["inputs"], schema["target"], opened.source.schema.names
    if source not in known:
        raise MissingColumnError.among(path, source, known)
    names = [source, target] if target in known else [source]
    rows = _rows(opened, names, schema.get("missing", "error"))
    if not rows:
        raise FormatError(path, "no rows", "at least one text")
    X, y = [row[0] for row in rows], [row[1] for row in rows] if len(names) == 2 else None
    return LoadedData(X, y, X)


def _rows(opened: OpenTable, names: list[str], missing: str) -> list[tuple[str, ...]]:
    """The texts of every row as they are written. An empty one is an error, or its row is left out."""
    if opened.as_written is not None:
        table = opened.as_written(names, literal=True)
    else:
        table = opened.source.read(names, 0, opened.source.rows)
    columns = [["" if value is None else str(value) for value in table.column(name).to_pylist()] for name in names]
    rows = list(zip(*columns, strict=True))
    for number, row in enumerate(rows):
        if missing != "drop" and "" in row:
            place = opened.place(number), names[row.index("")]
            raise MissingValueError(opened.file, "nothing", 'a text; missing="drop" leaves the row out', *place)
    return [row for row in rows if "" not in row]


def _letters(texts: list[str]) -> str:
    lengths = [len(text) for text in texts]
    return f"{min(lengths)} to {max(lengths)} characters, {len(set(''.join(texts)))} distinct"


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"
