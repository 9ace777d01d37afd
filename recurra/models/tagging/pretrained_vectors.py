"""Reads pretrained word vectors from text files of GloVe, and of word2vec, which start with a line of two numbers."""

from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from ...data.readers.open_files import existing, lines
from ...errors import InputError
from ...numerals import is_number
from .tagger_vocabulary import normalize_word


class VectorsError(InputError):
    """A malformed file of word vectors; the message names the file and the line."""


@dataclass(frozen=True)
class TextVectors:
    """Pretrained words and their vectors, (N, width).

    **Example**

        >>> from pathlib import Path
        >>> _ = Path("vectors.txt").write_text("cat 0.1 0.2\\ndog 0.3 0.4\\n")
        >>> found = rc.models.read_vectors("vectors.txt")
        >>> found.words, found.vectors.shape
        (('cat', 'dog'), torch.Size([2, 2]))
    """

    words: tuple[str, ...]
    vectors: Tensor
    numbers: dict[str, int] = field(repr=False, compare=False)

    @property
    def width(self) -> int:
        return self.vectors.shape[1]

    def get(self, word: str) -> Tensor | None:
        """The vector of a word, of its lower-case form, or with digits as 0; None if none is known."""
        for form in (word, word.lower(), normalize_word(word)):
            if form in self.numbers:
                return self.vectors[self.numbers[form]]
        return None


def read_vectors(path: str | Path, words: Container[str] | None = None) -> TextVectors:
    """Read word vectors from a text file: one word and its numbers per line, separated by spaces.

    Gzip files are read too. Words may contain spaces, as in GloVe's largest file. A repeated word keeps its first
    vector.

    **Arguments**

    - `path`: the file.
    - `words`: keep only these words.

    **Returns**

    A `TextVectors`, which `rc.models.Tagger` takes as `vectors`.

    **Example**

        >>> from pathlib import Path
        >>> _ = Path("vectors.txt").write_text("cat 0.1 0.2\\ndog 0.3 0.4\\n")
        >>> rc.models.read_vectors("vectors.txt", words={"dog"}).vectors
        tensor([[0.3000, 0.4000]])
    """
    path, width, header = existing(path), 0, False
    if path.is_dir():
        raise InputError("path", str(path), "a file, not a folder")
    kept: dict[str, list[float]] = {}
    for line, text in lines(path):
        fields = text.rstrip().split(" ")
        if line == 1 and len(fields) == 2 and all(part.isdigit() for part in fields):
            width, header = int(fields[1]), True
            continue
        if not text.strip():
            continue
        width = width or len(fields) - 1
        word, numbers = _split_line(fields, width, path, line, header)
        if word not in kept and (words is None or word in words):
            kept[word] = numbers
    if not kept:
        raise VectorsError(str(path), "no vector", "at least one" + (" of the requested words" if words else ""))
    names = tuple(kept)
    return TextVectors(names, torch.tensor(list(kept.values())), {name: k for k, name in enumerate(names)})


def _split_line(fields: list[str], width: int, path: Path, line: int, header: bool) -> tuple[str, list[float]]:
    """The word and its numbers. Additional fields belong to the word, unless they are numbers."""
    place, said = f"{path}, line {line}", "as the first line says" if header else "as above it"
    values = fields[-width:] if width else []
    more = len(fields) - 1 - width
    if width < 1 or more < 0 or (more > 0 and all(is_number(part) for part in fields[1 : 1 + more])):
        raise VectorsError(place, f"a vector of {len(fields) - 1} numbers", f"{max(width, 1)} numbers, {said}")
    try:
        numbers = [float(part) for part in values]
    except ValueError:
        wrong = next(part for part in values if not is_number(part))
        raise VectorsError(place, repr(wrong[:20]), f"a word and {width} numbers, {said}") from None
    return " ".join(fields[: 1 + more]), numbers
