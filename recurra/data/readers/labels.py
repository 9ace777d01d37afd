"""Labels and tokens as numbers, in an order independent of the order of the file."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from ..data_errors import UnseenLabelError

UNKNOWN = "<unk>"


def classes_of(labels: Iterable[str]) -> tuple[str, ...]:
    """The distinct labels, sorted as numbers when all of them are."""
    distinct = set(labels)
    try:
        return tuple(sorted(distinct, key=float))
    except ValueError:
        return tuple(sorted(distinct))


def vocabulary_of(tokens: Iterable[str] | Counter[str], least: int = 1, unknown: bool = True) -> tuple[str, ...]:
    """Tokens seen at least `least` times, most frequent first; with `unknown`, `<unk>` is token 0."""
    counts = Counter(tokens)
    kept = sorted((token for token, count in counts.items() if count >= least), key=lambda t: (-counts[t], t))
    return (UNKNOWN, *kept) if unknown else tuple(kept)


class Encoder:
    """Maps names to numbers; an unknown name becomes `otherwise`, or `<unk>` if the list has it, or an error."""

    def __init__(
        self,
        known: Sequence[str],
        file: str | Path,
        column: str | int | None = None,
        otherwise: int | None = None,
    ):
        self.known, self.file, self.column = tuple(known), file, column
        self.numbers = {name: number for number, name in enumerate(self.known)}
        self.unknown = self.numbers.get(UNKNOWN) if otherwise is None else otherwise

    def number(self, name: str, line: int | None = None) -> int:
        number = self.numbers.get(name, self.unknown)
        if number is None:
            raise UnseenLabelError.among(self.file, name, self.known, line, self.column)
        return number

    def encode(self, names: Iterable[str], line_numbers: Iterable[int | None] | None = None) -> Tensor:
        """(T,) int64."""
        if line_numbers is None:
            return torch.tensor([self.number(name) for name in names], dtype=torch.int64)
        pairs = zip(names, line_numbers, strict=True)
        return torch.tensor([self.number(name, line) for name, line in pairs], dtype=torch.int64)
