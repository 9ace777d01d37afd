"""Questions about words: which tag has each, and what comes next in a text?"""

from itertools import groupby
from pathlib import Path
from typing import Any

from recurra.data.data_errors import EmptyFileError, FormatError, MissingColumnError
from recurra.data.readers.conll import CONLLU
from recurra.data.readers.dispatch import format_of, read
from recurra.data.readers.open_files import existing, text_blocks
from recurra.errors import InputError
from recurra.models.tagging.schemes import looks_chunked
from recurra.problem import holdout
from recurra.problem.columns import Parts
from recurra.problem.hints import Asked
from recurra.problem.problem import Question
from recurra.problem.tabular import FORMATS, load

Sentences = list[list[str]]
LAST = 0.1  # the share of a text that is held out


def tagging(asked: Asked, parts: Parts | None = None) -> Question:
    """Sentences with a tag for each word."""
    if asked.task not in (None, "tag"):
        raise FormatError(asked.path, f"sentences with tags ({asked.format})", f"sequences to {asked.task}")
    reading: dict[str, Any] = {"task": "tag", "format": asked.format, "target": asked.columns["target"]}
    if parts is not None:
        reading |= {"target": parts.target, "id": parts.id, "form": parts.form, "inputs": list(parts.inputs)}
    train, check, how = _split(asked, reading, *_tagged(asked.path, reading))
    kinds = sorted({tag for sentence in train[1] for tag in sentence})
    metric = "f1" if looks_chunked(kinds) else "accuracy"
    why = "each word has a tag" + (", and tags mark entities" if metric == "f1" else "")
    held = f"{len(check[0]):,} to test on ({how})" if check else "none held out"
    facts = (
        asked.file,
        ("task", f"tag: {why}"),
        ("sentences", f"{len(train[0]):,} to learn from, {held}"),
        ("words", f"{sum(map(len, train[0])):,}, {len({w for s in train[0] for w in s}):,} different"),
        ("tags", f"{len(kinds)}: {', '.join(kinds[:10])}{', …' if len(kinds) > 10 else ''}"),
    )
    return Question("tag", asked.source, train, check, metric, facts, {"random_state": asked.seed}, reading)


def _tagged(path: str | Path, reading: dict[str, Any]) -> tuple[Sentences, Sentences]:
    words, tags = read_sentences(path, reading)
    if tags is None:
        raise FormatError(path, "words without tags", "a tag for each word")
    return words, tags


def _split(asked: Asked, reading: dict[str, Any], words: Sentences, tags: Sentences) -> tuple[Any, Any, str]:
    part = holdout.share(asked.test)
    if part is None:
        return (words, tags), _tagged(asked.test, reading), f"of {Path(asked.test).name}"
    learn, held = holdout.draw(len(words), part, asked.seed)
    train, check = (([words[k] for k in places], [tags[k] for k in places]) for places in (learn, held))
    return train, check if held else None, f"{part:.0%}, drawn by seed {asked.seed}"


def read_sentences(path: str | Path, reading: dict[str, Any]) -> tuple[Sentences, Sentences | None]:
    """Words and tags of a file; a plain text has a sentence on each line, words divided by white space, and no tags."""
    path = existing(path)
    if reading["format"] in ("text", "sentences"):
        return [line.split() for line in read_text(path).splitlines() if line.strip()], None
    if reading["format"] in FORMATS:
        return _from_rows(path, reading) if reading.get("form") == "long" else _from_lists(path, reading)
    options: dict[str, Any] = {}
    if reading.get("target") is not None:
        options["tag"] = reading["target"] if reading["format"] == "conllu" else _place(reading["target"])
    data = read(path, reading["format"], **options)
    tags = [[data.classes[int(k)] for k in target] for target in data.targets]
    return [list(words) for words in data.texts or ()], tags


def _from_rows(path: Path, reading: dict[str, Any]) -> tuple[Sentences, Sentences | None]:
    """A row a word; rows with the same id, one below the other, are a sentence."""
    table = load(path, reading["format"])
    wanted = [
        reading["id"],
        *reading["inputs"],
        *([reading["target"]] if reading["target"] in table.column_names else []),
    ]
    for column in wanted:
        if column not in table.column_names:
            raise MissingColumnError.among(path, column, table.column_names)
    rows = zip(*(table.column(column).to_pylist() for column in wanted), strict=True)
    sentences = [list(group) for _, group in groupby(rows, key=lambda row: row[0])]
    words, tags = ([[str(row[k]) for row in rows] for rows in sentences] if k < len(wanted) else None for k in (1, 2))
    return words or [], tags


def _from_lists(path: Path, reading: dict[str, Any]) -> tuple[Sentences, Sentences | None]:
    """A row a sentence: a list of words and a list of tags."""
    table = load(path, reading["format"])
    column = reading["inputs"][0]
    if column not in table.column_names:
        raise MissingColumnError.among(path, column, table.column_names)
    words = [[str(word) for word in row] for row in table.column(column).to_pylist()]
    if reading["target"] not in table.column_names:
        return words, None
    tags = [[str(tag) for tag in row] for row in table.column(reading["target"]).to_pylist()]
    for number, (sentence, row) in enumerate(zip(words, tags, strict=True), start=1):
        if len(sentence) != len(row):
            raise FormatError(
                path, f"{len(row)} tags for {len(sentence)} words", "one for each", number, reading["target"]
            )
    return words, tags


def _place(target: str) -> int:
    try:
        return int(target)
    except ValueError as error:
        expected = f"the number of a column, from 0, or from the end, -1; names are for CoNLL-U ({', '.join(CONLLU)})"
        raise InputError("target", repr(target), expected) from error


def language(asked: Asked) -> Question:
    """A text, whose end is held out."""
    text = read_text(asked.path)
    part = holdout.share(LAST if asked.test is None else asked.test)
    if part is None:
        other = Path(asked.test or "")
        train, check, how = text, read_text(other), other.name
    else:
        cut = len(text) - int(part * len(text))
        train, check, how = text[:cut], text[cut:], f"the last {part:.0%}"
    unseen = set(check) - set(train)
    check = "".join(letter for letter in check if letter not in unseen)
    left_out = f"; {len(unseen)} letters that occur nowhere else are left out" if unseen else ""
    facts = (
        asked.file,
        ("task", "language: " + ("as asked" if asked.task else "the file is text; what comes next in it?")),
        ("characters", f"{len(train):,} to learn from, {len(set(train))} different"),
        ("held out", f"{len(check):,} characters ({how}){left_out}" if len(check) > 1 else "nothing"),
    )
    held, options = (check, None) if len(check) > 1 else None, {"random_state": asked.seed}
    reading = {"task": "language", "format": "text"}
    return Question("language", asked.source, (train, None), held, "bits per character", facts, options, reading)


def read_text(path: str | Path) -> str:
    """A plain text as it is; sentences in JSON, one a line."""
    path = existing(path)
    if format_of(path) == "sentences":
        return "\n".join(" ".join(words) for words in read(path, "sentences").texts or ())
    text = "".join(text_blocks(path))
    if len(text) < 2:
        raise EmptyFileError(path, "less than two characters", "a text")
    return text
