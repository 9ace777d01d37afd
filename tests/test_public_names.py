"""The public surface: names that load lazily, signatures of the layer classes, type stubs, `rc.compare(...)`."""

import copy
import inspect
import pickle
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import recurra as rc

NO_TORCH_YET = """
import sys, recurra
assert recurra.__version__ and not hasattr(recurra, "__wrapped__")
assert not {"torch", "numpy", "typer"} & set(sys.modules)
"""

STAR = """
from recurra import *
from recurra import cells
assert issubclass(LSTM, Recurrent) and issubclass(cells.LSTM, Cell) and callable(SequenceClassifier)
"""

PUBLIC_MODULES = """
import recurra
assert recurra.errors.InputError is recurra.InputError and recurra.layer is not None
assert recurra.layer("mgu", 3, 4).cell_class is recurra.cells.MGU
"""

PRIVATE_MODULES = """
import recurra
for name in ("engine", "layers", "named_layers", "cell", "modifiers", "numerals", "ragged", "interop", "cli"):
    try:
        recurra.__getattr__(name)  # `recurra.layers` itself exists once something has imported the module
    except AttributeError:
        assert name not in dir(recurra), name
    else:
        raise AssertionError(name)
import recurra.engine, recurra.cli
assert recurra.engine and recurra.cli
"""

CELLS_IMPORTED_FIRST = """
from recurra.cells import LSTM
from recurra.errors import InputError
import recurra as rc
try:
    rc.register("lstm")(LSTM)
except InputError:
    assert rc.layer("gru", 3, 4).cell_class.__name__ == "GRU"
"""

THREADS = """
import recurra
from concurrent.futures import ThreadPoolExecutor
names = ["LSTM", "Cell", "cells", "registry", "Modifier", "GRU", "train", "Zoneout"] * 4
with ThreadPoolExecutor(len(names)) as pool:
    found = list(pool.map(lambda name: getattr(recurra, name), names))
assert found == [getattr(recurra, name) for name in names] and len(recurra.registry()) > 40
"""

UNPICKLE = """
import pickle, sys
layer = pickle.load(sys.stdin.buffer)
assert layer.cell_class.__name__ == "LSTM" and "recurra.cells" in sys.modules
"""


def fresh(program: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, input=given, capture_output=True, check=False, timeout=600)


# ---------------------------------------------------------------------------------------------------- lazy names


@pytest.mark.parametrize(
    "program",
    [NO_TORCH_YET, STAR, PUBLIC_MODULES, PRIVATE_MODULES, CELLS_IMPORTED_FIRST, THREADS],
    ids=["no torch yet", "star", "public modules", "private modules", "cells imported first", "threads"],
)
def test_in_a_fresh_interpreter(program):
    done = fresh(program)
    assert done.returncode == 0, done.stderr.decode()


def test_a_misspelt_name_gets_a_suggestion():
    done = fresh("import recurra as rc; rc.SequenceClasifier")
    last = done.stderr.decode().strip().splitlines()[-1]
    expected = "AttributeError: module 'recurra' has no attribute 'SequenceClasifier'."
    assert last == f"{expected} Did you mean: 'SequenceClassifier'?"
    with pytest.raises(ImportError, match="cannot import name 'LSTN' from 'recurra'"):
        from recurra import LSTN  # noqa: F401  # pyrefly: ignore


def test_every_public_name_loads_and_is_listed():
    assert rc.__all__ == sorted({*rc._PLACE_OF, *rc.cells.__all__})  # pyrefly: ignore
    for name in rc.__all__:  # pyrefly: ignore
        assert getattr(rc, name) is rc.__dict__[name]  # loaded once
    assert {name for name in dir(rc) if not name.startswith("__")} == set(rc.__all__)  # pyrefly: ignore


def test_a_public_name_has_one_meaning():
    """A function named like a module would be replaced once the module is imported. `compare` is a callable module."""
    modules = {path.stem for path in Path(rc.__file__).parent.iterdir() if path.is_dir() or path.suffix == ".py"}
    assert {name for name in rc.__all__ if name in modules} == set(rc._PLACES[""].split())  # pyrefly: ignore


def test_every_error_class_is_public():
    classes = {name for name, value in vars(rc.errors).items() if isinstance(value, type)}
    assert {name for name in classes if issubclass(getattr(rc.errors, name), Exception)} <= set(rc.__all__)  # pyrefly: ignore


# ---------------------------------------------------------------------------------------------------- layer classes


@pytest.mark.parametrize("name", rc.cells.__all__)  # pyrefly: ignore
def test_a_layer_class_shows_its_real_signature(name):
    layer_class, cell_class = getattr(rc, name), getattr(rc.cells, name)
    found = inspect.signature(layer_class).parameters
    common = inspect.signature(rc.Recurrent).parameters
    options = list(inspect.signature(cell_class).parameters)[2:]
    assert list(found) == [*(p for p in common if p not in ("cell", "options")), *options]
    assert all(found[p].default == common[p].default and found[p].kind == common[p].kind for p in found if p in common)
    assert all(found[p].kind is inspect.Parameter.KEYWORD_ONLY for p in options)
    defaults = {p: found[p].default for p in options}
    layer = layer_class(3, 4, **defaults)
    assert isinstance(layer, rc.Recurrent)
    assert layer.cell_class is cell_class
    assert all(f"- `{p}`" in layer_class.__doc__ for p in options)


def test_a_subclass_shows_its_own_signature():
    class Small(rc.LSTM):
        def __init__(self, width: int):
            super().__init__(width, width)

    assert str(inspect.signature(Small)) == "(width: int)"
    assert Small(3).hidden_size == 3


def test_a_layer_is_copied_and_pickled():
    layer = rc.GRU(3, 4, reset_after=True)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert type(other) is rc.GRU
        assert other.cell_list[0].reset_after
    done = fresh(UNPICKLE, pickle.dumps(rc.LSTM(3, 4)))
    assert done.returncode == 0, done.stderr.decode()


# ---------------------------------------------------------------------------------------------------- type checkers

RIGHT = """
import torch
import recurra as rc
from recurra.compare import Leaderboard

layer = rc.LSTM(3, 4, num_layers=2, bidirectional="separate")
base: rc.Recurrent = layer
gru = rc.GRU(3, [4, 5], reset_after=True, modifiers=[rc.Zoneout(0.1)], dtype=torch.float64)
board: Leaderboard = rc.compare("file.csv", seeds=2)
cell: rc.Cell = rc.cells.GRU(3, 4, reset_after=True)
same: Leaderboard = rc.compare.compare("file.csv")
best: type[Leaderboard] = rc.compare.Leaderboard
"""

WRONG = {
    "rc.LSTM(3, 4, num_layer=2)": "num_layer",
    "rc.LSTM(3, 4, reset_after=True)": "reset_after",
    'rc.LSTM("3", 4)': "input_size",
    "rc.LSTM(3)": "hidden_size",
    "rc.Lstm(3, 4)": "Lstm",
    "rc.cells.LSTM(3, 4, num_layers=2)": "num_layers",
    'rc.compare("file.csv", seed=2)': "seed",
}


def test_stubs_are_up_to_date(repository_root):
    stubs = runpy.run_path(str(repository_root / "scripts" / "write_stubs.py"))["stubs"]()
    for path, text in stubs.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is out of date: run scripts/write_stubs.py"


def test_a_type_checker_accepts_right_calls_and_flags_wrong_ones(tmp_path, repository_root):
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text("import recurra as rc\n\n" + "\n".join(WRONG) + "\n")
    (tmp_path / "pyrefly.toml").write_text(
        f'search-path = ["{repository_root}"]\npython-interpreter-path = "{sys.executable}"\n'
    )
    command = [sys.executable, "-m", "pyrefly", "check", "--output-format=min-text"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    found = {int(number): text for number, text in re.findall(r"wrong\.py:(\d+):\S*(.*)", done.stdout)}
    assert "right.py" not in done.stdout, done.stdout
    for number, (call, culprit) in enumerate(WRONG.items(), 3):
        assert culprit in found.get(number, ""), f"{call}\n{done.stdout}"


# ---------------------------------------------------------------------------------------------------- rc.compare


def test_the_package_compare_can_be_called():
    assert inspect.ismodule(rc.compare)
    assert inspect.signature(rc.compare) == inspect.signature(rc.compare.compare)
    with pytest.raises(rc.RecurraError, match="no such file"):
        rc.compare("absent.csv")
