"""`@on_either_engine`: run a test on the plain loop and again on the engine that recurra chooses.

The second run compiles a kernel for each cell and option where the cache is empty. Only COMPILED_CELLS do so in the
fast suite; the second runs of all other cells are marked slow.
"""

from collections.abc import Iterator

import pytest
from cases import Case

from recurra.engine.backend import set_backend

COMPILED_CELLS = ("lstm", "gru", "delay_rnn", "scrn")  # two gated cells, delayed states, two states of unequal width


ENGINES = ["reference", pytest.param("auto", marks=pytest.mark.slow)]  # for tests that draw their cells


@pytest.fixture(params=["reference", "auto"])
def either_engine(request: pytest.FixtureRequest) -> Iterator[None]:
    with set_backend(request.param):
        yield


on_either_engine = pytest.mark.usefixtures("either_engine")


def is_slow_on_default_engine(item: pytest.Item) -> bool:
    """Whether a collected test compiles kernels for a cell other than COMPILED_CELLS."""
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    if parameters.get("either_engine") != "auto":
        return False
    case = parameters.get("case", Case(parameters.get("name", COMPILED_CELLS[0])))
    return case not in [Case(name) for name in COMPILED_CELLS]
