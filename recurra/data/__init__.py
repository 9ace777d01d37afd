"""Sequences from files and from task generators, and the batches that models train on.

`read(path)` reads every supported file format; `tasks` generates the benchmark tasks of the literature; `Batches` and
`Streams` make batches of either. Readers are imported on first use: those of tables need pyarrow, the extra `data`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ..optional import optional_imports
from . import tasks
from .batching import Batches, BatchSource, Streams, collate
from .data_errors import DataError
from .japanese_vowels import japanese_vowels
from .open_quotes import open_quotes
from .sequences import Batch, Example, SequenceSet
from .spike_coding import latency_code, rate_code

if TYPE_CHECKING:
    from .readers.arff import read_arff
    from .readers.arrow import from_table, read_arrow, read_parquet
    from .readers.conll import read_conll, read_conllu
    from .readers.csv import read_csv
    from .readers.dat import read_dat
    from .readers.dispatch import format_of, read
    from .readers.excel import read_excel
    from .readers.hdf5 import read_hdf5
    from .readers.idx import read_idx
    from .readers.json_records import read_json
    from .readers.jsonl import read_jsonl
    from .readers.layout import Layout
    from .readers.log_mel import LogMel
    from .readers.mat import read_mat
    from .readers.numpy import read_npy, read_npz
    from .readers.text import read_sentences, read_text, read_text_folder
    from .readers.ts import read_ts
    from .readers.tsf import read_tsf
    from .readers.wav import read_wav

#: public name → module under `readers`
_READERS = {
    "Layout": "layout",
    "LogMel": "log_mel",
    "format_of": "dispatch",
    "from_table": "arrow",
    "read": "dispatch",
    "read_arff": "arff",
    "read_arrow": "arrow",
    "read_conll": "conll",
    "read_conllu": "conll",
    "read_csv": "csv",
    "read_dat": "dat",
    "read_excel": "excel",
    "read_hdf5": "hdf5",
    "read_idx": "idx",
    "read_json": "json_records",
    "read_jsonl": "jsonl",
    "read_mat": "mat",
    "read_npy": "numpy",
    "read_npz": "numpy",
    "read_parquet": "arrow",
    "read_sentences": "text",
    "read_text": "text",
    "read_text_folder": "text",
    "read_ts": "ts",
    "read_tsf": "tsf",
    "read_wav": "wav",
}

__all__ = [
    "Batch",
    "BatchSource",
    "Batches",
    "DataError",
    "Example",
    "Layout",
    "LogMel",
    "SequenceSet",
    "Streams",
    "collate",
    "format_of",
    "from_table",
    "japanese_vowels",
    "latency_code",
    "open_quotes",
    "rate_code",
    "read",
    "read_arff",
    "read_arrow",
    "read_conll",
    "read_conllu",
    "read_csv",
    "read_dat",
    "read_excel",
    "read_hdf5",
    "read_idx",
    "read_json",
    "read_jsonl",
    "read_mat",
    "read_npy",
    "read_npz",
    "read_parquet",
    "read_sentences",
    "read_text",
    "read_text_folder",
    "read_ts",
    "read_tsf",
    "read_wav",
    "tasks",
]


def __getattr__(name: str):
    if name not in _READERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with optional_imports("data", what=f"rc.data.{name}"):
        return getattr(import_module(f"recurra.data.readers.{_READERS[name]}"), name)


def __dir__() -> list[str]:
    return __all__
