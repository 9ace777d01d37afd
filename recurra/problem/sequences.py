"""Classification and regression of whole sequences: reading, splitting and summarising them."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from recurra.data.data_errors import FormatError
from recurra.data.open_quotes import SYMBOLS as OPEN_QUOTES_SYMBOLS
from recurra.data.precision import double_precision
from recurra.data.readers.column_roles import ColumnRole, Roles
from recurra.data.readers.dispatch import TABLES, open_table, read
from recurra.data.readers.indicators import one_hot_runs
from recurra.data.readers.labels import Encoder
from recurra.data.readers.layout import NO_COLUMN, Layout
from recurra.data.readers.open_files import existing, lines, text_encoding
from recurra.data.sequences import SequenceSet
from recurra.errors import InputError
from recurra.problem import holdout
from recurra.problem.hints import Hints
from recurra.problem.problem import LoadedData, Problem

#: built-in data set → what it is, why its task is classification, how it was split
BUILTIN_TEXTS = {
    "japanese_vowels": (
        "Japanese Vowels: which of nine speakers says a short vowel sequence (CC BY 4.0)",
        "each utterance has one speaker",
        "published split",
    ),
    "open_quotes": (
        "Open Quotes: does a line of code, cut at some place, end inside a string? (Apache-2.0)",
        "a string is open or closed at the end of each line",
        "from other files",
    ),
}
READER_TASKS = {
    "classify": "classification",
    "regress": "regression",
    "classify_steps": "tagging",
    "regress_steps": "transduction",
}
STEP_TASKS = ("classify_steps", "regress_steps")
MAX_VOCABULARY = 512
#: parts of a schema that are options of a table reader
TABLE_OPTIONS = (
    "id",
    "time",
    "static",
    "missing",
    "fill",
    "sort",
    "dates",
    "decimal",
    "sheet",
    "encoding",
    "na",
    "categories",
)
#: reader → options that fix the classes or the vocabulary to those of the training file
READER_OPTIONS = {"ts": ("classes",), "npz": ("classes",), "text_folder": ("classes", "vocabulary")}


def builtin_problem(name: str, task: str | None, seed: int) -> Problem:
    """A built-in data set with its split."""
    from recurra import data

    if task not in (None, "classify"):
        raise InputError("task", task, f"classify for {name}")
    file, reason, how = BUILTIN_TEXTS[name]
    parts = [getattr(data, name)(split) for split in ("train", "test")]
    train, test = (([x.double().numpy() for x in part.sequences], part.labels.numpy()) for part in parts)
    schema: dict[str, Any] = {"task": "classify", "format": name}
    if name == "open_quotes":
        names = np.array(["closed", "open"])
        train, test = (train[0], names[train[1]]), (test[0], names[test[1]])
        schema["vocabulary"] = list(OPEN_QUOTES_SYMBOLS)
    summary = (("file", file), *_summary("classify", reason, train, test, how, ()))
    return Problem("classify", name, train, test, "accuracy", summary, {"random_state": seed}, schema)


def from_table(hints: Hints, roles: Roles) -> Problem:
    """The problem of a table whose rows are steps or sequences."""
    schema = {"format": hints.format, **_columns(roles), **hints.cleaning}
    if roles.form == "nested":
        return _problem(hints, *_by_content(hints, schema), roles.columns)
    return _problem(hints, schema, roles.reason, roles.columns)


def from_file(hints: Hints) -> Problem:
    """The problem of a file whose format itself says what the sequences and targets are."""
    return _problem(hints, *_by_content(hints, {"task": hints.task, "format": hints.format}))


def _problem(hints: Hints, schema: dict[str, Any], reason: str, columns: tuple[ColumnRole, ...] = ()) -> Problem:
    items, task = read_sequences(hints.path, schema), schema["task"]
    if schema.get("form"):
        schema = {**schema, "categories": items.categories, "features": items.features}
    if items.y is None:
        raise FormatError(hints.path, "sequences without a target", "one class or number per sequence")
    labels = np.concatenate(items.y) if task in STEP_TASKS else items.y
    if task.startswith("classify") and len(set(labels.tolist())) < 2:
        got = f"one class only, {labels.tolist()[0]!r}"
        raise FormatError(hints.path, got, "two or more", column=str(schema.get("target")))
    other = _test_file(hints.test, schema)
    train, test, how = _split(items, task, schema, hints.test, hints.seed, other)
    if task == "classify_steps" and len(left := np.unique(np.concatenate(train[1]))) < 2:
        got = f"one class only, {left.tolist()[0]!r}, in what is left for training ({how} are held out)"
        expected = "two or more; hold out less, or another file, with test="
        raise FormatError(hints.path, got, expected, column=str(schema.get("target")))
    summary = (hints.file_summary, *_summary(task, reason, train, test, how, schema.get("features", ())))
    summary += tuple(("note", note) for note in items.notes)
    summary += tuple(("note", f"{Path(hints.test).name}: {note}") for note in (other.notes if other else ()))
    metric, options = "accuracy" if task.startswith("classify") else "mae", dict[str, Any](random_state=hints.seed)
    if task in STEP_TASKS and (runs := one_hot_runs(items.features, items.categories)):
        options["one_hot"] = [list(run) for run in runs]
    summary = _with_columns(summary, schema, columns)
    return Problem(task, hints.source, train, test, metric, summary, options, schema, columns)


def _by_content(hints: Hints, schema: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The schema of a file whose reader decides the task, and the reason for it."""
    data = _read(hints.path, schema)
    found = {value: key for key, value in READER_TASKS.items()}.get(data.task)
    if found is None or hints.task not in (None, found):
        expected = f"sequences to {hints.task}" if hints.task else "one class or number per sequence"
        raise FormatError(hints.path, f"sequences for {data.task.replace('_', ' ')}", expected)
    if len(data.vocabulary) > MAX_VOCABULARY:
        expected = f"at most {MAX_VOCABULARY} distinct ones"
        raise FormatError(hints.path, f"{len(data.vocabulary)} distinct words", expected)
    schema = {**schema, "task": found, "classes": list(data.classes), "vocabulary": list(data.vocabulary)}
    return schema, f"the file has one {'class' if found == 'classify' else 'number'} per sequence"


def _columns(roles: Roles) -> dict[str, Any]:
    """The roles as part of a schema."""
    task = {value: key for key, value in READER_TASKS.items()}.get(roles.task)
    inputs = [name for steps in roles.channels.values() for name in steps] or list(roles.inputs)
    static = list(roles.named("static")) if roles.form == "wide" else []
    named = {"id": roles.one("id"), "time": list(roles.named("time")), "target": roles.one("target")}
    named |= {"inputs": [*inputs, *static] if roles.form == "wide" else inputs, "static": static}
    return {"task": task, "form": roles.form} | {key: value for key, value in named.items() if value}


# ---------------------------------------------------------------------------------------------------- reading


def read_sequences(path: str | Path, schema: dict[str, Any]) -> LoadedData:
    """The sequences of a file in file order, (T, D) float64 each; `y` is None if the file has no targets."""
    if schema["format"] == "japanese_vowels":
        schema = {"task": "classify", "format": "ts"}
    path = existing(path)
    if schema["format"] == "text" and schema.get("vocabulary"):
        return _lines(path, schema["vocabulary"])
    with double_precision():
        data = _read(path, schema)
        X = [_as_features(example.inputs, len(schema.get("vocabulary", ()))) for example in data]
        y = None if _is_unlabelled(path, schema) else _targets(data)
    names, categories = [data.name(k) for k in range(len(data))], {k: list(v) for k, v in data.categories.items()}
    return LoadedData(X, y, names, categories, list(data.features), data.notes)


def _read(path: Path, schema: dict[str, Any]) -> SequenceSet:
    options: dict[str, Any] = {}
    if schema.get("form") is not None:
        options = {key: schema[key] for key in TABLE_OPTIONS if schema.get(key)}
        options |= {"categories": schema["categories"]} if "categories" in schema else {}
        options["irregular"] = True
    if schema.get("form") in ("long", "wide"):
        options |= {"features": schema["inputs"], "form": schema["form"], "task": READER_TASKS[schema["task"]]}
        if schema["form"] == "long" and "id" not in options:
            options["id"] = NO_COLUMN
        options.setdefault("time", NO_COLUMN)
        if _is_unlabelled(path, schema):
            options["unlabelled"] = True
        else:
            options["label" if schema["task"] in ("classify", "classify_steps") else "target"] = schema["target"]
    elif schema.get("form") == "nested":
        options |= {"features": schema["inputs"]} if schema.get("inputs") else {}
        if schema.get("target") and schema["target"] in column_names(path, schema):
            options[_target_option(path, schema)] = schema["target"]
    for key in ("classes", "vocabulary"):
        if schema.get(key) and (schema["format"] in TABLES or key in READER_OPTIONS.get(schema["format"], ())):
            options[key] = schema[key]
    return read(path, schema["format"], **options)


def _is_unlabelled(path: Path, schema: dict[str, Any]) -> bool:
    """Whether a table lacks the target."""
    return schema.get("form") in ("long", "wide") and schema["target"] not in column_names(path, schema)


def column_names(path: Path, schema: dict[str, Any]) -> list[str]:
    """The columns of a table."""
    with text_encoding(schema.get("encoding")):
        return open_table(path, schema["format"], Layout.of_writing(schema)).source.schema.names


def _target_option(path: Path, schema: dict[str, Any]) -> str:
    """The reader option for a nested target: "label" or "target" (a number)."""
    import pyarrow as pa

    if schema.get("task"):
        return "label" if schema["task"] == "classify" else "target"
    kind = open_table(path, schema["format"], Layout.of_writing(schema)).source.schema.field(schema["target"]).type
    return "target" if pa.types.is_floating(kind) else "label"


def _lines(path: Path, letters: list[str]) -> LoadedData:
    """Every line of a text as one-hot characters, for a model trained on characters."""
    known, texts, X = Encoder(letters, path), [], []
    for number, line in lines(path):
        if line.strip():
            texts.append(line.strip())
            X.append(np.eye(len(letters))[known.encode(texts[-1], [number] * len(texts[-1])).numpy()])
    return LoadedData(X, None, texts)


def _as_features(inputs: torch.Tensor, alphabet: int) -> np.ndarray:
    """(T, D); token ids as one-hot rows of width `alphabet`."""
    if inputs.ndim == 1 and not inputs.is_floating_point():
        return np.eye(alphabet)[inputs.numpy()]
    return inputs.double().numpy()


def _targets(data: SequenceSet) -> Any:
    """An array with one target per sequence, or a list with the targets of every step."""
    if data.task == "tagging":
        numbers = [np.asarray(target) for target in data.targets]
        classes = parse_integer_labels(np.array([str(name) for name in data.classes]))
        return [classes[row] for row in numbers]
    if data.task == "transduction":
        return [np.asarray(target, dtype=np.float64)[:, 0] for target in data.targets]
    if data.task == "classification":
        numbers = [int(target) for target in data.targets]
        return parse_integer_labels(np.array([data.classes[k] if data.classes else str(k) for k in numbers]))
    if data.task == "regression":
        rows = np.stack([np.asarray(target, dtype=np.float64) for target in data.targets])
        return rows[:, 0] if rows.shape[1] == 1 else rows
    return None


def parse_integer_labels(labels: np.ndarray) -> np.ndarray:
    """Labels as int64 if all of them are integers in canonical form, or whole numbers like 2.0; else unchanged."""
    try:
        values = labels.astype(np.float64)
        numbers = values.astype(np.int64)
    except (ValueError, OverflowError):
        return labels
    if not np.isfinite(values).all() or not (numbers == values).all():
        return labels
    plain = np.char.add(numbers.astype(str), ".0")
    return numbers if ((numbers.astype(str) == labels) | (plain == labels)).all() else labels


# ---------------------------------------------------------------------------------------------------- holding out


def _test_file(test: Any, schema: dict[str, Any]) -> LoadedData | None:
    """The data of a test file, if there is one."""
    if holdout.holdout_fraction(test) is not None:
        return None
    found = read_sequences(test, schema)
    if found.y is None:
        raise FormatError(test, "no target", f"the column {schema.get('target')!r}")
    return found


def _split(
    items: LoadedData, task: str, schema: dict[str, Any], test: Any, seed: int, other: LoadedData | None
) -> tuple[Any, Any, str]:
    if other is not None:
        return (items.X, items.y), (other.X, other.y), f"from {Path(test).name}"
    fraction = holdout.holdout_fraction(test) or 0.0
    if task in STEP_TASKS and fraction and len(items.X) == 1:
        cut = len(items.X[0]) - max(1, round(fraction * len(items.X[0])))
        parts = [([items.X[0][part]], [items.y[0][part]]) for part in (slice(cut), slice(cut, None))]
        return parts[0], parts[1], f"the last {fraction:.0%} of the steps"
    rows = holdout.random_split(len(items.X), fraction, seed, items.y if task == "classify" else None)
    if not rows[1] or items.y is None:
        return (items.X, items.y), None, "nothing"
    if task in STEP_TASKS:
        train, held_out = (([items.X[k] for k in chosen], [items.y[k] for k in chosen]) for chosen in rows)
        return train, held_out, f"random {fraction:.0%}, seed {seed}"
    train, held_out = (([items.X[k] for k in chosen], items.y[chosen]) for chosen in rows)
    return train, held_out, f"random {fraction:.0%}, seed {seed}"


def _summary(task: str, reason: str, train: Any, test: Any, how: str, names: Any) -> tuple[tuple[str, str], ...]:
    lengths = [len(x) for x in train[0]]
    steps = f"{min(lengths)} to {max(lengths)}" if min(lengths) < max(lengths) else str(lengths[0])
    held = f"{len(test[0]):,} for testing ({how})" if test else "none held out"
    width = train[0][0].shape[1]
    listed = f": {', '.join(names[:8])}{', …' if len(names) > 8 else ''}" if names and len(names) == width else ""
    summary = [
        ("task", f"{task}: {reason}"),
        ("sequences", f"{len(lengths):,} for training, {held}"),
        ("steps", f"{steps} per sequence, {width} feature{'s' if width > 1 else ''} per step{listed}"),
    ]
    targets = np.concatenate(train[1]) if task in STEP_TASKS else np.asarray(train[1])
    if task.startswith("classify"):
        classes, counts = np.unique(targets, return_counts=True)
        shown = ", ".join(map(str, classes[:10].tolist())) + (", …" if len(classes) > 10 else "")
        share = counts.max() / counts.sum()
        rounded = "more than 99%" if 0.99 < share < 1 else f"{share:.0%}"
        summary.append(("classes", f"{len(classes)}: {shown}; largest class {rounded}"))
    else:
        y = targets.astype(np.float64)
        summary.append(("target", f"{y.min():g} to {y.max():g}, mean {y.mean():g}"))
    return tuple(summary)


def _with_columns(
    summary: tuple[tuple[str, str], ...], schema: dict[str, Any], columns: tuple[ColumnRole, ...]
) -> tuple[tuple[str, str], ...]:
    roles = {key: schema[key] for key in ("id", "time", "target") if schema.get(key)}
    if not roles:
        return summary
    named = {name: "+".join(value) if isinstance(value, list) else value for name, value in roles.items()}
    shown = ", ".join(f"{name} {column!r}" for name, column in named.items())
    ignored = [column.name for column in columns if column.role == "ignored"]
    shown += f"; ignored: {', '.join(ignored)}" if ignored else ""
    return (summary[0], summary[1], ("columns", shown), *summary[2:])
