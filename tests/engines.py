"""`@on_either_engine`: run a test on the plain loop and again on the engine that recurra chooses.

The second run compiles a kernel for each cell and option where the cache is empty. Only COMPILED_CELLS do so in the
fast suite, and REPRESENTATIVES of the families in the slow one. `test_against_reference` compiles every cell.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from cases import REPRESENTATIVES, Case

from recurra.engine.backend import set_backend

COMPILED_CELLS = ("lstm", "gru", "delay_rnn", "scrn")  # two gated cells, delayed states, two states of unequal width


ENGINES = ["reference", pytest.param("auto", marks=pytest.mark.slow)]  # for tests that draw their cells


@pytest.fixture(params=["reference", "auto"])
def either_engine(request: pytest.FixtureRequest) -> Iterator[None]:
    with set_backend(request.param):
        yield


on_either_engine = pytest.mark.usefixtures("either_engine")


def is_left_out(item: pytest.Item) -> bool:
    """Whether a collected test runs a cell that is not a representative of its family on the default engine."""
    case = _case_on_default_engine(item)
    return case is not None and case.name not in REPRESENTATIVES


def is_slow_on_default_engine(item: pytest.Item) -> bool:
    """Whether a collected test compiles kernels for a cell other than COMPILED_CELLS."""
    case = _case_on_default_engine(item)
    return case is not None and case not in [Case(name) for name in COMPILED_CELLS]


def _case_on_default_engine(item: pytest.Item) -> Case | None:
    has_parameters = isinstance(item, pytest.Function) and hasattr(item, "callspec")
    parameters: dict[str, Any] = item.callspec.params if has_parameters else {}  # pyrefly: ignore
    if parameters.get("either_engine") != "auto":
        return None
    return parameters.get("case", Case(parameters.get("name", COMPILED_CELLS[0])))
