"""Errors of files and tables: they name the file, the line, the column, what was found and what was expected."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..errors import InputError, nearest


class DataError(InputError):
    """A file or table cannot be used; `file`, `line` and `column` are the place, as far as it is known.

    **Example**

        >>> from pathlib import Path
        >>> _ = Path("rain.csv").write_text("id,rain,label\\na,1,wet\\na,much,wet\\n")
        >>> try:
        ...     rc.data.read_csv("rain.csv", features=["rain"])
        ... except rc.data.DataError as error:
        ...     print(error.line, error.column, error.got)
        3 rain 'much' in sequence 'a'
    """

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
    """The file has no sequence."""


class EncodingError(DataError):
    """The text is not UTF-8."""


class FormatError(DataError):
    """The file violates its format."""


class RaggedRowError(FormatError):
    """A row has more or fewer fields than the others."""


class SizeError(DataError):
    """A header declares more data than the file has or than is allowed."""


class MissingColumnError(DataError, LookupError):
    """A named column does not exist; the message proposes the nearest one."""

    @classmethod
    def among(cls, file: str | Path, column: str, known: Iterable[str]) -> "MissingColumnError":
        return cls(file, f"no column {column!r}", nearest(column, known), column=column)


class MissingValueError(DataError):
    """A value is missing, and `missing` is "error"."""


class TimestampError(DataError):
    """Timestamps are repeated, out of order, or not evenly spaced."""


class UnseenLabelError(DataError, LookupError):
    """A label or token is not among the known ones."""

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
