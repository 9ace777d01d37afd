"""Questions about words: which tag has each, and what comes next in a text?"""

from pathlib import Path
from typing import Any

from recurra.data.errors import EmptyFileError, FormatError
from recurra.data.readers.conll import CONLLU
from recurra.data.readers.dispatch import read
from recurra.data.readers.opening import existing, text_blocks
from recurra.errors import InputError
from recurra.models.tagging.schemes import looks_chunked
from recurra.questions import held_out
from recurra.questions.question import Question

Sentences = list[list[str]]
LAST = 0.1  # the share of a text that is held out


def tagging(path: Path, format: str, source: str, given: dict[str, Any], test: Any, seed: int) -> Question:
    """Sentences with a tag for each word."""
    if given["task"] not in (None, "tag"):
        raise FormatError(path, f"sentences with tags ({format})", f"sequences to {given['task']}")
    reading = {"task": "tag", "format": format, "target": given["target"]}
    words, tags = read_sentences(path, reading)
    part = held_out.share(test)
    if part is None:
        train, check, how = (words, tags), read_sentences(test, reading), f"of {Path(test).name}"
    else:
        learn, held = held_out.draw(len(words), part, seed)
        train = [words[k] for k in learn], [tags[k] for k in learn]
        check = ([words[k] for k in held], [tags[k] for k in held]) if held else None
        how = f"{part:.0%}, drawn by seed {seed}"
    kinds = sorted({tag for sentence in tags for tag in sentence})
    metric = "f1" if looks_chunked(kinds) else "accuracy"
    why = "each word has a tag" + (", and tags mark entities" if metric == "f1" else "")
    facts = (
        ("file", f"{path.name}, {format}"),
        ("task", f"tag: {why}"),
        (
            "sentences",
            f"{len(train[0]):,} to learn from, "
            + (f"{len(check[0]):,} to test on ({how})" if check else "none held out"),
        ),
        ("words", f"{sum(map(len, train[0])):,}, {len({w for s in train[0] for w in s}):,} different"),
        ("tags", f"{len(kinds)}: {', '.join(kinds[:10])}{', …' if len(kinds) > 10 else ''}"),
    )
    return Question("tag", source, train, check, metric, facts, {"random_state": seed}, reading)


def read_sentences(path: str | Path, reading: dict[str, Any]) -> tuple[Sentences, Sentences | None]:
    """Words and tags of a file; a plain text has a sentence on each line, words divided by white space, and no tags."""
    if reading["format"] in ("text", "sentences"):
        lines = [line.split() for line in read_text(path).splitlines() if line.strip()]
        return lines, None
    options: dict[str, Any] = {}
    if reading.get("target") is not None:
        options["tag"] = reading["target"] if reading["format"] == "conllu" else _place(reading["target"])
    data = read(path, reading["format"], **options)
    tags = [[data.classes[int(k)] for k in target] for target in data.targets]
    return [list(words) for words in data.texts or ()], tags


def _place(target: str) -> int:
    try:
        return int(target)
    except ValueError as error:
        expected = f"the number of a column, from 0, or from the end, -1; names are for CoNLL-U ({', '.join(CONLLU)})"
        raise InputError("target", repr(target), expected) from error


def language(path: Path, source: str, given: dict[str, Any], test: Any, seed: int) -> Question:
    """A text, whose end is held out."""
    text = read_text(path)
    part = LAST if test is None else held_out.share(test)
    if part is None:
        train, check, how = text, read_text(test), f"{Path(test).name}"
    else:
        cut = len(text) - int(part * len(text))
        train, check, how = text[:cut], text[cut:], f"the last {part:.0%}"
    facts = (
        ("file", f"{path.name}, text"),
        ("task", "language: " + ("as asked" if given["task"] else "the file is plain text; what comes next in it?")),
        ("characters", f"{len(train):,} to learn from, {len(set(train))} different; held out: {len(check):,} ({how})"),
    )
    held = (check, None) if len(check) > 1 else None
    reading = {"task": "language", "format": "text"}
    options = {"random_state": seed}
    return Question("language", source, (train, None), held, "bits per character", facts, options, reading)


def read_text(path: str | Path) -> str:
    path = existing(path)
    text = "".join(text_blocks(path))
    if len(text) < 2:
        raise EmptyFileError(path, "less than two characters", "a text")
    return text
