"""Damaged files that once leaked an error of a library, or ended the process: each raises a `DataError`."""

import os
import signal
import struct
from pathlib import Path

import numpy as np
import pytest

import recurra as rc
from recurra.data.data_errors import DataError


def npy_with(header: str, tmp_path: Path) -> Path:
    text = header.encode().ljust(118) + b"\n"
    path = tmp_path / "a.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(64))
    return path


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (2, -4)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 4)",
        "{'descr': '<f8', 'fortran_order': False, 'shape': 2, 4)}",
        "{'descr': '<q9', 'fortran_order': False, 'shape': (2, 4)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 4)}\n(",
    ],
)
def test_headers_of_numpy_arrays(header: str, tmp_path: Path):
    with pytest.raises(DataError, match=r"a\.npy: got .*, expected an intact NumPy array"):
        rc.data.read(npy_with(header, tmp_path))


def test_a_numpy_array_that_ends_early(tmp_path: Path):
    np.save(tmp_path / "a.npy", np.zeros((4, 5, 2)))
    content = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(content[:-8])
    with pytest.raises(DataError, match="expected an intact NumPy array"):
        rc.data.read(tmp_path / "a.npy")


def test_a_zip_whose_directory_points_outside(tmp_path: Path):
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 5, 2)))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    at = content.index(b"PK\x01\x02")
    content[at + 42 : at + 46] = struct.pack("<I", 1 << 31)  # where the entry begins
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataError, match="a plain zip"):
        rc.data.read(tmp_path / "a.npz")


def test_an_hdf5_file_with_a_damaged_heap(tmp_path: Path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["0"] = np.zeros((4, 2))
    content = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "a.h5").write_bytes(content.replace(b"HEAP", b"HEAQ"))
    with pytest.raises(DataError, match="expected an intact HDF5 file"):
        rc.data.read(tmp_path / "a.h5")


@pytest.mark.parametrize("length", [126, 127, 200])
def test_a_matlab_file_that_ends_early(length: int, tmp_path: Path):
    from scipy.io import savemat

    savemat(tmp_path / "a.mat", {"traindata": np.zeros((6, 20))})
    (tmp_path / "a.mat").write_bytes((tmp_path / "a.mat").read_bytes()[:length])
    with pytest.raises(DataError, match="expected an intact MATLAB file"):
        rc.data.read(tmp_path / "a.mat")


def test_columns_whose_names_are_no_text(tmp_path: Path):
    import pyarrow as pa
    from pyarrow import feather, parquet

    table = pa.table({"id": [1, 1, 2], "label": ["a", "a", "b"], "x": [1.0, 2.0, 3.0]})
    parquet.write_table(table, tmp_path / "a.parquet", store_schema=False)
    feather.write_feather(table, tmp_path / "a.arrow", compression="uncompressed")
    for path in (tmp_path / "a.parquet", tmp_path / "a.arrow"):
        path.write_bytes(path.read_bytes().replace(b"label", b"lab\x9dl"))
        with pytest.raises(DataError, match=rf"{path.name}.*0x9d"):
            rc.data.read(path)


def test_a_parquet_file_with_damaged_pages(tmp_path: Path):
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.table({"unique_id": ["a"] * 500 + ["b"] * 500, "y": np.arange(1000.0)})
    parquet.write_table(table, tmp_path / "a.parquet")
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    content[4:40] = b"\xff" * 36
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(DataError, match="expected an intact Parquet file"):
        rc.data.read(tmp_path / "a.parquet")


@pytest.mark.parametrize("use", [rc.data.read, rc.infer_problem])
def test_an_arrow_file_whose_offsets_point_elsewhere(use, tmp_path: Path):
    """In a forked child: it ended the process."""
    import pyarrow as pa
    from pyarrow import feather

    table = pa.table({"unique_id": ["aaaa", "aaaa", "bbbb", "bbbb"], "y": [1.0, 2.0, 3.0, 4.0]})
    feather.write_feather(table, tmp_path / "a.arrow", compression="uncompressed")
    offsets = struct.pack("<5i", 0, 4, 8, 12, 16)
    content = (tmp_path / "a.arrow").read_bytes()
    assert offsets in content
    (tmp_path / "a.arrow").write_bytes(content.replace(offsets, struct.pack("<5i", 0, 1 << 30, 8, -(1 << 30), 16)))
    child = os.fork()
    if child == 0:
        try:
            use(tmp_path / "a.arrow")
        except DataError:
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert not os.WIFSIGNALED(status), signal.Signals(os.WTERMSIG(status)).name
    assert os.waitstatus_to_exitcode(status) == 0


def test_steps_of_unequal_width_in_a_file_of_lists(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": [[1, 2], [3, 4]], "label": "a"}\n{"x": [[1, 2], [3]], "label": "b"}\n')
    with pytest.raises(DataError, match=r"steps of \[1, 2\] numbers.*as many at every step"):
        rc.data.read(path)
