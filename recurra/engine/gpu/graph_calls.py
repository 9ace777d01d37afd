"""Replays a call as one CUDA graph: launching its kernels one by one takes longer than running them.

A graph reads and writes memory of its own, so inputs are copied in and results are copied out. Weights are read where
they are, and their addresses are part of a call's signature. A call is captured when its signature comes again, if the
copies are small.
"""

import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor
from torch._C._nn import unflatten_dense_tensors
from torch.nn import Parameter

from .. import caches
from .graph_pool import GraphPool

CAPTURE_AT = 3  # calls of one signature after which it is captured
MOST_BYTES = 384 << 20  # that a replay may copy in and out
MOST_GRAPHS, MOST_BYTES_HELD = 128, 4 << 30  # in the process; the graph replayed longest ago is dropped
MOST_SIGNATURES = 256  # whose calls are counted
LARGE = 16 << 20  # bytes of a tensor that is copied alone

Run = Callable[[Sequence[Tensor]], list[Tensor]]

_lock = threading.RLock()  # the copies and the replay of one call stay together
_recent: OrderedDict[int, "weakref.ref[_Signature]"] = OrderedDict()  # signatures with a graph
_numbers = itertools.count()
_pools: dict[tuple[int, int], GraphPool] = {}  # by device and stream


def _bytes_held() -> int:
    """Of the inputs and results of all graphs."""
    return sum(signature.bytes for known in _recent.values() if (signature := known()) is not None)


def _drop_graphs() -> None:
    for known in list(_recent.values()):
        signature = known()
        if signature is not None:
            signature.graph = None
    _recent.clear()


caches.register("CUDA graphs", _drop_graphs, _recent.__len__)


class GraphCalls:
    """The captured calls of an executor."""

    def __init__(self) -> None:
        self.known: OrderedDict[Hashable, _Signature] = OrderedDict()

    def __call__(self, run: Run, inputs: Sequence[Tensor], key: Hashable, flat: int | None = None) -> list[Tensor]:
        """`run(inputs)`, replayed if it is known; `key` is all that it depends on beside the inputs. Results from
        number `flat` on may share memory."""
        device = inputs[0].device.index
        if device is None or torch.cuda.is_current_stream_capturing():
            return run(inputs)
        stream = torch._C._cuda_getCurrentRawStream(device)
        places = tuple([t.data_ptr() if type(t) is Parameter and t.is_contiguous() else t.shape for t in inputs])
        call = stream, key, places, torch._C._get_deterministic_algorithms()  # in force, torch refuses some products
        signature = self.known.get(call)
        if signature is None:
            signature = self.known[call] = _Signature(device, stream)
            if len(self.known) > MOST_SIGNATURES:
                self.known.popitem(last=False)
        if signature.graph is None:
            return signature.run_and_count(run, inputs, flat)
        with _lock:
            if signature.number in _recent:
                _recent.move_to_end(signature.number)
            return signature.replay(run, inputs)


class _Signature:
    """Calls on one stream, of one shape, with the same weights."""

    def __init__(self, device: int, stream: int):
        self.device, self.stream = device, stream
        self.number = next(_numbers)
        self.calls, self.bytes = 0, 0
        self.graph: _Graph | None = None

    def replay(self, run: Run, inputs: Sequence[Tensor]) -> list[Tensor]:
        return run(inputs) if self.graph is None else self.graph(inputs)

    def run_and_count(self, run: Run, inputs: Sequence[Tensor], flat: int | None) -> list[Tensor]:
        self.calls += 1
        results = run(inputs)
        if self.calls == CAPTURE_AT:
            fixed = {i for i, t in enumerate(inputs) if type(t) is Parameter and t.is_contiguous()}
            moved = [tensor for i, tensor in enumerate(inputs) if i not in fixed]
            self.bytes = sum(tensor.nbytes for tensor in (*moved, *results))
            if self.bytes <= MOST_BYTES:
                self._capture(run, inputs, fixed, flat)
        return results

    def _capture(self, run: Run, inputs: Sequence[Tensor], fixed: set[int], flat: int | None) -> None:
        with _lock:
            if (self.device, self.stream) not in _pools:
                _pools[self.device, self.stream] = GraphPool(self.device)
            try:
                self.graph = _Graph(run, inputs, fixed, flat, _pools[self.device, self.stream])
            except RuntimeError as error:  # an operation may not allow it, such as a kernel's first launch
                failures.append(str(error))
                return
            number = self.number
            _recent[number] = weakref.ref(self, lambda _: _recent.pop(number, None))
            while len(_recent) > MOST_GRAPHS or _bytes_held() > MOST_BYTES_HELD:
                oldest = _recent.popitem(last=False)[1]()
                if oldest is not None:
                    oldest.graph = None


class _Graph:
    """One captured call: its inputs, its graph, its results."""

    @torch.inference_mode(False)  # later calls outside inference mode write to this memory too
    @torch.no_grad()
    def __init__(self, run: Run, inputs: Sequence[Tensor], fixed: set[int], flat: int | None, pool: GraphPool):
        own = [tensor if i in fixed else _like(tensor) for i, tensor in enumerate(inputs)]
        self.moved = [i for i in range(len(inputs)) if i not in fixed]
        self.places = [own[i] for i in self.moved]
        self.graph, self.device = torch.cuda.CUDAGraph(), inputs[0].device
        pool.stream.wait_stream(torch.cuda.current_stream(self.device))
        with pool.capture(self.graph) as handle, torch.cuda.stream(pool.stream):
            self.graph.capture_begin(handle, capture_error_mode="thread_local")
            try:
                results = run(own)
                self.results = [result.contiguous() for result in results[:flat]]
                self.flat, self.pieces = _flatten(results[flat:]) if flat is not None else (None, [])
            finally:
                self.graph.capture_end()
        self.shapes = [(result.shape, result.dtype) for result in self.results]

    def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        _copy_all(self.places, [inputs[i] for i in self.moved])
        self.graph.replay()
        fresh = [torch.empty(shape, dtype=dtype, device=self.device) for shape, dtype in self.shapes]
        if fresh:
            _copy_all(fresh, self.results)
        return fresh if self.flat is None else [*fresh, *unflatten_dense_tensors(self.flat.clone(), self.pieces)]


failures: list[str] = []  # why calls were not captured


def _flatten(tensors: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """All in one, and the views into it."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    return flat, list(unflatten_dense_tensors(flat, tensors))


def _copy_all(places: list[Tensor], values: list[Tensor]) -> None:
    """Copy values to contiguous places: those of one dtype in one kernel, but large ones one by one, which takes the
    host longer and the device less. Were one of another dtype or not contiguous, torch would copy all one by one."""
    alike: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for place, value in zip(places, values, strict=True):
        if value.dtype is place.dtype and value.nbytes < LARGE and value.is_contiguous():
            into, source = alike.setdefault(place.dtype, ([], []))
            into.append(place)
            source.append(value)
        else:
            place.copy_(value)
    for into, source in alike.values():
        torch._foreach_copy_(into, source)


def _like(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
