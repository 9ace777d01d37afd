"""Mutated files: data files of every format and saved models, with bytes changed, cut, repeated or swapped.

A reader gives data, or raises an error of recurra: never another error, a crash, a hang or gigabytes. Each file is read
in a forked child with a limit on memory and time.
"""

import contextlib
import gzip
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
import wave
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import recurra as rc

CPU_SECONDS, SECONDS = 20, 120  # for one file: of work, and of time, which is more where cores are taken
MEMORY = 2 << 30  # bytes a child may add to what it has when it starts


def _csv(folder: Path) -> Path:
    rows = [f"s{k // 6},{k % 6},{np.sin(k):.3f},{k * 0.5},{'ab'[k // 6 % 2]}" for k in range(60)]
    return _text(folder / "a.csv", "unique_id,ds,x,y,label\n" + "\n".join(rows) + "\n")


def _series(folder: Path) -> Path:
    rows = [f"{'pq'[k // 40]},2024-01-{k % 28 + 1:02d},{k * 0.25}" for k in range(80)]
    return _text(folder / "b.csv", "unique_id,ds,y\n" + "\n".join(sorted(rows)) + "\n")


def _jsonl(folder: Path) -> Path:
    rows = [json.dumps({"inputs": [[k, 0.5], [1.0, k]], "label": "ab"[k % 2]}) for k in range(12)]
    return _text(folder / "a.jsonl", "\n".join(rows) + "\n")


def _ts(folder: Path) -> Path:
    head = "@problemName a\n@timeStamps false\n@univariate true\n@classLabel true 0 1\n@data\n"
    return _text(folder / "a.ts", head + "\n".join(f"{k},2.5,{k * k}:{k % 2}" for k in range(10)) + "\n")


def _conll(folder: Path) -> Path:
    return _text(folder / "a.conll", "\n".join("the DT B-NP\ndog NN I-NP\nran VB O\n" for _ in range(6)))


def _prose(folder: Path) -> Path:
    return _text(folder / "a.txt", "The quick brown fox jumps over the lazy dog. " * 20)


def _text(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def _gz(folder: Path) -> Path:
    source = _csv(folder)
    (folder / "a.csv.gz").write_bytes(gzip.compress(source.read_bytes(), mtime=0))
    return folder / "a.csv.gz"


def _npz(folder: Path) -> Path:
    np.savez(folder / "a.npz", x=np.random.default_rng(0).normal(size=(8, 5, 2)), y=np.arange(8) % 2)
    return folder / "a.npz"


def _npy(folder: Path) -> Path:
    np.save(folder / "a.npy", np.random.default_rng(0).normal(size=(8, 5, 2)))
    return folder / "a.npy"


def _mat(folder: Path) -> Path:
    from scipy.io import savemat

    savemat(folder / "a.mat", {"traindata": np.random.default_rng(0).integers(0, 2, (6, 20)).astype(float)})
    return folder / "a.mat"


def _sound() -> bytes:
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframesraw(np.random.default_rng(0).integers(-99, 99, 400).astype("<i2").tobytes())
    return made.getvalue()


def _wav(folder: Path) -> Path:
    (folder / "a.wav").write_bytes(_sound())
    return folder / "a.wav"


def _wav_zip(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for k in range(3):
            archive.writestr(f"{k}.wav", _sound())
    return folder / "a.zip"


def _parquet(folder: Path) -> Path:
    import pyarrow.csv
    from pyarrow import parquet

    parquet.write_table(pyarrow.csv.read_csv(_csv(folder)), folder / "a.parquet")
    return folder / "a.parquet"


def _arrow(folder: Path) -> Path:
    import pyarrow.csv
    from pyarrow import feather

    feather.write_feather(pyarrow.csv.read_csv(_csv(folder)), folder / "a.arrow", compression="uncompressed")
    return folder / "a.arrow"


def _hdf5(folder: Path) -> Path:
    import h5py

    with h5py.File(folder / "a.h5", "w") as file:
        for k in range(3):
            file[str(k)] = np.random.default_rng(k).normal(size=(4, 2))
    return folder / "a.h5"


def _idx(folder: Path) -> Path:
    (folder / "a-idx3-ubyte").write_bytes(b"\0\0\x08\x03\0\0\0\x05\0\0\0\x04\0\0\0\x04" + bytes(range(80)))
    return folder / "a-idx3-ubyte"


def _model(folder: Path) -> Path:
    x = [np.random.default_rng(k).normal(size=(5, 2)) for k in range(8)]
    rc.SequenceClassifier("gru", hidden_size=3, epochs=1, random_state=0).fit(x, ["a", "b"] * 4).save(folder / "model")
    return folder / "model"


FILES: tuple[Callable[[Path], Path], ...] = (
    _csv, _series, _jsonl, _ts, _conll, _prose, _gz, _npz, _npy, _mat, _wav, _wav_zip, _parquet, _arrow, _hdf5, _idx,
    _model,
)  # fmt: skip
INSERTED = (b"\0", b"\xff\xfe", b"\n", b",", b'"', b"[" * 300, b"nan", b"1e999", b"-", b"\x1b[2J")
_originals: dict[str, Path] = {}


def _original(make: Callable[[Path], Path]) -> Path:
    """The unharmed file, made once a process, and read once: what reading imports, children need not import."""
    if make.__name__ not in _originals:
        _originals[make.__name__] = made = make(Path(tempfile.mkdtemp(prefix="recurra-fuzz-")))
        _use(made)
    return _originals[make.__name__]


def _use(path: Path) -> None:
    """Do with a file what users do; errors of recurra are an answer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for use in (_load,) if path.is_dir() else (_read, rc.infer_problem):
            with contextlib.suppress(rc.RecurraError):
                use(path)


def remove_originals() -> None:
    for path in _originals.values():
        shutil.rmtree(path.parent, ignore_errors=True)
    _originals.clear()


# ---------------------------------------------------------------------------------------------------- mutations


def mutated(content: bytes, rng: random.Random) -> bytes:
    """The content with one to four changes."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(max(1, len(data)))
        length = min(rng.choice([1, 2, 4, 8, 64]), max(1, len(data) - at))
        kind = rng.choice(["bit", "byte", "number", "cut", "end", "repeat", "swap", "insert", "text"])
        if kind == "bit" and data:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == "byte":
            data[at : at + length] = rng.randbytes(length)
        elif kind == "number":  # a size or an offset
            data[at : at + 4] = rng.choice([0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 0x80000000, 1 << 20]).to_bytes(4, "little")
        elif kind == "cut":
            del data[at : at + length]
        elif kind == "end":
            del data[at:]
        elif kind == "repeat":
            data[at:at] = bytes(data[at : at + length]) * rng.choice([1, 3, 200])
        elif kind == "swap":
            other = rng.randrange(max(1, len(data)))
            data[at : at + length], data[other : other + length] = data[other : other + length], data[at : at + length]
        elif kind == "insert":
            data[at:at] = rng.choice(INSERTED)
        else:
            digits = [i for i, byte in enumerate(data) if 48 <= byte < 58]
            if digits:
                i = rng.choice(digits)
                data[i : i + 1] = rng.choice([b"99999999999", b"-1", b"x", b"", b"0.5e400", b"\xc3"])
    return bytes(data)


def _place(seed: int, folder: Path) -> Path:
    """The mutated file of a seed, in a folder of its own."""
    rng = random.Random(f"file {seed}")
    source = _original(rng.choice(FILES))
    if source.is_file():
        target = folder / source.name
        target.write_bytes(mutated(source.read_bytes(), rng))
        return target
    shutil.copytree(source, folder / source.name)
    inside = rng.choice(sorted(path for path in (folder / source.name).iterdir() if path.is_file()))
    inside.write_bytes(mutated(inside.read_bytes(), rng))
    return folder / source.name


# ---------------------------------------------------------------------------------------------------- reading


def _load(path: Path) -> None:
    rc.SequenceClassifier.load(path).predict([np.zeros((3, 2))])


def _read(path: Path) -> None:
    data = rc.data.read(path)
    for k in range(min(3, len(data))):
        assert isinstance(data[k].inputs, torch.Tensor)


def _child(path: Path, report: Path) -> None:
    """Read in this process, which ends here."""
    grown = _used() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (grown, grown))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    signal.alarm(SECONDS)
    try:
        _use(path)
    except BaseException:
        report.write_text(traceback.format_exc(limit=-10))
    finally:
        sys.stdout.flush()
        os._exit(0)


def _used() -> int:
    """Bytes of address space that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def check(seed: int) -> str:
    """What is wrong with reading the file of this seed; empty if nothing is."""
    with tempfile.TemporaryDirectory(prefix="recurra-fuzz-") as made:
        folder = Path(made)
        report = folder / "report"
        (folder / "data").mkdir()
        path = _place(seed, folder / "data")
        child = os.fork()
        if child == 0:
            _child(path, report)
        _, status = os.waitpid(child, 0)
        wrong = report.read_text() if report.exists() else ""
        if os.WIFSIGNALED(status):
            wrong = f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
        return f"mutated file {seed}, {path.name}\n{wrong}" if wrong else ""
