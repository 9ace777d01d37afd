"""`ask`: what a file asks, from its format, its columns and what the caller says about them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recurra.data.data_errors import FormatError
from recurra.data.readers.dispatch import format_of
from recurra.data.readers.open_files import existing, head
from recurra.errors import InputError, UnknownNameError
from recurra.problem import holdout, sequences, series, text
from recurra.problem.columns import parts_of
from recurra.problem.hints import Asked
from recurra.problem.problem import TASKS, Question
from recurra.problem.tabular import FORMATS, load, refuse_slips

BUILT_IN = ("japanese_vowels",)
SPELLINGS = {
    "classification": "classify",
    "regression": "regress",
    "forecasting": "forecast",
    "tagging": "tag",
    "text": "language",
}


def ask(
    source: str | Path,
    *,
    task: str | None = None,
    target: str | None = None,
    id: str | None = None,
    time: str | None = None,
    inputs: Sequence[str] | str | None = None,
    horizon: int | None = None,
    season: int | None = None,
    test: str | Path | float | None = None,
    missing: str = "error",
    sort: bool = False,
    seed: int = 0,
) -> Question:
    """The question of a file, of a folder, or of a built-in set (`japanese_vowels`).

    task: classify, regress, forecast, tag or language; target, id, time, inputs: the columns of a table that play these
    parts (inputs of a forecast are known in advance). All of them are found where they are not given. horizon, season:
    steps to forecast and steps that repeat. test: a file, or the share to hold out, by default a file beside this one
    (train… and test…), else a fifth. missing, sort: as in `rc.data.Layout`. The same arguments give the same question.
    """
    task = _task(task)
    inputs = tuple(part.strip() for part in inputs.split(",")) if isinstance(inputs, str) else inputs
    if str(source) in BUILT_IN and not Path(source).exists():
        return sequences.built_in(str(source), task, seed)
    path, test = _paths(Path(source), test)
    columns = {"target": target, "id": id, "time": time, "inputs": inputs}
    asked = Asked(
        str(source),
        path,
        format_in(path),
        task,
        columns,
        {"missing": missing, "sort": sort},
        horizon,
        season,
        test,
        seed,
    )
    return _question(asked)


def _question(asked: Asked) -> Question:
    """Whoever can read the file this way makes a question of it."""
    if asked.task == "language" or (asked.task is None and asked.format in ("text", "sentences")):
        return text.language(asked)
    if asked.format in ("conll", "conllu"):
        return text.tagging(asked)
    if asked.format not in FORMATS:
        return series.alone(asked) or sequences.alone(asked)
    table = load(asked.path, asked.format)
    if asked.format == "csv":
        refuse_slips(table, asked.path, {asked.columns[part] for part in ("id", "time")})
    parts = parts_of(table, asked.path, task=asked.task, **asked.columns)
    match parts.task:
        case "forecast":
            return series.from_columns(asked, table, parts)
        case "tag":
            return text.tagging(asked, parts)
    return sequences.from_columns(asked, parts)


def format_in(path: Path) -> str:
    """The format of a file. Prose whose lines happen to have equally many words is not in columns."""
    format = format_of(path)
    if format == "conll" and path.suffix.lower() in ("", ".txt", ".text", ".gz"):
        return format if b"\n\n" in head(path, 1 << 16).replace(b"\r", b"") else "text"
    return format


def _task(task: str | None) -> str | None:
    if task is None:
        return None
    plain = SPELLINGS.get(task.lower(), task.lower())
    if plain not in TASKS:
        raise UnknownNameError("task", repr(task), TASKS)
    return plain


def _paths(source: Path, test: Any) -> tuple[Path, Any]:
    """The file to learn from, and the file or share to test on."""
    if source.is_dir() and (trains := sorted([*source.glob("*_TRAIN.ts"), *source.glob("*train*.conll*")])):
        if len(trains) > 1:
            raise InputError("source", f"{source} with {', '.join(t.name for t in trains)}", "one of these files")
        source = trains[0]
    path = existing(source)
    if test is None and path.is_file():
        test = holdout.sibling(path)
    if test is not None and holdout.share(test) is None:
        test = existing(test)
        if format_in(test) != format_in(path):
            raise FormatError(test, f"the format {format_in(test)}", f"{format_in(path)}, as {path.name} has")
    return path, test
