"""Tests marked `gpu` fail unless the engine they name has run on the card."""

from collections.abc import Iterator
from functools import wraps
from typing import Any

import pytest

from recurra.engine.gpu.runner import GpuExecutor


@pytest.fixture(autouse=True)
def _asserts_the_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Count the calls of the GPU engine: some in a test marked `gpu`, none in one marked `gpu(engine="reference")`."""
    marker, forward, calls = request.node.get_closest_marker("gpu"), GpuExecutor.forward, []

    @wraps(forward)
    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        return forward(*arguments, **options)

    monkeypatch.setattr(GpuExecutor, "forward", counted)
    yield
    if marker is not None:
        expected = marker.kwargs.get("engine", "compiled")
        assert ("compiled" if calls else "reference") == expected
