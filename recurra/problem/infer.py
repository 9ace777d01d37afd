"""`infer_problem`: task, column roles and train/test split of a data file."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recurra.argument_checks import path_of
from recurra.data.data_errors import FormatError
from recurra.data.readers.column_roles import Roles
from recurra.data.readers.dispatch import TABLES, format_of, open_table
from recurra.data.readers.open_files import existing, head, text_encoding
from recurra.data.readers.tables import prepare, used_columns
from recurra.errors import InputError, UnknownNameError
from recurra.problem import holdout, pairs, sequences, series, text
from recurra.problem.hints import Hints
from recurra.problem.memory_check import check_fits_in_memory
from recurra.problem.problem import TASKS, Problem

WHAT_ROLES_DO = {
    "classification": "classify",
    "regression": "regress",
    "tagging": "label every step",
    "transduction": "predict a number for every step",
}
BUILTIN_DATASETS = ("japanese_vowels", "open_quotes")
TASK_ALIASES = {
    "classification": "classify",
    "regression": "regress",
    "classify-steps": "classify_steps",
    "regress-steps": "regress_steps",
    "forecasting": "forecast",
    "tagging": "tag",
    "text": "language",
    "translation": "translate",
    "seq2seq": "translate",
}


def infer_problem(
    source: str | Path,
    *,
    task: str | None = None,
    target: Sequence[str] | str | None = None,
    id: Sequence[str] | str | None = None,
    time: Sequence[str] | str | None = None,
    inputs: Sequence[str] | str | None = None,
    static: Sequence[str] | str | None = None,
    observed: Sequence[str] | str | None = None,
    ignore: Sequence[str] | str | None = None,
    horizon: int | None = None,
    season: int | None = None,
    test: str | Path | float | None = None,
    missing: str = "error",
    fill: str = "none",
    sort: bool = False,
    dates: str | None = None,
    decimal: str | None = None,
    sheet: str | None = None,
    encoding: str | None = None,
    na: Sequence[str] | str | None = None,
    seed: int = 0,
) -> Problem:
    """Read a data file as a learning problem: what to predict, from which columns, and how to test it.

    Whatever is not given is inferred from the file. The same arguments give the same problem.

    **Arguments**

    - `source`: a file, a folder, or the name of a built-in data set (`"japanese_vowels"`, `"open_quotes"`).
    - `task`: `"classify"`, `"regress"`, `"classify_steps"`, `"regress_steps"`, `"forecast"`, `"tag"`,
      `"language"`, or `"translate"`: a column of texts into another one, which is never inferred.
    - `target`, `id`, `time`: the columns to predict (several for a forecast), to identify sequences by (one or several;
      "none": the file is one sequence), and to order steps by; several columns of time, such as `"year,month"`, are one
      date.
    - `inputs`: the columns to read, as a sequence or as text with commas. The inputs of a forecast must be known in
      advance; `observed` are those known until the forecast is made.
    - `static`, `ignore`: columns that are constant within a sequence, and columns to leave out.
    - `horizon`, `season`: steps to forecast; season length in steps.
    - `test`: a test file, or the fraction to hold out. Default: a matching file next to this one (`train…`, `test…`),
      else 0.2.
    - `missing`, `fill`, `sort`, `dates`, `decimal`, `sheet`, `encoding`, `na`: as in `rc.data.Layout`.
    - `seed`: random seed of the split, and of the estimators made from the problem.

    **Returns**

    A `Problem` with `train`, `test`, `metric`, a `summary` of what was inferred, and `columns`: the role of each column
    and why it has it.

    **Example**

    >>> import recurra as rc
    >>> problem = rc.infer_problem("japanese_vowels")
    >>> problem.task, problem.metric, len(problem.train[0]), len(problem.test[0])
    ('classify', 'accuracy', 270, 370)
    """
    task = _canonical_task(task)
    source = source if isinstance(source, str) and source in BUILTIN_DATASETS else path_of("source", source)
    if str(source) in BUILTIN_DATASETS and not Path(source).exists():
        return sequences.builtin_problem(str(source), task, seed)
    columns = {"target": _one_or_several(target), "id": _joined(id), "time": _names(time), "inputs": _names(inputs)}
    columns |= {"static": _names(static) or (), "ignore": _names(ignore) or (), "observed": _names(observed) or ()}
    cleaning = {"missing": missing, "fill": fill, "sort": sort, "dates": dates}
    cleaning |= {"decimal": decimal, "sheet": sheet, "encoding": encoding, "na": _values(na)}
    with text_encoding(encoding):
        path, test = _train_and_test(Path(source), test)
        format = detect_format(path)
        problem = _infer(Hints(str(source), path, format, task, columns, cleaning, horizon, season, test, seed))
    usual = text.HELD_OUT_TEXT if problem.task == "language" and test is None else test
    return replace(problem, split={"fraction": holdout.holdout_fraction(usual) or 0.0, "seed": seed})


def _names(given: Sequence[str] | str | None) -> tuple[str, ...] | None:
    """Names of columns, from a sequence or from text with commas."""
    if isinstance(given, str):
        given = [name.strip() for name in given.split(",") if name.strip()]
    return None if given is None else tuple(given)


def _joined(given: Sequence[str] | str | None) -> str | None:
    """The name of the column that identifies sequences; of several, the name of the one that joins them."""
    names = _names(given)
    return "+".join(names) if names else None


def _values(given: Sequence[str] | str | None) -> list[str] | None:
    """Values that mean "missing", from a sequence or from text with commas; numbers may be given as such."""
    if isinstance(given, str):
        given = [value.strip() for value in given.split(",")]
    return None if given is None else [str(value) for value in given]


def _one_or_several(given: Sequence[str] | str | None) -> tuple[str, ...] | str | None:
    """The name of a column, or the names of several."""
    names = _names(given)
    return names[0] if names and len(names) == 1 else names


def _infer(hints: Hints) -> Problem:
    """Choose the kind of problem by task, file format and column roles."""
    if hints.task == "language" or (hints.task is None and hints.format in ("text", "sentences")):
        hints.refuse_forecast_options("continue a text")
        return text.language_problem(hints)
    if hints.task == "translate":
        hints.refuse_forecast_options("translate")
        return pairs.translation_problem(hints)
    if hints.format in ("conll", "conllu"):
        hints.refuse_forecast_options("tag")
        return text.tagging_problem(hints)
    if hints.format not in TABLES:
        problem = series.from_file(hints) or sequences.from_file(hints)
        if problem.task != "forecast":
            hints.refuse_forecast_options(problem.task)
        return problem
    opened, roles, layout = prepare(open_table(hints.path, hints.format, hints.layout), hints.layout, strict=True)
    hints = hints.with_notations(roles)
    check_fits_in_memory(hints.path, opened.source.rows, len(used_columns(layout)))
    if roles.task in ("forecasting", "next_step"):
        return series.from_table(hints, opened, roles)
    if len(roles.named("target")) > 1:
        raise InputError("target", ", ".join(roles.named("target")), "one column; only a forecast has several targets")
    hints.refuse_forecast_options(WHAT_ROLES_DO.get(roles.task, roles.task))
    if roles.task == "tagging" and hints.task != "classify_steps" and (hints.task == "tag" or _has_words(roles)):
        return text.tagging_problem(hints, roles)
    return sequences.from_table(hints, roles)


def _has_words(roles: Roles) -> bool:
    """Whether the steps to label are words, not numbers."""
    kinds = {column.name: column.type for column in roles.columns}
    return roles.form == "nested" or not roles.inputs or kinds[roles.inputs[0]].startswith("text")


def detect_format(path: Path) -> str:
    """The format of a file. A text whose lines have equal numbers of words is CoNLL only if it has blank lines."""
    format = format_of(path)
    if format == "conll" and path.suffix.lower() in ("", ".txt", ".text", ".gz"):
        return format if b"\n\n" in head(path, 1 << 16).replace(b"\r", b"") else "text"
    return format


def _canonical_task(task: str | None) -> str | None:
    if task is None:
        return None
    name = TASK_ALIASES.get(task.lower(), task.lower())
    if name not in TASKS:
        raise UnknownNameError("task", repr(task), TASKS)
    return name


def _train_and_test(source: Path, test: Any) -> tuple[Path, Any]:
    """The training file, and the test file or the fraction to hold out."""
    if source.is_dir() and (found := sorted([*source.glob("*_TRAIN.ts"), *source.glob("*train*.conll*")])):
        if len(found) > 1:
            raise InputError("source", f"{source} with {', '.join(path.name for path in found)}", "one of these files")
        source = found[0]
    path = existing(source)
    if test is None and path.is_file():
        test = holdout.matching_test_file(path)
    if test is not None and holdout.holdout_fraction(test) is None:
        test = existing(test)
        if detect_format(test) != detect_format(path):
            raise FormatError(test, f"the format {detect_format(test)}", f"{detect_format(path)}, like {path.name}")
    return path, test
