"""Tests of every cell run on the plain loop, and once more, under the slow marker, on whatever engine recurra chooses."""

from collections.abc import Iterator

import pytest

from recurra.engine.scan import set_backend


@pytest.fixture(params=["reference", pytest.param("auto", marks=pytest.mark.slow)])
def either_engine(request: pytest.FixtureRequest) -> Iterator[None]:
    with set_backend(request.param):
        yield


on_either_engine = pytest.mark.usefixtures("either_engine")
