"""Files that would become gigabytes, exhaust the stack or read other files: refused with an error, in little memory."""

import gzip
import io
import json
import os
import subprocess
import sys
import wave
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import recurra as rc
from recurra.data.data_errors import FormatError, SizeError
from recurra.data.readers import limits
from recurra.errors import InputError

HUGE = 400 << 20  # decoded bytes of the files below, of which none has more than 3 MB
ZEROS = bytes(1 << 20)


def gzip_of(path: Path, line: bytes, head: bytes = b"") -> Path:
    """Many equal gzip members after a first one: the content of all of them."""
    block = line * ((8 << 20) // len(line))
    member = gzip.compress(block, 6, mtime=0)
    path.write_bytes(gzip.compress(head, mtime=0) + member * (HUGE // len(block)))
    return path


def csv_gz(folder: Path) -> Path:
    return gzip_of(folder / "a.csv.gz", b"0,1,2,3,0\n", b"unique_id,a,b,c,y\n")


def jsonl_gz(folder: Path) -> Path:
    return gzip_of(folder / "a.jsonl.gz", b'{"unique_id": "a", "y": 1.5}\n')


def text_gz(folder: Path) -> Path:
    return gzip_of(folder / "a.txt.gz", b"never ending")


def npz(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (HUGE // 4, 1)}
        np.lib.format.write_array_header_1_0(file, header)
        for _ in range(HUGE // len(ZEROS)):
            file.write(ZEROS)
    return folder / "a.npz"


def mat(folder: Path) -> Path:
    from scipy.io import savemat

    savemat(folder / "a.mat", {"traindata": np.zeros((HUGE // 8, 1))}, do_compression=True)
    return folder / "a.mat"


def wav_zip(folder: Path) -> Path:
    sound = io.BytesIO()
    with wave.open(sound, "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        for _ in range(HUGE // len(ZEROS)):
            file.writeframesraw(ZEROS)
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.wav", sound.getvalue())
    return folder / "a.zip"


def parquet_runs(folder: Path) -> Path:
    """Numbers as run lengths."""
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.table({"unique_id": pa.array(np.zeros(HUGE // 8, np.int64)), "y": pa.array(np.zeros(HUGE // 8))})
    parquet.write_table(table, folder / "a.parquet", row_group_size=1 << 20)
    return folder / "a.parquet"


def parquet_words(folder: Path) -> Path:
    """One long text in a dictionary, and many rows that point to it."""
    import pyarrow as pa
    from pyarrow import parquet

    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(400, np.int32)), pa.array(["x" * (1 << 20)]))
    parquet.write_table(pa.table({"text": text}), folder / "b.parquet", dictionary_pagesize_limit=1 << 22)
    return folder / "b.parquet"


def hdf5(folder: Path) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("0", shape=(HUGE // 8, 1), dtype="f8", chunks=(1 << 16, 1), compression="gzip")
    return folder / "a.h5"


FILES: dict[str, Callable[[Path], Path]] = {
    function.__name__: function
    for function in (csv_gz, jsonl_gz, text_gz, npz, mat, wav_zip, parquet_runs, parquet_words, hdf5)
}

# A forked child starts with the memory of its parent as the peak, so that what is read is seen, and not the imports.
MEASURE = """
import json, os, sys
import h5py, numpy, pyarrow.compute, pyarrow.csv, pyarrow.json, pyarrow.parquet, scipy.io
import recurra as rc
from recurra.data.readers import dispatch
for module, _ in dispatch.READERS.values():
    __import__(f"recurra.data.readers.{module}")
rc.SequenceClassifier, rc.infer_problem
rc.GRU(2, 3)

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1024

for path in sys.argv[2:]:
    if child := os.fork():
        os.waitpid(child, 0)
        continue
    before = peak()
    try:
        {"read": rc.data.read, "infer_problem": rc.infer_problem, "load": rc.SequenceClassifier.load}[sys.argv[1]](path)
        said = "nothing"
    except rc.RecurraError as error:
        said = f"{type(error).__name__} {error}"
    print(json.dumps([path, said, peak() - before]), flush=True)
    os._exit(0)
"""


def measured(how: str, *paths: Path, **variables: str) -> dict[str, tuple[str, float]]:
    """What each file makes `read`, `infer_problem` or `load` say, and by how many MB the memory grew meanwhile."""
    root = str(Path(rc.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, "-c", MEASURE, how, *map(str, paths)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = {Path(path).name: (said, peak) for path, said, peak in map(json.loads, done.stdout.splitlines())}
    assert found.keys() == {path.name for path in paths}, done.stderr
    return found


@pytest.mark.slow
@pytest.mark.parametrize("how", ["read", "infer_problem"])
def test_a_small_file_stays_small(tmp_path, how):
    """Each of 400 MiB in a few kilobytes is refused by its size; files of text are read up to the limit, here 32 MB."""
    paths = [make(tmp_path) for make in FILES.values()]
    assert max(path.stat().st_size for path in paths) < 3 << 20
    found = measured(how, *paths, **{limits.VARIABLE: "32e6"})
    for name, (said, peak) in found.items():
        assert said.startswith("SizeError"), (name, said)
        assert "raise the limit with max_bytes= or RECURRA_MAX_BYTES" in said
        assert peak < 300, f"{name}: {peak} MB"


@pytest.mark.parametrize("kind", ["csv_gz", "npz", "mat", "wav_zip", "parquet_runs", "hdf5"])
def test_the_default_limit_and_how_it_is_raised(tmp_path, kind, monkeypatch):
    """A file of 2 MB may be read; the limit is one number."""
    monkeypatch.setattr(sys.modules[__name__], "HUGE", 2 << 20)
    monkeypatch.setattr(limits, "ALWAYS_ALLOWED", 1 << 20)
    monkeypatch.setattr(limits, "RATIO", 2)
    if kind == "csv_gz":
        monkeypatch.setattr(sys.modules[__name__], "HUGE", 8 << 20)
    path = FILES[kind](tmp_path)
    with pytest.raises(SizeError, match=r"expected at most [\d,]+; raise the limit with max_bytes= or RECURRA_MAX"):
        rc.data.read(path)
    assert len(rc.data.read(path, max_bytes=1 << 30)) > 0
    monkeypatch.setenv(limits.VARIABLE, "1e9")
    assert len(rc.data.read(path)) > 0


@pytest.mark.parametrize("wrong", [0, -1, True, "much"])
def test_a_limit_is_a_number_of_bytes(tmp_path, wrong, monkeypatch):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"some text"))
    with pytest.raises(InputError, match=r"max_bytes: got .*, expected a positive number of bytes"):
        rc.data.read(tmp_path / "a.txt.gz", max_bytes=wrong)
    monkeypatch.setenv(limits.VARIABLE, str(wrong if wrong is not True else "x"))
    with pytest.raises(InputError, match=limits.VARIABLE):
        rc.data.read(tmp_path / "a.txt.gz")


# Depth

DEEP = 30_000


NESTED = {
    "a.jsonl": '{"inputs": ' + "[" * DEEP + "]" * DEEP + ', "label": "x"}\n',
    "b.jsonl": '{"y": 1}\n' + '{"a": ' * DEEP + "1" + "}" * DEEP + "\n",
    "c": '{"a": ' + "[" * DEEP + "]" * DEEP + "}\n",
    "d": '["a b", ' + "[" * DEEP + '"c d"' + "]" * DEEP + "]",
}


@pytest.mark.parametrize("how", ["read", "infer_problem"])
def test_deep_json_is_an_error_and_not_a_crash(tmp_path, how):
    """In a process for each file, which a crash would end without a word."""
    for name, content in NESTED.items():
        (tmp_path / name).write_text(content)
    for name, (said, _) in measured(how, *(tmp_path / name for name in NESTED)).items():
        assert said.startswith("FormatError"), (name, said)
        assert "nested 3000" in said
        assert "expected at most 64" in said


def test_brackets_in_text_are_no_depth(tmp_path):
    lines = [json.dumps({"text": "[{" * 100 + '\\"' + "[" * k, "label": "ab"[k % 2]}) for k in range(20)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    assert len(rc.data.read(tmp_path / "a.jsonl")) == 20
    assert limits.check_depth(b"[" * 64 + b"]" * 64, "a") is None
    with pytest.raises(FormatError, match="nested 65 deep"):
        limits.check_depth(b'"]]]]"' + b"[" * 65, "a")


# HDF5 that reads other files


@pytest.mark.parametrize("storage", ["external", "virtual"])
def test_hdf5_does_not_read_other_files(tmp_path, storage):
    h5py = pytest.importorskip("h5py")
    secret = tmp_path / "secret"
    np.arange(64, dtype="f8").tofile(secret)
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["0"] = np.zeros((4, 2))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["0"] = np.zeros((4, 2))
        if storage == "external":
            file.create_dataset("1", (4, 2), "f8", external=[(str(secret), 0, h5py.h5f.UNLIMITED)])
        else:
            layout = h5py.VirtualLayout(shape=(4, 2), dtype="f8")
            layout[:] = h5py.VirtualSource(str(tmp_path / "b.h5"), "0", shape=(4, 2))
            file.create_virtual_dataset("1", layout)
    with pytest.raises(FormatError, match=r"column '1': got a dataset whose values are in another file"):
        rc.data.read(tmp_path / "a.h5")


# Sizes in a config

SIZES = {
    "a": ("options", "hidden_size", 10**9),
    "b": ("options", "hidden_size", 60_000),
    "c": ("options", "hidden_size", 10**30),
    "d": ("options", "hidden_size", [10**9]),
    "e": ("options", "num_layers", 10**9),
    "f": ("fitted", "input_size_", (1 << 24) - 1),
}


def test_sizes_in_a_config_are_compared_with_the_weights_first(tmp_path):
    x = [np.random.default_rng(k).normal(size=(5, 2)) for k in range(8)]
    model = rc.SequenceClassifier("gru", hidden_size=3, epochs=1).fit(x, ["a", "b"] * 4)
    for folder, (section, name, value) in SIZES.items():
        model.save(tmp_path / folder)
        config = json.loads((tmp_path / folder / "config.json").read_text())
        config[section][name] = value
        (tmp_path / folder / "config.json").write_text(json.dumps(config))
    for folder, (said, peak) in measured("load", *(tmp_path / folder for folder in SIZES)).items():
        assert "Error " in said, (SIZES[folder], said)
        assert peak < 200, (SIZES[folder], peak)
