"""NumPy, IDX, MATLAB and HDF5 files: shapes, sizes that lie, and pickles that must never run."""

import gzip
import io
import pickle
import struct
import zipfile

import h5py
import numpy as np
import pytest
import torch
from scipy.io import savemat

from recurra.data import Streams, read, read_hdf5, read_idx, read_mat, read_npy, read_npz
from recurra.data.data_errors import (
    DataError,
    EmptyFileError,
    FormatError,
    MissingValueError,
    SizeError,
    UnseenLabelError,
)
from recurra.errors import UnknownNameError


class Canary:
    """Unpickled, it leaves a file behind."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.fixture
def canary(tmp_path):
    return np.array([Canary(tmp_path / "sang")], dtype=object), tmp_path / "sang"


def test_the_canary_sings_when_a_pickle_is_loaded(canary):
    array, song = canary
    pickle.loads(pickle.dumps(array)).item().close()
    assert song.exists()


def test_a_pickle_in_npy_is_never_loaded(canary, tmp_path):
    array, song = canary
    path = tmp_path / "canary.npy"
    np.save(path, array, allow_pickle=True)
    for reader in (read, read_npy):
        with pytest.raises(FormatError, match="never loaded"):
            reader(path)
    assert not song.exists()


@pytest.mark.parametrize("names", [("inputs",), ("inputs", "targets"), ("x", "lengths")])
def test_a_pickle_in_npz_is_never_loaded(canary, tmp_path, names):
    array, song = canary
    path = tmp_path / "canary.npz"
    good = np.ones((1, 4, 2))
    np.savez(path, **{name: array if name == names[-1] else good for name in names})
    for reader in (read, read_npz):
        with pytest.raises(FormatError, match="never loaded"):
            reader(path)
    assert not song.exists()


def test_a_pickle_under_an_array_name_is_never_loaded(canary, tmp_path):
    array, song = canary
    for name in ("plain.npy", "plain.npz", "plain.mat", "plain.h5", "plain.parquet", "plain.wav", "plain.arrow"):
        path = tmp_path / name
        path.write_bytes(pickle.dumps(array))
        with pytest.raises(DataError):
            read(path)
    path = tmp_path / "inside.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inputs.npy", pickle.dumps(array))
    with pytest.raises(FormatError):
        read(path)
    assert not song.exists()


def lying_npy(shape, dtype="<f8"):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue() + b"\0" * 64


def test_a_header_that_declares_more_than_is_there(tmp_path):
    path = tmp_path / "large.npy"
    path.write_bytes(lying_npy((1 << 40, 8)))
    with pytest.raises(SizeError, match="declares 70,368,744,177,664 bytes"):
        read(path)
    path = tmp_path / "large.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inputs.npy", lying_npy((1 << 40, 8)))
    with pytest.raises(SizeError):
        read(path)


def test_npy_is_mapped_and_converted_when_read(tmp_path):
    path = tmp_path / "series.npy"
    values = np.arange(3_000_000, dtype=np.float64).reshape(-1, 3)
    np.save(path, values)
    data = read(path)
    assert (data.task, data.lengths.tolist(), data.input_size) == ("next_step", [999_999], 3)
    assert data.window(0, 10, 12).target.tolist() == values[11:13].tolist()
    assert data.window(0, 0, 1).inputs.dtype == torch.float32
    total = sum(float(chunk.inputs[..., 0].double().sum()) for chunk in Streams(data, 3, 1000).epoch(0))
    assert total == values[:-1, 0].sum()


def test_npy_shapes(tmp_path):
    path = tmp_path / "array.npy"
    np.save(path, np.arange(24).reshape(2, 4, 3))
    assert read(path)[1].inputs.tolist() == np.arange(12, 21).reshape(3, 3).tolist()
    np.save(path, np.array([3, 1, 4, 1, 5]))
    assert read(path).task == "language"
    np.save(path, np.array([3.0, 1.0, 4.0]))
    assert read(path)[0].inputs.shape == (2, 1)


@pytest.mark.parametrize(
    ("array", "error"),
    [
        (np.ones((2, 2, 2, 2)), FormatError),
        (np.array(["a", "b"]), FormatError),
        (np.ones((0, 3)), EmptyFileError),
        (np.array([1.0, np.nan]), MissingValueError),
    ],
)
def test_arrays_that_are_no_sequences(tmp_path, array, error):
    path = tmp_path / "array.npy"
    np.save(path, array)
    with pytest.raises(error):
        read(path)


def test_npz_with_labels_and_lengths(tmp_path):
    path = tmp_path / "set.npz"
    inputs = np.random.default_rng(0).standard_normal((3, 5, 2)).astype(np.float32)
    np.savez(path, inputs=inputs, targets=np.array(["b", "a", "b"]), lengths=np.array([5, 2, 3]))
    data = read(path)
    assert (data.task, data.classes, data.lengths.tolist()) == ("classification", ("a", "b"), [5, 2, 3])
    assert data[1].inputs.tolist() == inputs[1, :2].tolist()
    assert data.targets.tolist() == [1, 0, 1]
    with pytest.raises(UnseenLabelError):
        read(path, classes=["a", "c"])


def test_npz_end_to_end_and_targets_of_every_kind(tmp_path):
    path = tmp_path / "set.npz"
    np.savez(path, x=np.arange(10.0)[:, None], lengths=np.array([4, 6]), y=np.array([0.5, 1.5]))
    data = read(path)
    assert (data.task, data[1].inputs.flatten().tolist()) == ("regression", [4, 5, 6, 7, 8, 9])
    np.savez(path, x=np.ones((2, 4, 1)), y=np.array([[0, 1, 1, 0], [1, 1, 1, 1]]))
    assert read(path).task == "tagging"
    np.savez(path, x=np.ones((2, 4, 1)), y=np.ones((2, 4, 3)))
    assert (read(path).task, read(path)[0].target.shape) == ("transduction", (4, 3))
    np.savez(path, x=np.ones((2, 4, 1)), y=np.ones(3))
    with pytest.raises(FormatError, match="3 targets for 2 sequences"):
        read(path)
    np.savez(path, x=np.ones((9, 1)), lengths=np.array([4, 6]))
    with pytest.raises(FormatError, match="sum to 10"):
        read(path)


@pytest.fixture
def digits(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (7, 4, 3), dtype=np.uint8)
    labels = np.array([3, 1, 4, 1, 5, 0, 2], dtype=np.uint8)
    at = tmp_path / "t10k-images-idx3-ubyte.gz"
    at.write_bytes(gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 7, 4, 3) + images.tobytes()))
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(
        gzip.compress(struct.pack(">4BI", 0, 0, 8, 1, 7) + labels.tobytes())
    )
    return at, images, labels


def test_idx_images_pixel_by_pixel(digits):
    at, images, labels = digits
    data = read(at)
    assert torch.equal(data[2].inputs[:, 0], torch.from_numpy(images[2].reshape(-1)).float() * (1 / 255))
    assert data.targets.tolist() == labels.tolist()
    assert len(read(at.with_name("t10k-labels-idx1-ubyte.gz"))) == 7


def test_idx_sizes_must_be_those_of_the_file(digits):
    at, *_ = digits
    at.write_bytes(gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 1 << 31, 1 << 20, 1 << 20) + b"\0" * 84))
    with pytest.raises(SizeError):
        read_idx(at)
    at.write_bytes(gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 6, 4, 3) + b"\0" * 72))
    with pytest.raises(FormatError, match="images \\(6, 4, 3\\) and labels \\(7,\\)"):
        read_idx(at)


def test_matlab_cells_are_pieces(tmp_path):
    path = tmp_path / "rolls.mat"
    rolls = [np.random.default_rng(k).integers(0, 2, (3 + k, 88), dtype=np.uint8) for k in range(3)]
    cells = {}
    for name, roll in zip(("traindata", "validdata", "testdata"), rolls, strict=True):
        cells[name] = np.empty((1, 2), dtype=object)
        cells[name][0, 0], cells[name][0, 1] = roll, roll + 1
    savemat(path, cells)
    data = read(path)
    assert (data.task, len(data), data.input_size) == ("next_step", 6, 88)
    valid = read_mat(path, "valid")
    assert valid.names == ["valid/0", "valid/1"]
    assert torch.equal(valid[0].target, torch.from_numpy(rolls[1][1:]).float())
    with pytest.raises(UnknownNameError, match="did you mean 'train'"):
        read_mat(path, "trian")


def test_matlab_files_that_are_none(tmp_path):
    path = tmp_path / "broken.mat"
    path.write_bytes(b"MATLAB 5.0 MAT-file" + b"\0" * 200)
    with pytest.raises(DataError):
        read(path)
    savemat(path, {"text": "hello"})
    with pytest.raises(FormatError):
        read(path)


def test_hdf5_datasets_are_sequences(tmp_path):
    path = tmp_path / "features.hdf5"
    with h5py.File(path, "w") as file:
        for k in range(12):
            file[str(k)] = np.full((2, 3 + k, 4), k, dtype=np.float32)
    data = read(path)
    assert data.names == [str(k) for k in range(12)]
    assert data[11].inputs.shape == (13, 8)
    assert float(data[11].inputs[0, 0]) == 11
    with h5py.File(path, "a") as file:
        file["odd"] = np.ones((5, 3))
    with pytest.raises(FormatError, match="different widths"):
        read_hdf5(path)


def test_hdf5_that_declares_too_much(tmp_path):
    path = tmp_path / "lying.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("0", shape=(1 << 40, 4), chunks=(10, 4), dtype="f4")
    assert path.stat().st_size < 10_000
    with pytest.raises(SizeError):
        read(path)
