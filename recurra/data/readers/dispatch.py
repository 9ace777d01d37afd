"""`rc.data.read`: detects the format of a file by its first bytes, its name or its lines, and reads it."""

import json
import re
from collections.abc import Callable, Iterable
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import OptionError, UnknownNameError, nearest
from ...numerals import is_number
from ...optional import optional_imports
from ..data_errors import EncodingError, FormatError
from ..sequences import SequenceSet
from .dates import is_date
from .fields import is_mixed, split_fields
from .limits import allow_bytes
from .open_files import BOM, ZIP, existing, head, open_zip, text_encoding

if TYPE_CHECKING:
    from .layout import Layout
    from .table_sources import OpenTable

#: format → module and reader; a module is imported when a file needs it
READERS: dict[str, tuple[str, str]] = {
    "arff": ("arff", "read_arff"),
    "arrow": ("arrow", "read_arrow"),
    "conll": ("conll", "read_conll"),
    "conllu": ("conll", "read_conllu"),
    "csv": ("csv", "read_csv"),
    "dat": ("dat", "read_dat"),
    "excel": ("excel", "read_excel"),
    "hdf5": ("hdf5", "read_hdf5"),
    "idx": ("idx", "read_idx"),
    "json": ("json_records", "read_json"),
    "jsonl": ("jsonl", "read_jsonl"),
    "mat": ("mat", "read_mat"),
    "npy": ("numpy", "read_npy"),
    "npz": ("numpy", "read_npz"),
    "parquet": ("arrow", "read_parquet"),
    "sentences": ("text", "read_sentences"),
    "text": ("text", "read_text"),
    "text_folder": ("text", "read_text_folder"),
    "ts": ("ts", "read_ts"),
    "tsf": ("tsf", "read_tsf"),
    "wav": ("wav", "read_wav"),
}

#: format of tables → module and function that opens one as an `OpenTable`
TABLES: dict[str, tuple[str, str]] = {
    "csv": ("csv", "open_csv"),
    "jsonl": ("jsonl", "open_jsonl"),
    "parquet": ("arrow", "open_parquet"),
    "arrow": ("arrow", "open_arrow_file"),
    "json": ("json_records", "open_json"),
    "arff": ("arff", "open_arff"),
    "tsf": ("tsf", "open_tsf"),
    "excel": ("excel", "open_excel"),
    "dat": ("dat", "open_dat"),
}

MAGIC: dict[bytes, str] = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\x93NUMPY": "npy",
    b"\x89HDF\r\n\x1a\n": "hdf5",
    b"RIFF": "wav",
    b"MATLAB 5.0": "mat",
    b"\0\0\x08": "idx",
}

DATA = "a table, sequences or a text"
#: first bytes of files that are not read → what they are, and what is expected
OTHER_FILES: dict[bytes, tuple[str, str]] = {
    b"%PDF": ("a PDF", DATA),
    b"\x89PNG": ("a picture", DATA),
    b"\xff\xd8\xff": ("a picture", DATA),
    b"GIF8": ("a picture", DATA),
    b"\xd0\xcf\x11\xe0": ("an old Excel file (.xls)", "the same as .xlsx or .csv"),
    b"BZh": ("a bzip2 archive", "its content, unpacked"),
    b"\xfd7zXZ": ("an xz archive", "its content, unpacked"),
    b"7z\xbc\xaf": ("a 7z archive", "its content, unpacked"),
    b"\x28\xb5\x2f\xfd": ("a zstd archive", "its content, unpacked"),
    b"SQLite format 3": ("an SQLite database", "a table as CSV or Parquet"),
    b"\x80\x04": ("a pickle, which can run code", "the data as CSV or Parquet"),
    b"\x80\x05": ("a pickle, which can run code", "the data as CSV or Parquet"),
    b"\x80\x03": ("a pickle, which can run code", "the data as CSV or Parquet"),
}
#: formats of folders, by the suffix of the files in them; other folders hold text
FOLDERS = ("wav", "parquet")
MARKUP = ("<!doctype", "<!--", "<?xml", "<html", "<head", "<body", "<table", "<div", "<svg", "<rss", "<kml", "<gpx")
RECORDS = re.compile(r"\s*(?:\[\s*\{|\{\s*\"|\[\s*\[\s*-?\d)")
RULE = re.compile(r"[\s|+:=-]*-{3,}[\s|+:=-]*")  # below the names of a table that is drawn with | and -
UTF16 = (b"\xff\xfe", b"\xfe\xff")

SUFFIXES: dict[str, str] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".ts": "ts",
    ".conllu": "conllu",
    ".conll": "conll",
    ".dat": "dat",
    ".mat": "mat",
    ".parquet": "parquet",
    ".npy": "npy",
    ".npz": "npz",
    ".wav": "wav",
    ".arff": "arff",
    ".tsf": "tsf",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
}


def read(
    path: str | Path,
    format: str | None = None,
    *,
    max_bytes: int | None = None,
    encoding: str | None = None,
    **options,
) -> SequenceSet:
    """Read a file or folder of any supported format as a `SequenceSet`.

    The format is detected from the first bytes, the file name or the lines: CSV, JSON records and lines, Parquet,
    Arrow, Excel, .npy and .npz, .ts, .tsf, .arff, CoNLL and CoNLL-U, plain text, WAV, IDX, MATLAB, .dat, HDF5. Gzip is
    detected too. Tables are read as the command line reads them; `data.roles` says what each column is, and why.

    **Arguments**

    - `path`: a file, or a folder of Parquet, WAV or text files.
    - `format`: a key of `READERS` such as "csv", to skip the detection.
    - `max_bytes`: how many bytes the decoded content may have. By default 256 MiB, or 32 times the size of the file if
      that is more; the environment variable RECURRA_MAX_BYTES replaces the default. More is a `SizeError`.
    - `encoding`: of a text file, such as "latin-1" or "utf-16"; by default UTF-8.
    - `options`: of the reader of the format, for tables those of `Layout`: `id`, `time`, `features`, `target`, `label`,
      `static`, `ignore`, `missing`, `fill`, `sort`, `dates`, `decimal`, `sheet`.

    **Returns** a `SequenceSet`. A file that cannot be read raises a `DataError` with the line and the column.

    **Example**

        >>> import tempfile, recurra as rc
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "series.csv"
        ...     _ = path.write_text("unique_id,y\\na,1\\na,2\\na,3\\nb,5\\nb,6\\n")
        ...     data = rc.data.read(path)
        >>> len(data), data.task, data.lengths.tolist()
        (2, 'forecasting', [2, 1])
    """
    path = existing(path)
    with allow_bytes(max_bytes), text_encoding(encoding):
        format = format or format_of(path)
        if format not in READERS:
            raise UnknownNameError("format", format, READERS)
        module, name = READERS[format]
        with optional_imports("data", what=f"reading {format} files"):
            reader: Callable[..., SequenceSet] = getattr(import_module(f"recurra.data.readers.{module}"), name)
        _check_options(reader, format, options)
        return reader(path, **options)


def _check_options(reader: Callable[..., SequenceSet], format: str, options: Iterable[str]) -> None:
    """A reader of tables checks its options itself; the others have them as arguments."""
    arguments = signature(reader).parameters
    if any(each.kind is Parameter.VAR_KEYWORD for each in arguments.values()):
        return
    known = [name for name in arguments if name != "path"]
    for name in options:
        if name not in known:
            expected = nearest(name, known) if known else "none"
            raise OptionError(name, f"an unknown option of {format!r} data", expected)


def open_table(path: str | Path, format: str, layout: "Layout") -> "OpenTable":
    """The open table of a file whose format is among `TABLES`."""
    module, name = TABLES[format]
    with optional_imports("data", what=f"reading {format} files"):
        opener = getattr(import_module(f"recurra.data.readers.{module}"), name)
    return opener(existing(path), layout)


def format_of(path: str | Path) -> str:
    """The format of a file or folder, a key of `READERS`. What is neither known nor plain text is a `FormatError`.

    **Example**

        >>> from pathlib import Path
        >>> _ = Path("names.txt").write_text("Ada B-PER\\nlives O\\n\\nPaul B-PER\\nleft O\\n")
        >>> rc.data.format_of("names.txt")
        'conll'
    """
    path = existing(path)
    if path.is_dir():
        found = next((name for name in FOLDERS if any(path.rglob(f"*.{name}"))), None)
        return found or "text_folder"
    start = head(path, raw=True)
    for magic, format in MAGIC.items():
        if start.startswith(magic):
            return format
    if start.startswith(ZIP):
        return _in_zip(path)
    for magic, what in OTHER_FILES.items():
        if start.startswith(magic):
            raise FormatError(path, what[0], what[1])
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix != ".gz"]
    if suffixes and suffixes[-1] in SUFFIXES:
        named = SUFFIXES[suffixes[-1]]
        return _by_columns(text_start(path), named) if named in ("csv", "dat") else named
    return _of_text(text_start(path), path)


def text_start(path: Path) -> str:
    """The first characters of a text file; bytes that no text has are a `FormatError`."""
    start = head(path).removeprefix(BOM)
    if start[:2] in UTF16:
        return start.decode("utf-16", errors="replace")
    if (half := len(start) // 2) and max(start[::2].count(0), start[1::2].count(0)) > 0.9 * half:
        name = "utf-16-le" if start[1::2].count(0) > start[::2].count(0) else "utf-16-be"
        raise EncodingError(path, "UTF-16 without a mark at its start", f'UTF-8 text; use encoding="{name}"')
    if b"\0" in start or sum(byte < 9 or 13 < byte < 32 for byte in start) > 0:
        raise FormatError(path, "an unknown binary format", f"one of {', '.join(READERS)}")
    return start.decode("utf-8", errors="replace")


def _in_zip(path: Path) -> str:
    with open_zip(path) as archive:
        names = [name.lower() for name in archive.namelist() if not name.endswith("/")]
    if names and all(name.endswith(".npy") for name in names):
        return "npz"
    if any(name.endswith(".wav") for name in names):
        return "wav"
    if "xl/workbook.xml" in names:
        return "excel"
    raise FormatError(path, "a zip of other files", "arrays (.npz), .wav files or an Excel sheet (.xlsx) in it")


def _of_text(start: str, path: Path) -> str:
    """The format of a text file without a known suffix: JSON by its braces, tables by their columns, otherwise text."""
    lines = [line for line in start.splitlines()[:-1] if line.strip()] or start.splitlines()
    is_json = path.name.lower().removesuffix(".gz").endswith(".json")
    if start.lstrip().startswith("{") and _is_json(lines[0]) and not (is_json and len(start.splitlines()) == 1):
        return "jsonl"
    if start.lstrip().startswith(("[", "{")) and ('"' in start or is_json):
        return "json" if is_json and RECORDS.match(start) else "sentences"
    if start.lstrip().lower().startswith(MARKUP):
        raise FormatError(path, f"markup ({start.lstrip()[:15]!r})", "a table, sequences or a text without markup")
    keys = {line.split()[0].lower() for line in lines if line.startswith("@")}
    if keys & {"@problemname", "@classlabel"}:
        return "ts"
    if "@relation" in keys:
        return "tsf" if "@frequency" in keys else "arff"
    rows = [line for line in lines if not line.startswith("#")]
    if _is_drawn_table(rows):
        raise FormatError(path, "a table that is drawn with | and -", "the same as CSV")
    if rows and all(line.count("\t") == 9 for line in rows):
        return "conllu"
    if (table := _as_table(rows)) is not None:
        return table
    if len(rows) > 3 and 2 * sum(_are_numbers(line.split(), 2) for line in rows) > len(rows):
        return "dat"  # numbers with a preface
    if _has_spaced_columns(rows):
        return "dat"  # without a name above the names of rows
    widths = {len(line.split()) for line in rows}
    if len(widths) == 1 and 2 <= widths.pop() <= 10 and len(rows) > 2:
        return "conll"
    return "text"


def _by_columns(start: str, named: str) -> str:
    """A .csv whose columns are apart by white space is "dat", a .dat with delimiters "csv"."""
    rows = [line for line in start.splitlines()[:-1] if line.strip() and not line.startswith("#")]
    found = _as_table(rows)
    if named == "csv" and found == "dat" and all(_are_numbers(row.split(), 2) for row in rows[1:]):
        return "dat"
    if named == "csv" and not any(sign in line for line in rows for sign in ",;\t|") and _has_spaced_columns(rows):
        return "dat"
    return "csv" if named == "dat" and found == "csv" else named


def _is_drawn_table(rows: list[str]) -> bool:
    return any(map(RULE.fullmatch, rows[:3])) and 2 * sum("|" in row for row in rows) > len(rows)


def _are_numbers(fields: list[str], least: int = 1) -> bool:
    return len(fields) >= least and all(map(is_number, fields))


def _has_spaced_columns(rows: list[str]) -> bool:
    return is_mixed([(number, split_fields(line)) for number, line in enumerate(rows)])


def _as_table(rows: list[str]) -> str | None:
    """The format of lines of numbers: "csv" with delimiters, "dat" with white space; None for prose."""
    for delimiter, format in ((",", "csv"), (";", "csv"), ("\t", "csv"), ("|", "csv"), (None, "dat")):
        fields = [line.split(delimiter) for line in rows]
        if len(rows) < 3 or len({len(each) for each in fields}) != 1 or (delimiter and len(fields[0]) < 2):
            continue
        values = [field.strip().strip('"') for each in fields[1:] for field in each]
        if 2 * sum(is_number(value) or is_date(value) for value in values) >= len(values):
            return format
    return None


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        return False
    return True
