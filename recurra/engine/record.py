"""Write down the torch operations a function runs: a small make_fx.

torch's own imports torch.compile's machinery when called, which takes longer than compiling a cell; this one does not.
A value that leaves the tensors (`if x > 0`, `x.item()`) is an error: the graph would be right for that value alone.
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
    """The graph of `function(*examples)`; `node.meta["val"]` holds what a node gave."""
    graph = fx.Graph()
    recorder = _Recorder(graph)
    for i, example in enumerate(examples):
        node = graph.placeholder(f"given_{i}")
        node.meta["val"] = example
        recorder.remember(example, node)
    with recorder:
        results = function(*examples)
    graph.output([recorder.node(value) for value in results])
    return graph


class _Recorder(TorchDispatchMode):
    def __init__(self, graph: fx.Graph):
        super().__init__()
        self.graph = graph
        self.nodes: dict[int, fx.Node] = {}
        self.alive: list[Tensor] = []  # as long as a tensor lives, no other has its id

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch would import the compiler, to tell it not to look in here

    def remember(self, tensor: Tensor, node: fx.Node) -> None:
        self.nodes[id(tensor)] = node
        self.alive.append(tensor)

    def node(self, tensor: Tensor) -> fx.Node:
        if id(tensor) not in self.nodes:
            raise TraceError(f"reads a tensor {tuple(tensor.shape)} that is no input, state, mask or weight")
        return self.nodes[id(tensor)]

    def _is_given(self, tensor: Tensor) -> bool:
        return id(tensor) in self.nodes and self.nodes[id(tensor)].op == "placeholder"

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func in (aten._local_scalar_dense.default, aten.equal.default, aten.is_nonzero.default):
            raise TraceError("branches on the value of a tensor")
        if func._schema.is_mutable and any(self._is_given(value) for value in _written(func, args, kwargs)):
            raise TraceError("writes into a weight, a state or its input")
        result = func(*args, **kwargs)
        if func is aten.detach.default and self.node(args[0]).target in CONSTANT:  # torch's own habit, and idle
            self.remember(result, self.node(args[0]))
            return result
        if func is aten.lift_fresh.default and id(args[0]) not in self.nodes and args[0].numel() == 1:
            func, args, kwargs = (
                aten.scalar_tensor.default,
                (float(args[0]),),
                {"dtype": args[0].dtype},
            )  # torch.tensor(2.0)
        to_node: Any = lambda a: self.node(a) if isinstance(a, Tensor) else a  # noqa: E731
        node = self.graph.call_function(func, map_aggregate(args, to_node), map_aggregate(kwargs, to_node))  # pyrefly: ignore
        node.meta["val"] = result
        if isinstance(result, Tensor):
            self.remember(result, node)
        elif isinstance(result, (tuple, list)):
            for i, part in enumerate(result):
                if isinstance(part, Tensor):
                    item = self.graph.call_function(operator.getitem, (node, i))
                    item.meta["val"] = part
                    self.remember(part, item)
        return result


def _written(func: Any, args: tuple, kwargs: dict) -> list[Tensor]:
    """The arguments that an operation changes."""
    given = dict(zip((spec.name for spec in func._schema.arguments), args, strict=False)) | kwargs
    changed = [spec.name for spec in func._schema.arguments if spec.alias_info is not None and spec.alias_info.is_write]
    return [given[name] for name in changed if isinstance(given.get(name), Tensor)]
