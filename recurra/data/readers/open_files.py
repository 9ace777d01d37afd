"""Opening files: gzip by its magic bytes, text as UTF-8 with or without a BOM, lines with their numbers."""

import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from ..data_errors import DataError, EmptyFileError, EncodingError, FormatError, SizeError

GZIP, ZIP, BOM = b"\x1f\x8b", b"PK\x03\x04", b"\xef\xbb\xbf"
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)
DAMAGED_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError)


def existing(path: str | Path) -> Path:
    """The path, when there is a file or a folder with something in it."""
    path = Path(path)
    if not path.exists():
        raise DataError(path, "no such file", "a file or folder that exists")
    if path.is_file() and path.stat().st_size == 0:
        raise EmptyFileError(path, "an empty file", "a file with data")
    return path


def likely_size(path: Path) -> int:
    """Bytes when unzipped; a gzip file does not know, and text shrinks to about an eighth."""
    with path.open("rb") as file:
        packed = file.read(2) == GZIP
    return path.stat().st_size * (8 if packed else 1)


def open_bytes(path: Path) -> BinaryIO:
    """The file's bytes, unzipped when it is gzip."""
    with path.open("rb") as file:
        packed = file.read(2) == GZIP
    return cast(BinaryIO, gzip.open(path, "rb")) if packed else path.open("rb")


def open_arrow(path: Path):
    """The file's bytes, unzipped when it is gzip, as pyarrow reads them; a BOM is left out."""
    import pyarrow as pa

    with path.open("rb") as file:
        packed = file.read(2) == GZIP
    stream = pa.input_stream(path, compression="gzip" if packed else None)
    if head(path, len(BOM)) == BOM:
        stream.read(len(BOM))
    return stream


def head(path: Path, count: int = 4096) -> bytes:
    """The first bytes, unzipped."""
    try:
        with open_bytes(path) as file:
            return file.read(count)
    except DAMAGED as error:
        raise DataError(path, f"a damaged gzip file ({error})", "a whole one") from error


def read_bytes(path: Path, limit: int) -> bytes:
    """The whole file, unzipped, or a refusal when that is more than `limit` bytes."""
    try:
        with open_bytes(path) as file:
            content = file.read(limit + 1)
    except DAMAGED as error:
        raise DataError(path, f"a damaged gzip file ({error})", "a whole one") from error
    if len(content) > limit:
        raise SizeError(path, f"more than {limit:,} bytes", f"at most {limit:,} bytes")
    return content


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines without their ends (LF, CRLF); a BOM at the very beginning is left out."""
    empty = True
    try:
        with open_bytes(path) as file:
            for number, raw in enumerate(file, start=1):
                raw = raw.removeprefix(BOM) if number == 1 else raw
                empty = empty and not raw.strip()
                yield number, decode(raw, path, number).rstrip("\r\n")
    except DAMAGED as error:
        raise DataError(path, f"a damaged gzip file ({error})", "a whole one") from error
    if empty:
        raise EmptyFileError(path, "blank lines only", "a file with data")


@contextmanager
def opened_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """A zip; whatever turns out to be damaged in it while it is used is one error."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except DAMAGED_ZIP as error:
        raise FormatError(path, f"a damaged or unusual zip ({error})", "a plain zip") from error


def text_blocks(path: Path, encoding: str = "utf-8-sig", size: int = 1 << 20) -> Iterator[str]:
    """The text a block at a time, every line end turned into LF."""
    try:
        with io.TextIOWrapper(open_bytes(path), encoding=encoding) as file:
            while block := file.read(size):
                yield block
    except UnicodeDecodeError as error:
        if encoding == "utf-8-sig":
            for _ in lines(path):  # raises, and knows the line
                pass
        raise EncodingError(path, f"byte 0x{error.object[error.start]:02x}", f"text in {encoding}") from error
    except DAMAGED as error:
        raise DataError(path, f"a damaged gzip file ({error})", "a whole one") from error


def decode(raw: bytes, path: str | Path, line: int) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{raw[error.start]:02x} at position {error.start}"
        raise EncodingError(path, byte, "UTF-8 text; convert the file, e.g. with iconv", line) from error
