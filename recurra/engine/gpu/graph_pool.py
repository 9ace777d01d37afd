"""Memory and a stream on which CUDA graphs are captured.

Graphs replayed on one stream never run at the same time, so they share the memory of what dies inside them. Torch frees
that memory with the last graph, and its handle is no longer valid then.
"""

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import torch


class GraphPool:
    """One pool, on one device."""

    def __init__(self, device: torch.device | int):
        self.stream = torch.cuda.Stream(device)
        self._handle: Any = None
        self._graphs: weakref.WeakSet[torch.cuda.CUDAGraph] = weakref.WeakSet()

    @contextlib.contextmanager
    def capture(self, graph: torch.cuda.CUDAGraph) -> Iterator[Any]:
        """Yield the handle with which to capture `graph`. Where torch refuses, the random generator would stay
        in capture mode, so it gets its state anew."""
        alive = list(self._graphs)  # none of them dies, and the memory with it, before the new one holds it
        if not alive:
            self._handle = torch.cuda.graph_pool_handle()
        try:
            yield self._handle
        except RuntimeError:
            generator = torch.cuda.default_generators[self.stream.device_index]
            generator.graphsafe_set_state(generator.clone_state())
            raise
        self._graphs.add(graph)
