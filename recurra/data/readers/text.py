"""Reads plain text: a file as one sequence of tokens, or a folder with one file per class and one sequence per line."""

import codecs
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from ...argument_checks import path_of
from ...errors import InputError, UnknownNameError
from ..data_errors import EmptyFileError, FormatError
from ..sequences import SequenceSet
from ..stores import Cast, Flat, offsets
from .labels import Encoder, vocabulary_of
from .limits import parse_json
from .open_files import existing, lines, text_blocks

Level = Literal["character", "word"]


def read_text(
    path: str | Path,
    level: Level = "character",
    *,
    vocabulary: Sequence[str] | None = None,
    least: int = 1,
    encoding: str = "utf-8-sig",
) -> SequenceSet:
    """A file as one sequence of tokens; the targets are the next tokens. Line ends become LF.

    Characters are stored in the smallest integer type for the vocabulary, one byte for up to 256. Words are separated
    by white space, with `<unk>` for rare words and a token for each line end.

    **Example**

        >>> from pathlib import Path
        >>> _ = Path("book.txt").write_text("to be or not to be")
        >>> data = rc.data.read_text("book.txt")
        >>> data.task, data.lengths.tolist(), "".join(data.vocabulary)
        ('language', [17], '<unk> otbenr')
    """
    path = existing(path)
    if level not in ("character", "word"):
        raise UnknownNameError("level", level, ("character", "word"))
    try:
        codecs.lookup(encoding)
    except LookupError as error:
        raise InputError("encoding", encoding, "the name of an encoding, like latin-1") from error
    blocks = partial(_blocks, path, encoding, list if level == "character" else _words)
    known = vocabulary or vocabulary_of(_counts(blocks()), least)
    codes = torch.from_numpy(_codes(blocks(), Encoder(known, path)))
    if len(codes) < 2:
        raise EmptyFileError(path, "less than two tokens", "a text")
    store = Cast([codes], torch.int64)
    return SequenceSet.one_step_ahead(
        store, torch.tensor([len(codes)]), "language", vocabulary=tuple(known), names=[path.name], source=str(path)
    )


def read_text_folder(
    path: str | Path, *, vocabulary: Sequence[str] | None = None, classes: Sequence[str] | None = None
) -> SequenceSet:
    """A folder of text files: every line is a sequence of characters, the file name is its class.

    **Example**

        >>> from pathlib import Path
        >>> Path("names").mkdir()
        >>> _ = Path("names/Irish.txt").write_text("Nora\\nSean\\n")
        >>> _ = Path("names/Greek.txt").write_text("Eleni\\n")
        >>> data = rc.data.read_text_folder("names")
        >>> data.classes, data.lengths.tolist()
        (('Greek', 'Irish'), [5, 4, 4])
    """
    path = path_of("path", path)
    files = sorted(path.glob("*.txt"))
    if not files:
        raise EmptyFileError(path, "no .txt file", "one for each class")
    texts, marks = [], []
    encoder = Encoder(classes or [file.stem for file in files], path, "file name")
    for file in files:
        written = [line.strip() for _, line in lines(existing(file)) if line.strip()]
        texts += written
        marks += [encoder.number(file.stem)] * len(written)
    known = Encoder(vocabulary or vocabulary_of("".join(texts)), path)
    lengths = torch.tensor([len(text) for text in texts])
    return SequenceSet(
        Flat(known.encode("".join(texts)), offsets(lengths)),
        torch.tensor(marks),
        lengths,
        "classification",
        classes=encoder.known,
        vocabulary=known.known,
        texts=texts,
        names=texts,
        source=str(path),
    )


def read_sentences(path: str | Path, *, vocabulary: Sequence[str] | None = None, least: int = 1) -> SequenceSet:
    """A JSON file of sentences, texts in lists of any depth; the tokens are words, the targets the next words.

    **Example**

        >>> from pathlib import Path
        >>> _ = Path("sentences.json").write_text('[["the cat sat", "the dog"], ["a bird sang"]]')
        >>> data = rc.data.read_sentences("sentences.json")
        >>> data.task, data.names, data.lengths.tolist()
        ('language', ['0/0', '0/1', '1/0'], [2, 1, 2])
    """
    path = existing(path)
    try:
        content = parse_json("".join(text_blocks(path)), path)
    except json.JSONDecodeError as error:
        raise FormatError(path, error.msg, "JSON", error.lineno, error.colno) from error
    sentences = list(_sentences(content, path))
    if not sentences:
        raise EmptyFileError(path, "no sentence of two words or more", "at least one")
    texts = [words for _, words in sentences]
    known = Encoder(vocabulary or vocabulary_of((word for words in texts for word in words), least), path)
    lengths = torch.tensor([len(words) for words in texts])
    tokens = Flat(known.encode(word for words in texts for word in words), offsets(lengths))
    return SequenceSet.one_step_ahead(
        tokens,
        lengths,
        "language",
        vocabulary=known.known,
        texts=texts,
        names=[name for name, _ in sentences],
        source=str(path),
    )


def _sentences(content: object, path: Path, name: str = "") -> Iterator[tuple[str, list[str]]]:
    if isinstance(content, str):
        if len(content.split()) > 1:
            yield name, content.split()
    elif isinstance(content, list):
        for number, item in enumerate(content):
            yield from _sentences(item, path, f"{name}/{number}" if name else str(number))
    else:
        raise FormatError(path, f"a {type(content).__name__} in JSON", "sentences in a list, or one JSON object a line")


def _words(block: str) -> list[str]:
    return re.findall(r"\S+|\n", block)


def _blocks(path: Path, encoding: str, split: Callable[[str], list[str]]) -> Iterator[list[str]]:
    """Tokens in blocks; a word at the end of a block is completed from the next."""
    rest = ""
    for block in text_blocks(path, encoding):
        block = rest + block
        cut = len(block) if split is list else len(block) - len(re.split(r"\s", block)[-1])
        rest = block[cut:]
        yield split(block[:cut])
    yield split(rest)


def _counts(blocks: Iterator[list[str]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for block in blocks:
        counts.update(block)
    return counts


def _codes(blocks: Iterator[list[str]], encoder: Encoder) -> np.ndarray:
    size = len(encoder.known)
    small = np.uint8 if size <= 256 else np.int16 if size <= 1 << 15 else np.int32
    line, parts = 1, []
    for block in blocks:
        _check_known(block, encoder, line)
        parts.append(np.fromiter(map(encoder.numbers.get, block, repeat(encoder.unknown)), small, len(block)))
        line += block.count("\n")
    return np.concatenate(parts)


def _check_known(block: list[str], encoder: Encoder, line: int) -> None:
    unseen = set(block).difference(encoder.numbers)
    if unseen and encoder.unknown is None:
        position = next(k for k, token in enumerate(block) if token in unseen)
        encoder.number(block[position], line + block[:position].count("\n"))  # raises
