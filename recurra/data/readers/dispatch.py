"""`rc.data.read`: detects the format of a file by its first bytes, its name or its lines, and reads it."""

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from ...errors import UnknownNameError
from ...optional import optional_imports
from ..data_errors import FormatError
from ..sequences import SequenceSet
from .limits import allow_bytes
from .open_files import BOM, ZIP, existing, head, open_zip

#: format → module and reader; a module is imported when a file needs it
READERS: dict[str, tuple[str, str]] = {
    "arrow": ("arrow", "read_arrow"),
    "conll": ("conll", "read_conll"),
    "conllu": ("conll", "read_conllu"),
    "csv": ("csv", "read_csv"),
    "dat": ("dat", "read_dat"),
    "hdf5": ("hdf5", "read_hdf5"),
    "idx": ("idx", "read_idx"),
    "jsonl": ("jsonl", "read_jsonl"),
    "mat": ("mat", "read_mat"),
    "npy": ("numpy", "read_npy"),
    "npz": ("numpy", "read_npz"),
    "parquet": ("arrow", "read_parquet"),
    "sentences": ("text", "read_sentences"),
    "text": ("text", "read_text"),
    "text_folder": ("text", "read_text_folder"),
    "ts": ("ts", "read_ts"),
    "wav": ("wav", "read_wav"),
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
    ".h5": "hdf5",
    ".hdf5": "hdf5",
}


def read(path: str | Path, format: str | None = None, *, max_bytes: int | None = None, **options) -> SequenceSet:
    """Read a file or folder of any supported format as a `SequenceSet`.

    The format is detected from the first bytes, the file name or the lines: CSV, JSON lines, Parquet, Arrow, .npy and
    .npz, .ts, CoNLL and CoNLL-U, plain text, WAV, IDX, MATLAB, .dat, HDF5. Gzip is detected too.

    **Arguments**

    - `path`: a file, or a folder of WAV or text files.
    - `format`: a key of `READERS` such as "csv", to skip the detection.
    - `max_bytes`: how many bytes the decoded content may have. By default 256 MiB, or 32 times the size of the file if
      that is more; the environment variable RECURRA_MAX_BYTES replaces the default. More is a `SizeError`.
    - `options`: of the reader of the format, for tables those of `Layout`: `id`, `time`, `features`, `target`, `label`,
      `missing`, `sort`.

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
    with allow_bytes(max_bytes):
        format = format or format_of(path)
        if format not in READERS:
            raise UnknownNameError("format", format, READERS)
        module, name = READERS[format]
        with optional_imports("data", what=f"reading {format} files"):
            reader: Callable[..., SequenceSet] = getattr(import_module(f"recurra.data.readers.{module}"), name)
        return reader(path, **options)


def format_of(path: str | Path) -> str:
    """The format of a file or folder, a key of `READERS`."""
    path = existing(path)
    if path.is_dir():
        return "wav" if any(path.rglob("*.wav")) else "text_folder"
    start = head(path)
    for magic, format in MAGIC.items():
        if start.startswith(magic):
            return format
    if start.startswith(ZIP):
        return _in_zip(path)
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix != ".gz"]
    if suffixes and suffixes[-1] in SUFFIXES:
        return SUFFIXES[suffixes[-1]]
    if b"\0" in start:
        raise FormatError(path, "an unknown binary format", f"one of {', '.join(READERS)}")
    return _of_text(start.removeprefix(BOM).decode("utf-8", errors="replace"))


def _in_zip(path: Path) -> str:
    with open_zip(path) as archive:
        names = [name.lower() for name in archive.namelist() if not name.endswith("/")]
    if names and all(name.endswith(".npy") for name in names):
        return "npz"
    if any(name.endswith(".wav") for name in names):
        return "wav"
    raise FormatError(path, "a zip of other files", "arrays (.npz) or .wav files in it")


def _of_text(start: str) -> str:
    """The format of a text file without a known suffix: JSON by its braces, CoNLL by its columns, otherwise text."""
    lines = [line for line in start.splitlines()[:-1] if line.strip()] or start.splitlines()
    if start.lstrip().startswith("{") and _is_json(lines[0]):
        return "jsonl"
    if start.lstrip().startswith(("[", "{")) and '"' in start:
        return "sentences"
    if any(line.lower().startswith("@problemname") for line in lines):
        return "ts"
    rows = [line for line in lines if not line.startswith("#")]
    if rows and all(line.count("\t") == 9 for line in rows):
        return "conllu"
    widths = {len(line.split()) for line in rows}
    if len(widths) == 1 and 2 <= widths.pop() <= 10 and len(rows) > 2:
        return "conll"
    return "text"


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        return False
    return True
