"""Tests of every cell run on the plain loop and, under the slow marker, on whatever engine recurra chooses."""

from collections.abc import Iterator

import pytest

from recurra.engine.scan import set_backend

ENGINES = ["reference", pytest.param("auto", marks=pytest.mark.slow)]


@pytest.fixture(params=ENGINES)
def either_engine(request: pytest.FixtureRequest) -> Iterator[None]:
    with set_backend(request.param):
        yield


on_either_engine = pytest.mark.usefixtures("either_engine")
