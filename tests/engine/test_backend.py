"""`set_backend` belongs to a context: a thread, a task, a `with` block; backward runs what forward chose."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
import torch

import recurra as rc
from recurra.engine import dispatch
from recurra.engine.backend import backend
from recurra.engine.reference import Sequences

T = TypeVar("T")


def in_thread(function: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def engine_of(layer: rc.Recurrent, x: torch.Tensor) -> str:
    return dispatch.choose(layer.cell_list[0], Sequences(x, None, {}, None, None)).backend


def test_a_block_ends_where_it_began():
    with rc.set_backend("reference"):
        with rc.set_backend("compiled"):
            assert backend() == "compiled"
        assert backend() == "reference"
    assert backend() == "auto"


def test_threads_choose_for_themselves():
    layer, x = rc.GRU(3, 4), torch.randn(5, 2, 3)
    engines, together = {}, threading.Barrier(2)

    def run(name: str) -> None:
        with rc.set_backend(name):
            together.wait()  # both are inside their blocks
            engines[name] = engine_of(layer, x)
            together.wait()
        assert backend() == "auto"

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, ("reference", "compiled")))
    assert engines == {"reference": "reference", "compiled": "compiled"}


def test_a_thread_does_not_change_its_parent():
    with rc.set_backend("compiled"):
        in_thread(lambda: rc.set_backend("reference"))
        assert backend() == "compiled"
        assert in_thread(backend) == "auto"


def test_tasks_choose_for_themselves():
    layer, x = rc.GRU(3, 4), torch.randn(5, 2, 3)

    async def run(name: str) -> str:
        with rc.set_backend(name):
            await asyncio.sleep(0)  # the other task enters its block
            return engine_of(layer, x)

    async def both() -> list[str]:
        rc.set_backend("compiled")
        found = await asyncio.gather(run("reference"), run("auto"))
        return [*found, backend()]

    assert in_thread(lambda: asyncio.run(both())) == ["reference", "compiled", "compiled"]


@pytest.mark.filterwarnings("ignore")  # torch.compile's own
def test_a_compiled_graph_follows_the_choice():
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    layer, x = rc.GRU(3, 4, dtype=torch.float64), torch.randn(5, 2, 3, dtype=torch.float64)
    counter = CompileCounterWithBackend("aot_eager")
    fast = torch.compile(layer, fullgraph=True, backend=counter)

    def scans() -> list[int]:
        return [
            sum(node.target == torch.ops.recurra.scan.default for node in graph.graph.nodes) for graph in counter.graphs
        ]

    expected = layer(x)[0]
    torch.testing.assert_close(fast(x)[0], expected)
    with rc.set_backend("reference"):
        torch.testing.assert_close(fast(x)[0], expected)
        assert scans() == [1, 0]
    fast(x)
    assert scans() == [1, 0]
    with rc.set_backend("reference"):
        in_thread(lambda: fast(x))
    assert scans() == [1, 0]  # the thread took the first graph


@pytest.mark.filterwarnings("ignore")  # torch.compile's own
def test_the_choice_inside_a_compiled_function():
    torch._dynamo.reset()
    layer, x = rc.GRU(3, 4, dtype=torch.float64), torch.randn(5, 2, 3, dtype=torch.float64)

    def run(x: torch.Tensor) -> torch.Tensor:
        with rc.set_backend("reference"):
            return layer(x)[0]

    fast = torch.compile(run, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(fast(x), layer(x)[0])
    assert backend() == "auto"
    assert engine_of(layer, x) == "compiled"


def test_backward_runs_pieces_again_as_forward_did(monkeypatch: pytest.MonkeyPatch):
    """Autograd may run the pieces of a checkpointed layer again in a thread of its own, outside of the block."""
    seen, scan = [], dispatch.scan
    layer, x = rc.GRU(3, 4, checkpoint=True), torch.randn(9, 2, 3)
    monkeypatch.setattr("recurra.engine.checkpoint.scan", lambda *given: seen.append(backend()) or scan(*given))
    with rc.set_backend("reference"):
        y = layer(x)[0]
    in_thread(y.sum().backward)
    assert seen == ["reference"] * 6
