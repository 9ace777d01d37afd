"""Tests of every cell run on the plain loop and, under the slow marker, on whatever engine recurra chooses.

Compiling a kernel for every cell and option takes minutes where the cache is empty; the engine's own tests do it once.
"""

from collections.abc import Iterator

import pytest

from recurra.engine.dispatch import set_backend

ENGINES = ["reference", pytest.param("auto", marks=pytest.mark.slow)]


@pytest.fixture(params=ENGINES)
def either_engine(request: pytest.FixtureRequest) -> Iterator[None]:
    with set_backend(request.param):
        yield


on_either_engine = pytest.mark.usefixtures("either_engine")
