"""Tagging and language-model problems: reading sentences and texts."""

from itertools import groupby
from pathlib import Path
from typing import Any

from recurra.data.data_errors import EmptyFileError, FormatError, MissingColumnError
from recurra.data.readers.column_roles import Roles
from recurra.data.readers.conll import CONLLU
from recurra.data.readers.dispatch import TABLES, format_of, open_table, read
from recurra.data.readers.layout import Layout
from recurra.data.readers.open_files import existing, text_blocks
from recurra.errors import InputError
from recurra.models.tagging.schemes import looks_chunked
from recurra.problem import holdout
from recurra.problem.hints import Hints
from recurra.problem.problem import Problem

Sentences = list[list[str]]
HELD_OUT_TEXT = 0.1  # default test fraction of a text


def tagging_problem(hints: Hints, roles: Roles | None = None) -> Problem:
    """The problem of tagging each word of a sentence."""
    if hints.task not in (None, "tag"):
        raise FormatError(hints.path, f"tagged sentences ({hints.format})", f"sequences to {hints.task}")
    schema: dict[str, Any] = {"task": "tag", "format": hints.format, "target": hints.columns["target"]}
    if roles is not None:
        if (roles.form == "long" and not roles.inputs) or roles.one("target") is None:
            raise FormatError(hints.path, "no column of words", "one; name it with inputs=")
        _check_words(hints, roles)
        schema |= {"target": roles.one("target"), "id": roles.one("id"), "form": roles.form}
        schema |= {"inputs": list(roles.inputs[:1])}
    train, test, how = _split(hints, schema, *_read_tagged(hints.path, schema))
    kinds = sorted({tag for sentence in train[1] for tag in sentence})
    metric = "f1" if looks_chunked(kinds) else "accuracy"
    reason = "each word has a tag" + (", and the tags mark entities" if metric == "f1" else "")
    held = f"{len(test[0]):,} for testing ({how})" if test else "none held out"
    summary = (
        hints.file_summary,
        ("task", f"tag: {reason}"),
        ("sentences", f"{len(train[0]):,} for training, {held}"),
        ("words", f"{sum(map(len, train[0])):,}, {len({w for s in train[0] for w in s}):,} distinct"),
        ("tags", f"{len(kinds)}: {', '.join(kinds[:10])}{', …' if len(kinds) > 10 else ''}"),
    )
    columns, options = roles.columns if roles else (), {"random_state": hints.seed}
    return Problem("tag", hints.source, train, test, metric, summary, options, schema, columns)


def _check_words(hints: Hints, roles: Roles) -> None:
    """Raise unless the table has words in rows that an id groups to sentences, or in lists."""
    if roles.form == "long" and roles.one("id") is None:
        raise FormatError(hints.path, "no column that identifies sentences", "one; name it with id=")
    words = next(column for column in roles.columns if column.name == roles.inputs[0])
    if roles.form == "long" and not words.type.startswith("text"):
        expected = "one label per sequence; name the column that identifies sequences with id="
        raise FormatError(hints.path, "a label that changes from row to row", expected, column=roles.one("target"))


def _read_tagged(path: str | Path, schema: dict[str, Any]) -> tuple[Sentences, Sentences]:
    words, tags = read_sentences(path, schema)
    if tags is None:
        raise FormatError(path, "words without tags", "one tag per word")
    return words, tags


def _split(hints: Hints, schema: dict[str, Any], words: Sentences, tags: Sentences) -> tuple[Any, Any, str]:
    fraction = holdout.holdout_fraction(hints.test)
    if fraction is None:
        return (words, tags), _read_tagged(hints.test, schema), f"from {Path(hints.test).name}"
    rows = holdout.random_split(len(words), fraction, hints.seed)
    train, test = (([words[k] for k in chosen], [tags[k] for k in chosen]) for chosen in rows)
    return train, test if rows[1] else None, f"random {fraction:.0%}, seed {hints.seed}"


def read_sentences(path: str | Path, schema: dict[str, Any]) -> tuple[Sentences, Sentences | None]:
    """Words and tags of a file. A plain text has one sentence per line, words split at white space, and no tags."""
    path = existing(path)
    if schema["format"] in ("text", "sentences"):
        return [line.split() for line in read_text(path).splitlines() if line.strip()], None
    if schema["format"] in TABLES:
        return _from_rows(path, schema) if schema.get("form") == "long" else _from_lists(path, schema)
    options: dict[str, Any] = {}
    if schema.get("target") is not None:
        options["tag"] = schema["target"] if schema["format"] == "conllu" else _column_number(schema["target"])
    data = read(path, schema["format"], **options)
    tags = [[data.classes[int(k)] for k in target] for target in data.targets]
    return [list(words) for words in data.texts or ()], tags


def _from_rows(path: Path, schema: dict[str, Any]) -> tuple[Sentences, Sentences | None]:
    """One word per row; consecutive rows with the same id are a sentence."""
    source = open_table(path, schema["format"], Layout.of_writing(schema)).source
    table = source.read(source.schema.names, 0, source.rows)
    columns = [
        schema["id"],
        *schema["inputs"],
        *([schema["target"]] if schema["target"] in table.column_names else []),
    ]
    for column in columns:
        if column not in table.column_names:
            raise MissingColumnError.among(path, column, table.column_names)
    rows = zip(*(table.column(column).to_pylist() for column in columns), strict=True)
    sentences = [list(group) for _, group in groupby(rows, key=lambda row: row[0])]
    words, tags = ([[str(row[k]) for row in rows] for rows in sentences] if k < len(columns) else None for k in (1, 2))
    return words or [], tags


def _from_lists(path: Path, schema: dict[str, Any]) -> tuple[Sentences, Sentences | None]:
    """One sentence per row: a list of words and a list of tags."""
    source = open_table(path, schema["format"], Layout.of_writing(schema)).source
    table = source.read(source.schema.names, 0, source.rows)
    column = schema["inputs"][0]
    if column not in table.column_names:
        raise MissingColumnError.among(path, column, table.column_names)
    words = [[str(word) for word in row] for row in table.column(column).to_pylist()]
    if schema["target"] not in table.column_names:
        return words, None
    tags = [[str(tag) for tag in row] for row in table.column(schema["target"]).to_pylist()]
    for number, (sentence, row) in enumerate(zip(words, tags, strict=True), start=1):
        if len(sentence) != len(row):
            raise FormatError(
                path, f"{len(row)} tags for {len(sentence)} words", "one tag per word", number, schema["target"]
            )
    return words, tags


def _column_number(target: str) -> int:
    try:
        return int(target)
    except ValueError as error:
        expected = f"a column number such as 1 or -1 (only CoNLL-U columns have names: {', '.join(CONLLU)})"
        raise InputError("target", repr(target), expected) from error


def language_problem(hints: Hints) -> Problem:
    """The problem of predicting the next character of a text; the end of the text is held out."""
    text = read_text(hints.path)
    fraction = holdout.holdout_fraction(HELD_OUT_TEXT if hints.test is None else hints.test)
    if fraction is None:
        other = Path(hints.test or "")
        train, test, how = text, read_text(other), other.name
    else:
        cut = len(text) - int(fraction * len(text))
        train, test, how = text[:cut], text[cut:], f"last {fraction:.0%}"
    unseen = set(test) - set(train)
    test = "".join(letter for letter in test if letter not in unseen)
    kinds = "1 character" if len(unseen) == 1 else f"{len(unseen)} characters"
    removed = f"; {kinds} not in the training text removed" if unseen else ""
    summary = (
        hints.file_summary,
        ("task", "language: " + ("as given" if hints.task else "the file is plain text")),
        ("characters", f"{len(train):,} for training, {len(set(train))} distinct"),
        ("held out", f"{len(test):,} characters ({how}){removed}" if len(test) > 1 else "nothing"),
    )
    held, options = (test, None) if len(test) > 1 else None, {"random_state": hints.seed}
    schema = {"task": "language", "format": "text"}
    return Problem("language", hints.source, (train, None), held, "bits per character", summary, options, schema)


def read_text(path: str | Path) -> str:
    """A plain text unchanged; a JSON list of sentences as one line per sentence."""
    path = existing(path)
    if format_of(path) == "sentences":
        return "\n".join(" ".join(words) for words in read(path, "sentences").texts or ())
    text = "".join(text_blocks(path))
    if len(text) < 2:
        raise EmptyFileError(path, "fewer than two characters", "a text")
    return text
