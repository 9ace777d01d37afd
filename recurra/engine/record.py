"""Records the torch operations that a function runs as a torch.fx graph: a small `make_fx`.

torch's `make_fx` imports torch.compile when called, which takes longer than compiling a cell. Reading the value of a
tensor (`if x > 0`, `x.item()`) is an error: the graph would be right for that value only.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import TorchDispatchMode

from ..errors import TraceError

aten = torch.ops.aten
CONSTANT = (aten.ones_like.default, aten.zeros_like.default, aten.full_like.default)


def record(function: Callable[..., Sequence[Tensor]], examples: Sequence[Tensor]) -> fx.Graph:
    """The graph of `function(*examples)`; `node.meta["val"]` is the value of a node."""
    graph = fx.Graph()
    recorder = _Recorder(graph)
    for i, example in enumerate(examples):
        node = graph.placeholder(f"given_{i}")
        node.meta["val"] = example
        recorder.assign(example, node)
    with recorder:
        results = function(*examples)
    graph.output([recorder.node(value) for value in results])
    return graph


class _Recorder(TorchDispatchMode):
    """Adds every dispatched operation to the graph."""

    def __init__(self, graph: fx.Graph):
        super().__init__()
        self.graph = graph
        self.nodes: dict[int, fx.Node] = {}
        self.alive: list[Tensor] = []  # an id is unique only while its tensor lives

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import torch.compile, to disable it here

    def assign(self, tensor: Tensor, node: fx.Node) -> None:
        """From now on `tensor` is the value of `node`."""
        self.nodes[id(tensor)] = node
        self.alive.append(tensor)

    def node(self, tensor: Tensor) -> fx.Node:
        """The node whose value a tensor is."""
        if id(tensor) not in self.nodes:
            raise TraceError(f"reads a tensor {tuple(tensor.shape)} that is no input, state, mask or weight")
        return self.nodes[id(tensor)]

    def _is_input(self, tensor: Tensor) -> bool:
        return id(tensor) in self.nodes and self.nodes[id(tensor)].op == "placeholder"

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func in (aten._local_scalar_dense.default, aten.equal.default, aten.is_nonzero.default):
            raise TraceError("branches on the value of a tensor")
        if func._schema.is_mutable and any(self._is_input(value) for value in _written_tensors(func, args, kwargs)):
            raise TraceError("writes into a weight, a state or its input")
        result = func(*args, **kwargs)
        if func is aten.detach.default and self.node(args[0]).target in CONSTANT:  # torch detaches new constants
            self.assign(result, self.node(args[0]))
            return result
        if func is aten.lift_fresh.default and id(args[0]) not in self.nodes and args[0].numel() == 1:
            constant, dtype = float(args[0]), args[0].dtype  # torch.tensor(2.0)
            func, args, kwargs = aten.scalar_tensor.default, (constant,), {"dtype": dtype}
        to_node: Any = lambda a: self.node(a) if isinstance(a, Tensor) else a  # noqa: E731
        node = self.graph.call_function(func, map_aggregate(args, to_node), map_aggregate(kwargs, to_node))  # pyrefly: ignore
        node.meta["val"] = result
        if isinstance(result, Tensor):
            self.assign(result, node)
        elif isinstance(result, (tuple, list)):
            for i, part in enumerate(result):
                if isinstance(part, Tensor):
                    item = self.graph.call_function(operator.getitem, (node, i))
                    item.meta["val"] = part
                    self.assign(part, item)
        return result


def _written_tensors(func: Any, args: tuple, kwargs: dict) -> list[Tensor]:
    """The tensor arguments that an in-place operation writes to."""
    given = dict(zip((spec.name for spec in func._schema.arguments), args, strict=False)) | kwargs
    changed = [spec.name for spec in func._schema.arguments if spec.alias_info is not None and spec.alias_info.is_write]
    return [given[name] for name in changed if isinstance(given.get(name), Tensor)]
