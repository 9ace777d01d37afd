"""Opens files: gzip by its magic bytes, text as UTF-8 with or without a BOM, numbered lines."""

import gzip
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from ...argument_checks import path_of
from ..data_errors import DataError, EmptyFileError, EncodingError, FormatError, SizeError
from .limits import check_decoded, max_bytes, too_large

GZIP, ZIP, BOM = b"\x1f\x8b", b"PK\x03\x04", b"\xef\xbb\xbf"
GZIP_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError)


def existing(path: str | Path) -> Path:
    """The path, if it is a non-empty file or a folder; otherwise an error."""
    path = path_of("path", path)
    if not path.exists():
        raise DataError(path, "no such file", "a file or folder that exists")
    if path.is_file() and path.stat().st_size == 0:
        raise EmptyFileError(path, "an empty file", "a file with data")
    return path


def estimated_size(path: Path) -> int:
    """Uncompressed bytes; for gzip an estimate, since text compresses to about an eighth."""
    with path.open("rb") as file:
        is_gzip = file.read(2) == GZIP
    return path.stat().st_size * (8 if is_gzip else 1)


class BoundedGzip(gzip.GzipFile):
    """A gzip file that may become as many bytes as `limits` allows. Damage and more bytes are a `DataError`."""

    def __init__(self, path: Path):
        super().__init__(path, "rb")
        self.path, self.limit = path, max_bytes(path.stat().st_size)

    def read(self, size: int | None = -1) -> bytes:
        return self._bounded(super().read, size)

    def read1(self, size: int = -1) -> bytes:
        return self._bounded(super().read1, io.DEFAULT_BUFFER_SIZE if size < 0 else size)

    def readline(self, size: int | None = -1) -> bytes:
        return self._bounded(super().readline, size)

    def _bounded(self, read: Callable[[int], bytes], size: int | None) -> bytes:
        left = max(0, self.limit + 1 - self.tell())  # one byte past the limit shows that there are more
        try:
            data = read(left if size is None or size < 0 else min(size, left))
        except GZIP_ERRORS as error:
            raise DataError(self.path, f"a damaged gzip file ({error})", "an intact file") from error
        if self.tell() > self.limit:
            got = f"more than {self.limit:,} bytes once decompressed, in a file of {self.path.stat().st_size:,}"
            raise too_large(self.path, got, self.limit)
        return data


def open_bytes(path: Path) -> BinaryIO:
    """The bytes of a file, decompressed if it is gzip."""
    with path.open("rb") as file:
        is_gzip = file.read(2) == GZIP
    return cast(BinaryIO, BoundedGzip(path)) if is_gzip else path.open("rb")


def open_arrow(path: Path):
    """A pyarrow stream of the bytes, decompressed if it is gzip, without a BOM."""
    import pyarrow as pa

    with path.open("rb") as file:
        is_gzip = file.read(2) == GZIP
    stream = pa.PythonFile(open_bytes(path), mode="r") if is_gzip else pa.input_stream(path, compression=None)
    if head(path, len(BOM)) == BOM:
        stream.read(len(BOM))
    return stream


def head(path: Path, count: int = 4096) -> bytes:
    """The first bytes, decompressed."""
    with open_bytes(path) as file:
        return file.read(count)


def read_bytes(path: Path, limit: int) -> bytes:
    """The decompressed content; more than `limit` bytes are an error."""
    with open_bytes(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise SizeError(path, f"more than {limit:,} bytes", f"at most {limit:,} bytes")
    return content


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines without line ends (LF, CRLF) and without a BOM."""
    empty = True
    with open_bytes(path) as file:
        for number, raw in enumerate(file, start=1):
            raw = raw.removeprefix(BOM) if number == 1 else raw
            empty = empty and not raw.strip()
            yield number, decode(raw, path, number).rstrip("\r\n")
    if empty:
        raise EmptyFileError(path, "blank lines only", "a file with data")


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """An open zip; damage found while it is used raises a `FormatError`."""
    try:
        with zipfile.ZipFile(path) as archive:
            check_decoded(path, sum(entry.file_size for entry in archive.infolist()))
            yield archive
    except ZIP_ERRORS as error:
        raise FormatError(path, f"a damaged or unusual zip ({error})", "a plain zip") from error


def text_blocks(path: Path, encoding: str = "utf-8-sig", size: int = 1 << 20) -> Iterator[str]:
    """The text in blocks, with LF as line ends."""
    try:
        with io.TextIOWrapper(open_bytes(path), encoding=encoding) as file:
            while block := file.read(size):
                yield block
    except UnicodeDecodeError as error:
        if encoding == "utf-8-sig":
            for _ in lines(path):  # raises, and knows the line
                pass
        raise EncodingError(path, f"byte 0x{error.object[error.start]:02x}", f"text in {encoding}") from error


def decode(raw: bytes, path: str | Path, line: int) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{raw[error.start]:02x} at position {error.start}"
        raise EncodingError(path, byte, "UTF-8 text; convert the file, e.g. with iconv", line) from error
