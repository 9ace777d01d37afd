"""What a bad file or a bad table raises: the file, the line and the column, what came, what was expected."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..errors import InputError, nearest


class DataError(InputError):
    """Something is wrong with a file or a table; `file`, `line` and `column` say where, as far as it is known."""

    def __init__(
        self,
        file: str | Path,
        got: object,
        expected: str,
        line: int | None = None,
        column: str | int | None = None,
    ):
        self.file, self.line, self.column = str(file), line, column
        place = [str(file)]
        if line is not None:
            place.append(f"line {line}")
        if column is not None:
            place.append(f"column {column!r}")
        super().__init__(", ".join(place), got, expected)

    def __reduce__(self) -> tuple[type["DataError"], Any]:
        return type(self), (self.file, self.got, self.expected, self.line, self.column)


class EmptyFileError(DataError):
    """The file holds no sequence."""


class EncodingError(DataError):
    """The text is not UTF-8."""


class FormatError(DataError):
    """The file does not keep to its format."""


class RaggedRowError(FormatError):
    """A row has more or fewer fields than the others."""


class SizeError(DataError):
    """A header declares more than the file can hold, or more than is allowed."""


class MissingColumnError(DataError, LookupError):
    """A column that was asked for does not exist; the message proposes the nearest one that does."""

    @classmethod
    def among(cls, file: str | Path, column: str, known: Iterable[str]) -> "MissingColumnError":
        return cls(file, f"no column {column!r}", nearest(column, known), column=column)


class MissingValueError(DataError):
    """A value is missing and the policy is not to accept that."""


class TimestampError(DataError):
    """Timestamps are repeated, out of order, or not evenly spaced."""


class UnseenLabelError(DataError, LookupError):
    """A label or a token is not among those the model knows."""

    @classmethod
    def among(
        cls,
        file: str | Path,
        label: str,
        known: Iterable[str],
        line: int | None = None,
        column: str | int | None = None,
    ) -> "UnseenLabelError":
        return cls(file, f"the unseen label {label!r}", nearest(label, known), line, column)
