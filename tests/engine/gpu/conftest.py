"""Tests marked `gpu` fail unless the engine they name has run on the card."""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import pytest

from recurra.engine.gpu import both_directions
from recurra.engine.gpu.matrix.runner import MatrixExecutor
from recurra.engine.gpu.runner import GpuExecutor
from recurra.engine.gpu.step_call import GpuStepCall


def _counted(function: Callable[..., Any], calls: list[int]) -> Callable[..., Any]:
    @wraps(function)
    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        return function(*arguments, **options)

    return counted


@pytest.fixture(autouse=True)
def _asserts_the_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Count the calls of the GPU engine: some in a test marked `gpu`, none in one marked `gpu(engine="reference")`."""
    marker, calls = request.node.get_closest_marker("gpu"), []
    engines = (GpuExecutor, "forward"), (MatrixExecutor, "forward"), (both_directions, "forward")
    for owner, name in (*engines, (GpuStepCall, "__call__")):
        monkeypatch.setattr(owner, name, _counted(getattr(owner, name), calls))
    yield
    if marker is not None:
        expected = marker.kwargs.get("engine", "compiled")
        assert ("compiled" if calls else "reference") == expected
