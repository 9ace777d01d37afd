"""Opens files: gzip by its magic bytes, text as UTF-8 with or without a BOM, numbered lines."""

import codecs
import gzip
import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO, cast

from ...argument_checks import path_of
from ...errors import InputError, RecurraError
from ..data_errors import DataError, EmptyFileError, EncodingError, FormatError, SizeError
from .encodings import advise_encoding
from .limits import check_decoded, max_bytes, too_large

_ENCODING: ContextVar[str | None] = ContextVar("recurra.data.encoding", default=None)
ADVICE_BYTES = 1 << 14  # of a text, from which its encoding is guessed
GZIP, ZIP, BOM = b"\x1f\x8b", b"PK\x03\x04", b"\xef\xbb\xbf"
GZIP_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, RuntimeError, struct.error)


@contextmanager
def decoding(path: str | Path, kind: str, *errors: type[Exception]) -> Iterator[None]:
    """What a library raises over a damaged file is a `FormatError`: an intact file of this kind was expected."""
    try:
        yield
    except errors as error:
        if isinstance(error, RecurraError):
            raise
        raise FormatError(path, (str(error).splitlines() or [type(error).__name__])[0], f"an intact {kind}") from error


def existing(path: str | Path) -> Path:
    """The path, if it is a non-empty file or a folder; otherwise an error."""
    path = path_of("path", path)
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        shown = os.fsencode(path).decode("utf-8", errors="replace")
        raise DataError(shown, "a file name that is not UTF-8", "another name; rename the file") from error
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


@contextmanager
def text_encoding(name: str | None) -> Iterator[None]:
    """Text files inside the block are in this encoding; None leaves it as it is, at first UTF-8."""
    if name is None:
        yield
        return
    try:
        codecs.lookup(name)
    except LookupError as error:
        raise InputError("encoding", repr(name), "the name of an encoding, such as latin-1 or utf-16") from error
    token = _ENCODING.set(name)
    try:
        yield
    finally:
        _ENCODING.reset(token)


class Utf8Stream(io.RawIOBase):
    """The text of a file in another encoding, as bytes of UTF-8."""

    def __init__(self, file: BinaryIO, encoding: str, path: Path):
        self.text = io.TextIOWrapper(file, encoding=encoding, newline="")
        self.encoding, self.path, self.rest = encoding, path, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        if not self.rest:
            try:
                self.rest = self.text.read(1 << 16).encode("utf-8")
            except UnicodeError as error:
                raise EncodingError(self.path, str(error), f"text in {self.encoding}") from error
        count = min(len(buffer), len(self.rest))
        buffer[:count], self.rest = self.rest[:count], self.rest[count:]
        return count

    def close(self) -> None:
        self.text.close()
        super().close()


def open_bytes(path: Path, raw: bool = False) -> BinaryIO:
    """The bytes of a file, decompressed if it is gzip; unless `raw`, a text in another encoding as UTF-8."""
    with path.open("rb") as file:
        is_gzip = file.read(2) == GZIP
    file = cast(BinaryIO, BoundedGzip(path)) if is_gzip else path.open("rb")
    encoding = None if raw else _ENCODING.get()
    return file if encoding is None else cast(BinaryIO, io.BufferedReader(Utf8Stream(file, encoding, path), 1 << 16))


def open_arrow(path: Path):
    """A pyarrow stream of the bytes, decompressed if it is gzip, without a BOM."""
    import pyarrow as pa

    with path.open("rb") as file:
        is_plain = file.read(2) != GZIP and _ENCODING.get() is None
    stream = pa.input_stream(path, compression=None) if is_plain else pa.PythonFile(open_bytes(path), mode="r")
    if head(path, len(BOM)) == BOM:
        stream.read(len(BOM))
    return stream


def head(path: Path, count: int = 4096, raw: bool = False) -> bytes:
    """The first bytes, decompressed."""
    with open_bytes(path, raw) as file:
        return file.read(count)


def read_bytes(path: Path, limit: int) -> bytes:
    """The decompressed content; more than `limit` bytes are an error."""
    with open_bytes(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise SizeError(path, f"more than {limit:,} bytes", f"at most {limit:,} bytes")
    return content


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines without line ends (LF, CRLF, CR) and without a BOM."""
    empty, number = True, 0
    with open_bytes(path) as file:
        for raw in file:
            raw = raw.removeprefix(BOM) if number == 0 else raw
            empty = empty and not raw.strip()
            for line in raw.rstrip(b"\r\n").split(b"\r"):
                number += 1
                yield number, decode(line, path, number)
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
        start = head(Path(path), ADVICE_BYTES, raw=True) if Path(path).is_file() else raw
        start = start[: start.rfind(b"\n") + 1]  # a cut line may end within a letter
        about = raw if start.isascii() else start
        raise EncodingError(path, byte, f"UTF-8 text; {advise_encoding(about)}", line) from error
