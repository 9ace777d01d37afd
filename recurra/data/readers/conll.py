"""Reads tagged sentences: CoNLL columns and CoNLL-U."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import torch

from ...errors import UnknownNameError
from ..data_errors import EmptyFileError, FormatError, RaggedRowError
from ..sequences import IGNORE, SequenceSet
from ..stores import Flat, offsets
from .labels import Encoder, classes_of, vocabulary_of
from .open_files import existing, lines

Unseen = Literal["error", "ignore"]

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


@dataclass
class Sentence:
    """Words, their tags and their line numbers."""

    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    name: str | None = None

    def add(self, word: str, tag: str, line: int) -> None:
        self.words.append(word)
        self.tags.append(tag)
        self.places.append(line)


def read_conll(
    path: str | Path,
    word: int = 0,
    tag: int = -1,
    *,
    vocabulary: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    least: int = 1,
    unseen: Unseen = "error",
) -> SequenceSet:
    """Sentences separated by blank lines, one token per line, columns separated by white space.

    Words seen fewer than `least` times, and those not in a given `vocabulary`, become `<unk>`. A tag that is not among
    given `classes` is an error, or with `unseen="ignore"` a step that is ignored in training and scores.

    **Example**

        >>> from pathlib import Path
        >>> _ = Path("names.conll").write_text("Ada B-PER\\nlives O\\n\\nPaul B-PER\\n")
        >>> data = rc.data.read_conll("names.conll")
        >>> data.lengths.tolist(), data.classes
        ([2, 1], ('B-PER', 'O'))
    """
    path = existing(path)
    return _build_set(_conll_sentences(path, word, tag), path, f"tag {tag}", vocabulary, classes, least, unseen)


def read_conllu(
    path: str | Path,
    tag: str = "upos",
    *,
    vocabulary: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    least: int = 1,
    unseen: Unseen = "error",
) -> SequenceSet:
    """Universal Dependencies: the syntactic words, without multi-word ranges and empty nodes, tagged with a column.

    **Example**

        >>> from pathlib import Path
        >>> rows = ["1 Ada Ada PROPN _ _ 2 nsubj _ _", "2 lives live VERB _ _ 0 root _ _"]
        >>> _ = Path("en.conllu").write_text("".join(row.replace(" ", "\\t") + "\\n" for row in rows) + "\\n")
        >>> rc.data.read_conllu("en.conllu").classes
        ('PROPN', 'VERB')
    """
    if tag not in CONLLU:
        raise UnknownNameError("tag", tag, CONLLU)
    path = existing(path)
    return _build_set(_conllu_sentences(path, CONLLU.index(tag)), path, tag, vocabulary, classes, least, unseen)


def _conll_sentences(path: Path, word: int, tag: int) -> Iterator[Sentence]:
    sentence, width = Sentence(), None
    for line, text in lines(path):
        fields = text.split()
        if not fields or fields[0] == "-DOCSTART-":
            yield sentence
            sentence = Sentence()
            continue
        width = width or len(fields)
        if len(fields) != width:
            raise RaggedRowError(path, f"{len(fields)} columns", f"{width} columns, as in the lines above", line)
        if not -width <= tag < width or not -width <= word < width:
            raise FormatError(path, f"{width} columns", f"the columns {word} and {tag}", line)
        sentence.add(fields[word], fields[tag], line)
    yield sentence


def _conllu_sentences(path: Path, tag: int) -> Iterator[Sentence]:
    sentence = Sentence()
    for line, text in lines(path):
        if not text.strip():
            yield sentence
            sentence = Sentence()
        elif text.startswith("#"):
            key, _, value = text[1:].partition("=")
            sentence.name = value.strip() if key.strip() == "sent_id" else sentence.name
        else:
            fields = text.split("\t")
            if len(fields) != len(CONLLU):
                raise RaggedRowError(path, f"{len(fields)} columns", f"the {len(CONLLU)} of CoNLL-U", line)
            if fields[0].isdigit():  # neither a range 3-4 nor an empty node 5.1
                sentence.add(fields[1], fields[tag], line)
    yield sentence


def _build_set(
    sentences: Iterator[Sentence],
    path: Path,
    column: str,
    vocabulary: Sequence[str] | None,
    classes: Sequence[str] | None,
    least: int,
    unseen: Unseen,
) -> SequenceSet:
    if unseen not in get_args(Unseen):
        raise UnknownNameError("unseen", unseen, get_args(Unseen))
    kept = [sentence for sentence in sentences if sentence.words]
    if not kept:
        raise EmptyFileError(path, "no sentence", "at least one")
    words = [word for sentence in kept for word in sentence.words]
    tags = [tag for sentence in kept for tag in sentence.tags]
    places = [place for sentence in kept for place in sentence.places]
    known = Encoder(vocabulary or vocabulary_of(words, least), path, "word")
    labels = Encoder(classes or classes_of(tags), path, column, IGNORE if unseen == "ignore" else None)
    lengths = torch.tensor([len(sentence.words) for sentence in kept])
    return SequenceSet(
        Flat(known.encode(words, places), offsets(lengths)),
        Flat(labels.encode(tags, places), offsets(lengths)),
        lengths,
        "tagging",
        names=[s.name for s in kept if s.name] if all(s.name for s in kept) else None,
        classes=labels.known,
        vocabulary=known.known,
        texts=[sentence.words for sentence in kept],
        source=str(path),
    )
