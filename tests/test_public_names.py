"""`import recurra` waits with torch until a name is used; then every name is there, whoever asks and in which order."""

import ast
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import recurra as rc

NOTHING_YET = """
import sys, recurra
assert recurra.__version__ and not hasattr(recurra, "__wrapped__")
assert not {"torch", "numpy", "typer"} & set(sys.modules)
"""

STAR = """
from recurra import *
from recurra import cells
assert issubclass(LSTM, Recurrent) and issubclass(cells.LSTM, Cell) and callable(SequenceClassifier)
"""

ROOMS = """
import recurra
assert recurra.errors.InputError and recurra.layers.layer is recurra.layer
assert recurra.layer("mgu", 3, 4).cell_class is recurra.cells.MGU
"""

ZOO_BY_THE_SIDE_DOOR = """
from recurra.cell import Cell
from recurra.cells import find, register
from recurra.errors import InputError
try:
    register("lstm")(Cell)
except InputError:
    assert find("gru").__name__ == "GRU"
"""

THREADS = """
import recurra
from concurrent.futures import ThreadPoolExecutor
names = ["LSTM", "Cell", "cells", "registry", "layers", "GRU", "train", "Zoneout"] * 4
with ThreadPoolExecutor(len(names)) as pool:
    found = list(pool.map(lambda name: getattr(recurra, name), names))
assert found == [getattr(recurra, name) for name in names] and len(recurra.registry()) > 40
"""

PICKLE = """
import pickle, sys
layer = pickle.load(sys.stdin.buffer)
assert layer.cell_class.__name__ == "LSTM" and "recurra.cells" in sys.modules
"""


def fresh(program: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, input=given, capture_output=True, check=False, timeout=120)


@pytest.mark.parametrize(
    "program",
    [NOTHING_YET, STAR, ROOMS, ZOO_BY_THE_SIDE_DOOR, THREADS],
    ids=["nothing yet", "star", "rooms", "zoo by the side door", "threads"],
)
def test_in_a_fresh_interpreter(program):
    done = fresh(program)
    assert done.returncode == 0, done.stderr.decode()


def test_a_pickle_brings_what_it_needs():
    done = fresh(PICKLE, pickle.dumps(rc.LSTM(3, 4)))
    assert done.returncode == 0, done.stderr.decode()


def test_a_misspelt_name_is_answered_with_the_nearest():
    done = fresh("import recurra as rc; rc.SequenceClasifier")
    last = done.stderr.decode().strip().splitlines()[-1]
    expected = "AttributeError: module 'recurra' has no attribute 'SequenceClasifier'."
    assert last == f"{expected} Did you mean: 'SequenceClassifier'?"
    with pytest.raises(ImportError, match="cannot import name 'LSTN' from 'recurra'"):
        from recurra import LSTN  # noqa: F401  # pyrefly: ignore


def test_type_checkers_are_told_the_same_names_from_the_same_rooms():
    told = {}
    tree = ast.parse(Path(rc.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    for line in block.body:
        assert isinstance(line, ast.ImportFrom)
        told |= {each.name: line.module or "" for each in line.names if each.name == each.asname}
    assert told == rc._PLACE_OF


def test_every_public_name_is_found_and_listed():
    assert rc.__all__ == sorted({*rc._PLACE_OF, *rc.cells.__all__})
    assert set(rc.__all__) <= set(dir(rc))
    for name in rc.__all__:
        assert getattr(rc, name) is rc.__dict__[name]  # kept, and found at once the next time
    for name in rc.cells.__all__:
        assert issubclass(getattr(rc, name), rc.Recurrent)


def test_a_public_name_has_one_meaning():
    """A function must not be called what a room is called: which one came would depend on what was imported first."""
    rooms = {path.stem for path in Path(rc.__file__).parent.iterdir() if path.is_dir() or path.suffix == ".py"}
    assert {name for name in rc.__all__ if name in rooms} == set(rc._PLACES[""].split())
