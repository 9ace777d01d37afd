"""The loops of feature_banks.cpp, compiled at first use."""

import ctypes
import functools
from pathlib import Path
from typing import Any

import numpy as np

from ...engine.backend import backend
from ...engine.cpu.compiler import BuildError, find_compiler, load
from .sequences import Sequences

SOURCE = Path(__file__).with_name("feature_banks.cpp")
LOOPS = ("delay_lines", "competitions", "resonators", "resonator_values", "leaky_networks")


@functools.cache
def _library() -> ctypes.CDLL | None:
    if find_compiler() is None:
        return None
    try:
        library = load(SOURCE.read_text(encoding="utf-8"), "-O3", "-fopenmp", "-march=native")
    except BuildError:
        return None
    for name in LOOPS:
        getattr(library, name).restype = None
    return library


def is_compiled() -> bool:
    """Whether the loops run compiled; without a compiler those of reference.py run."""
    return backend() != "reference" and _library() is not None


def run(loop: str, sequences: Sequences, *arguments: Any) -> None:
    """Call a compiled loop with whole numbers and arrays."""
    library = _library()
    assert library is not None
    given = sequences.as_c()
    getattr(library, loop)(ctypes.byref(given), *(_as_c(value) for value in arguments))


def _as_c(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        assert value.flags.c_contiguous
        assert value.dtype in (np.float32, np.int64)
        return ctypes.c_void_p(value.ctypes.data)
    return ctypes.c_int64(value)
