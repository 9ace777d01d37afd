"""Questions about whole sequences: which class is it, which number belongs to it?"""

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recurra.data.data_errors import FormatError
from recurra.data.readers.dispatch import read
from recurra.data.readers.labels import Encoder
from recurra.data.readers.open_files import existing, lines
from recurra.data.sequences import SequenceSet
from recurra.errors import InputError
from recurra.problem import holdout
from recurra.problem.columns import Parts
from recurra.problem.hints import Asked
from recurra.problem.problem import Question
from recurra.problem.tabular import FORMATS, load

SPELLED = {"classify": "classification", "regress": "regression"}
LARGEST_ALPHABET = 512
#: readers that can be told the classes, or the letters, of another file
KNOWS = {"ts": ("classes",), "npz": ("classes",), "text_folder": ("classes", "vocabulary")}


@dataclass(frozen=True)
class Items:
    """Sequences of a file in the order of the file; `y` is None where the file does not say."""

    X: list[np.ndarray]  # (T, D) each
    y: np.ndarray | None
    names: list[str]


def built_in(name: str, task: str | None, seed: int) -> Question:
    """Japanese Vowels, with the split it was published with."""
    from recurra.data import japanese_vowels

    if task not in (None, "classify"):
        raise InputError("task", task, f"classify, for {name}")
    train, test = japanese_vowels("train"), japanese_vowels("test")
    learn, check = (([x.double().numpy() for x in part.sequences], part.labels.numpy()) for part in (train, test))
    facts = (
        ("file", "Japanese Vowels: nine speakers, told apart by a fraction of a second of speech (CC BY 4.0)"),
        *_facts("classify", "each utterance has one speaker", learn, check, "as published", ()),
    )
    reading = {"task": "classify", "format": name}
    return Question("classify", name, learn, check, "accuracy", facts, {"random_state": seed}, reading)


def from_columns(asked: Asked, parts: Parts) -> Question:
    """A question about the sequences of a table."""
    reading = {"format": asked.format, **_columns(parts), **asked.cleaning}
    if parts.form == "nested":
        return _question(asked, *_by_content(asked, reading))
    return _question(asked, reading, parts.why, parts.unread)


def alone(asked: Asked) -> Question:
    """A question about the sequences of a file that says itself what they are."""
    return _question(asked, *_by_content(asked, {"task": asked.task, "format": asked.format}))


def _question(asked: Asked, reading: dict[str, Any], why: str, unread: tuple[str, ...] = ()) -> Question:
    items, task = read_items(asked.path, reading), reading["task"]
    if items.y is None:
        raise FormatError(asked.path, "sequences without a target", "one class or number for each sequence")
    if task == "classify" and len(set(items.y.tolist())) < 2:
        got = f"one class alone, {items.y.tolist()[0]!r}"
        raise FormatError(asked.path, got, "two or more", column=reading.get("target"))
    train, check, how = _split(items, task, reading, asked.test, asked.seed)
    facts = (asked.file, *_facts(task, why, train, check, how, reading.get("inputs", ())))
    metric, options = "accuracy" if task == "classify" else "mae", {"random_state": asked.seed}
    return Question(task, asked.source, train, check, metric, _with_columns(facts, reading, unread), options, reading)


def _by_content(asked: Asked, reading: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """How a file is read whose own reader decides, and why so."""
    data = _read(asked.path, reading)
    found = {value: key for key, value in SPELLED.items()}.get(data.task)
    if found is None or asked.task not in (None, found):
        expected = f"sequences to {asked.task}" if asked.task else "one class or number for each sequence"
        raise FormatError(asked.path, f"sequences for {data.task.replace('_', ' ')}", expected)
    if len(data.vocabulary) > LARGEST_ALPHABET:
        expected = f"at most {LARGEST_ALPHABET} different ones"
        raise FormatError(asked.path, f"{len(data.vocabulary)} different words", expected)
    reading = {**reading, "task": found, "classes": list(data.classes), "vocabulary": list(data.vocabulary)}
    return reading, f"the file has one {'class' if found == 'classify' else 'number'} for each sequence"


def _columns(parts: Parts) -> dict[str, Any]:
    named = {"id": parts.id, "time": parts.time, "target": parts.target, "inputs": list(parts.inputs)}
    return {"task": parts.task, "form": parts.form} | {key: value for key, value in named.items() if value}


# ---------------------------------------------------------------------------------------------------- reading


def read_items(path: str | Path, reading: dict[str, Any]) -> Items:
    """The sequences of a file, read as `reading` says; targets only where the file has them."""
    if reading["format"] == "japanese_vowels":
        reading = {"task": "classify", "format": "ts"}
    path = existing(path)
    if reading.get("form") == "wide":
        return _wide(path, reading)
    if reading["format"] == "text" and reading.get("vocabulary"):
        return _lines(path, reading["vocabulary"])
    with doubles():
        data = _read(path, reading)
        X = [_numbers(example.inputs, len(reading.get("vocabulary", ()))) for example in data]
        y = _targets(data)
    return Items(X, y, [data.name(k) for k in range(len(data))])


def _read(path: Path, reading: dict[str, Any]) -> SequenceSet:
    options: dict[str, Any] = {}
    if reading.get("form") is not None:
        options = {key: reading[key] for key in ("id", "time", "missing", "sort") if reading.get(key)}
        options["irregular"] = True
    if reading.get("form") == "long":
        options["features"] = reading["inputs"]
        if reading["target"] not in load(path, reading["format"]).column_names:
            return read(path, reading["format"], **options, target=reading["inputs"][:1], task="transduction")
        options["task"] = SPELLED[reading["task"]]
        options["label" if reading["task"] == "classify" else "target"] = reading["target"]
    elif reading.get("form") == "nested":
        options |= {"features": reading["inputs"]} if reading.get("inputs") else {}
        options |= {_part(path, reading): reading["target"]} if reading.get("target") else {}
    for key in ("classes", "vocabulary"):
        if reading.get(key) and (reading["format"] in FORMATS or key in KNOWS.get(reading["format"], ())):
            options[key] = reading[key]
    return read(path, reading["format"], **options)


def _part(path: Path, reading: dict[str, Any]) -> str:
    """Whether the target of a whole row is a label or a number."""
    import pyarrow as pa

    if reading.get("task"):
        return "label" if reading["task"] == "classify" else "target"
    kind = load(path, reading["format"]).schema.field(reading["target"]).type
    return "target" if pa.types.is_floating(kind) else "label"


def _wide(path: Path, reading: dict[str, Any]) -> Items:
    table, target = load(path, reading["format"]), reading["target"]
    for row, column in ((row, c) for c in reading["inputs"] for row in _gaps(table, c)):
        raise FormatError(path, "nothing", "a number; lengths that differ need one row a step", row + 2, column)
    values = np.stack([table.column(c).to_numpy().astype(np.float64) for c in reading["inputs"]], axis=1)  # (n, T)
    y = None
    if target in table.column_names:
        found = table.column(target).to_pylist()
        y = np.array([str(v) for v in found]) if reading["task"] == "classify" else np.array(found, dtype=np.float64)
        y = natural(y) if reading["task"] == "classify" else y
    return Items([row[:, None] for row in values], y, [str(k) for k in range(len(values))])


def _lines(path: Path, letters: list[str]) -> Items:
    """Every line of a text, for a model that learned from letters."""
    known, texts, X = Encoder(letters, path), [], []
    for number, line in lines(path):
        if line.strip():
            texts.append(line.strip())
            X.append(np.eye(len(letters))[known.encode(texts[-1], [number] * len(texts[-1])).numpy()])
    return Items(X, None, texts)


def _gaps(table: Any, column: str) -> list[int]:
    return np.flatnonzero(table.column(column).is_null().to_numpy()).tolist()


def _numbers(inputs: torch.Tensor, alphabet: int) -> np.ndarray:
    """(T, D); letters as one of so many."""
    if inputs.ndim == 1 and not inputs.is_floating_point():
        return np.eye(alphabet)[inputs.numpy()]
    return inputs.double().numpy()


def _targets(data: SequenceSet) -> np.ndarray | None:
    if data.task == "classification":
        numbers = [int(target) for target in data.targets]
        return natural(np.array([data.classes[k] if data.classes else str(k) for k in numbers]))
    if data.task == "regression":
        rows = np.stack([np.asarray(target, dtype=np.float64) for target in data.targets])
        return rows[:, 0] if rows.shape[1] == 1 else rows
    return None


def natural(labels: np.ndarray) -> np.ndarray:
    """Labels that are whole numbers, written as such, as numbers."""
    try:
        numbers = labels.astype(np.int64)
    except (ValueError, OverflowError):
        return labels
    return numbers if (numbers.astype(str) == labels).all() else labels


@contextmanager
def doubles():
    """Files are read in double precision inside."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


# ---------------------------------------------------------------------------------------------------- holding out


def _split(items: Items, task: str, reading: dict[str, Any], test: Any, seed: int) -> tuple[Any, Any, str]:
    part = holdout.share(test)
    if part is None:
        other = read_items(test, reading)
        if other.y is None:
            raise FormatError(test, "no target", f"the column {reading.get('target')!r}, to test against")
        return (items.X, items.y), (other.X, other.y), f"of {Path(test).name}"
    learn, check = holdout.draw(len(items.X), part, seed, items.y if task == "classify" else None)
    if not check or items.y is None:
        return (items.X, items.y), None, "nothing"
    picked = [([items.X[k] for k in places], items.y[places]) for places in (learn, check)]
    return picked[0], picked[1], f"{part:.0%}, drawn by seed {seed}"


def _facts(task: str, why: str, train: Any, test: Any, how: str, names: Any) -> tuple[tuple[str, str], ...]:
    lengths = [len(x) for x in train[0]]
    steps = f"{min(lengths)} to {max(lengths)}" if min(lengths) < max(lengths) else str(lengths[0])
    held = f"{len(test[0]):,} to test on ({how})" if test else "none held out"
    width = train[0][0].shape[1]
    listed = f": {', '.join(names[:8])}{', …' if len(names) > 8 else ''}" if names and len(names) == width else ""
    facts = [
        ("task", f"{task}: {why}"),
        ("sequences", f"{len(lengths):,} to learn from, {held}"),
        ("steps", f"{steps} a sequence, {width} number{'s' if width > 1 else ''} a step{listed}"),
    ]
    if task == "classify":
        classes, counts = np.unique(np.asarray(train[1]), return_counts=True)
        shown = ", ".join(map(str, classes[:10].tolist())) + (", …" if len(classes) > 10 else "")
        share = counts.max() / counts.sum()
        facts.append(("classes", f"{len(classes)}: {shown}; the most frequent is {share:.0%}"))
    else:
        y = np.asarray(train[1], dtype=np.float64)
        facts.append(("target", f"{y.min():g} to {y.max():g}, mean {y.mean():g}"))
    return tuple(facts)


def _with_columns(
    facts: tuple[tuple[str, str], ...], reading: dict[str, Any], unread: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    parts = {key: reading[key] for key in ("id", "time", "target") if reading.get(key)}
    if not parts:
        return facts
    shown = ", ".join(f"{name} {column!r}" for name, column in parts.items())
    shown += f"; not read, since not numbers: {', '.join(unread)}" if unread else ""
    return (facts[0], facts[1], ("columns", shown), *facts[2:])
