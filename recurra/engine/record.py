"""Records the torch operations that a function runs as a torch.fx graph: a small `make_fx`.

torch's `make_fx` imports torch.compile when called, which takes longer than compiling a cell. Reading the value of a
tensor (`if x > 0`, `x.item()`) is an error: the graph would be right for that value only. An error is kept, in case
the function catches it.

The function runs with gradients on, and autograd says what is differentiable. A value that requires no gradient though
its operands do (`detach`, `no_grad`) enters the graph through `aten.detach` wherever a gradient would flow back to it.
A `torch.autograd.Function` becomes a node with its own derivative, see custom_vjp.py.
"""

import operator
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, fx
from torch._C import DisableTorchFunction
from torch.autograd.function import BackwardCFunction
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from .custom_vjp import CustomVjp
from .literals import literal, literal_arguments
from .user_code import Untraceable, location

aten = torch.ops.aten
CONSTANT = (aten.ones_like.default, aten.zeros_like.default, aten.full_like.default)
_MADE_FROM_SHAPES = {*CONSTANT, aten.new_zeros.default, aten.new_ones.default, aten.new_full.default}
_MADE_FROM_SHAPES |= {aten.empty_like.default, aten.new_empty.default, aten.new_empty_strided.default}
_READS = (
    aten._local_scalar_dense.default, aten.equal.default, aten.is_nonzero.default,
    aten.item.default, aten.allclose.default,  # under inference_mode torch does not take them apart
)  # fmt: skip
DIFFERENTIABLE = "differentiable"  # meta key of a node: whether a gradient may flow back through it
LINE = "line"  # meta key of a node: `file:line` of the user's code that made it


class Recorder(TorchDispatchMode):
    """Adds every dispatched operation to the graph."""

    def __init__(self, examples: Sequence[Tensor]):
        super().__init__()
        self.graph = fx.Graph()
        self.nodes: dict[int, fx.Node] = {}
        self.alive: list[Tensor] = []  # an id is unique only while its tensor lives
        self.stopped: dict[fx.Node, fx.Node] = {}  # node → its `detach`
        self.captured: dict[fx.Node, fx.Node] = {}  # in the graph of a `backward`: node of the step → placeholder
        self.resolved: set[fx.Node] = set()  # copies that torch makes below autograd, of conjugates and negatives
        self.custom: list[BackwardCFunction] = []  # autograd.Functions that became nodes
        self.backwards: list[fx.Graph] = []
        self.failure: Untraceable | None = None
        self.pause: Callable[[], AbstractContextManager] = nullcontext  # what watches the step does not watch recording
        for i, example in enumerate(examples):
            node = self.graph.placeholder(f"given_{i}")
            node.meta |= {"val": example, DIFFERENTIABLE: example.requires_grad}
            self.assign(example, node)

    def add_input(self, example: Tensor, after: int) -> None:
        """One more placeholder, the `after`-th one: what a function turns out to read while it runs."""
        placeholders = [node for node in self.graph.nodes if node.op == "placeholder"]
        with self.graph.inserting_after(placeholders[after - 1]):
            node = self.graph.placeholder(f"drawn_{after}")
        node.meta |= {"val": example, DIFFERENTIABLE: False}
        self.assign(example, node)

    def record(self, function: Callable[[], Sequence[Tensor]]) -> fx.Graph:
        """The graph of a function of the examples; `node.meta["val"]` is the value of a node."""
        with self:
            results = function()
        if self.failure is not None:
            raise self.failure
        self.graph.output([self._argument(value) for value in results])
        if self.failure is not None:
            raise self.failure
        for graph in (self.graph, *self.backwards):
            for node in graph.nodes:
                node.meta["val"] = map_aggregate(node.meta.get("val"), _without_history)
        return self.graph

    def fail(self, message: str) -> Untraceable:
        """The error to raise. The first one counts, even if the step catches it."""
        self.failure = self.failure or Untraceable(f"{message} ({location()})")
        return self.failure

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import torch.compile, to disable it here

    def assign(self, tensor: Tensor, node: fx.Node) -> None:
        """From now on `tensor` is the value of `node`."""
        self.nodes[id(tensor)] = node
        self.alive.append(tensor)

    # ------------------------------------------------------------------------------------------ operands

    def _node(self, tensor: Tensor) -> fx.Node:
        """The node of this graph whose value a tensor is. In the graph of a `backward`, a value of the step enters as
        a placeholder."""
        if id(tensor) not in self.nodes:
            raise self.fail(f"reads a tensor {tuple(tensor.shape)} that is no input, state, mask or weight")
        node = self.nodes[id(tensor)]
        if node.graph is self.graph:
            return node
        if node not in self.captured:
            placeholders = [n for n in self.graph.nodes if n.op == "placeholder"]
            with self.graph.inserting_after(placeholders[-1]):
                self.captured[node] = self.graph.placeholder(f"read_{len(placeholders)}")
            self.captured[node].meta = dict(node.meta)
        return self.captured[node]

    def _argument(self, tensor: Tensor) -> fx.Node:
        """The node of an operand, behind a `detach` where autograd would let no gradient pass."""
        node = self._node(tensor)
        if not torch.is_grad_enabled():
            return node
        if tensor.requires_grad:
            self._check_gradient(tensor, node)
            return node
        return self._stop(node) if node.meta[DIFFERENTIABLE] and node not in self.resolved else node

    def _check_gradient(self, tensor: Tensor, node: fx.Node) -> None:
        """Refuse a gradient that the graph does not have."""
        source = tensor.grad_fn
        if tensor._backward_hooks:
            raise self.fail("registers a hook on a tensor")
        if not node.meta[DIFFERENTIABLE] or source is None:
            raise self.fail("makes a tensor require a gradient")
        if isinstance(source, BackwardCFunction) and source not in self.custom:
            raise self.fail(f"calls the autograd.Function {type(source).__name__.removesuffix('Backward')}")

    def _stop(self, node: fx.Node) -> fx.Node:
        if node not in self.stopped:
            self.stopped[node] = self.graph.call_function(aten.detach.default, (node,))
            self.stopped[node].meta = dict(node.meta) | {DIFFERENTIABLE: False}
        return self.stopped[node]

    # ------------------------------------------------------------------------------------------ operations

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        with DisableTorchFunction(), self.pause():
            return self._dispatch(func, args, kwargs or {})

    def _dispatch(self, func: Any, args: tuple, kwargs: dict) -> Any:
        self._check(func, args)
        written = _written_tensors(func, args, kwargs) if func._schema.is_mutable else []
        for tensor in written:
            self._check_write(tensor)
        result = func(*args, **kwargs)
        resolves = func is aten.clone.default and torch.is_grad_enabled() and _is_lazy(args[0])
        if func in (aten.detach.default, aten.detach_.default):  # autograd tells, where the result is used
            self.assign(result, self.nodes[id(args[0])] if id(args[0]) in self.nodes else self._node(args[0]))
            return result
        if func is aten.lift_fresh.default and id(args[0]) not in self.nodes and args[0].numel() == 1:
            constant, dtype = float(args[0]), args[0].dtype  # torch.tensor(2.0)
            func, args, kwargs = aten.scalar_tensor.default, (constant,), {"dtype": dtype}
        elif func is aten.lift_fresh.default and id(args[0]) not in self.nodes:
            with _disable_current_modes():
                numbers = literal_arguments(args[0])
            func, args = (literal, numbers) if numbers is not None else (func, args)
        to_node: Any = lambda a: self._argument(a) if isinstance(a, Tensor) else a  # noqa: E731
        node = self.graph.call_function(func, map_aggregate(args, to_node), map_aggregate(kwargs, to_node))  # pyrefly: ignore
        flows = func not in _MADE_FROM_SHAPES and any(n.meta[DIFFERENTIABLE] for n in node.all_input_nodes)
        node.meta |= {"val": result, DIFFERENTIABLE: flows and _is_real(result), LINE: location()}
        self._assign_results(result, node)
        if resolves:
            self.resolved.add(node)
        for tensor in written if flows else ():
            if any(_share_memory(stopped.meta["val"], tensor) for stopped in self.stopped):
                raise self.fail("writes a differentiable value into one without gradient")
            self._mark_aliases(tensor)
        return result

    def _check(self, func: Any, args: tuple) -> None:
        if func in _READS:
            raise self.fail("reads or branches on the value of a tensor")
        if torch.Tag.nondeterministic_seeded in func.tags:
            how = "declare a dropout mask with self.mask, or other numbers with self.noise"
            raise self.fail(f"draws random numbers with {func}; {how}")
        if torch.Tag.dynamic_output_shape in func.tags and not _has_integer_indices(func, args):
            raise self.fail(f"computes a shape from values, with {func}")

    def _check_write(self, tensor: Tensor) -> None:
        """Refuse an in-place operation on an input, or on a value whose gradient would not follow."""
        if any(n.op == "placeholder" and _share_memory(n.meta["val"], tensor) for n in self.nodes.values()):
            raise self.fail("writes into a weight, a buffer, a state or its input")
        follows = tensor.requires_grad or (tensor._base is not None and tensor._base.requires_grad)
        if torch.is_grad_enabled() and follows:
            return
        if any(other.requires_grad and _share_memory(other, tensor) for other in self.alive):
            raise self.fail("writes into a differentiable value without its gradient")

    def _mark_aliases(self, tensor: Tensor) -> None:
        """What shares memory with a tensor that was written to is differentiable, too."""
        for other in self.alive:
            if id(other) in self.nodes and _share_memory(other, tensor):
                self.nodes[id(other)].meta[DIFFERENTIABLE] = True

    def _assign_results(self, result: Any, node: fx.Node) -> None:
        if isinstance(result, Tensor):
            self.assign(result, node)
        elif isinstance(result, (tuple, list)):
            for i, part in enumerate(result):
                if isinstance(part, Tensor):
                    item = self.graph.call_function(operator.getitem, (node, i))
                    flows = node.meta[DIFFERENTIABLE] and _is_real(part)
                    item.meta |= {"val": part, DIFFERENTIABLE: flows, LINE: node.meta[LINE]}
                    self.assign(part, item)

    # ------------------------------------------------------------------------------------------ autograd.Function

    def add_custom_function(self, function: type, given: Sequence[Any], returned: Any) -> None:
        """`function.apply(*given)` returned: record its `backward` and replace its outputs by ones that have it."""
        results = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        outputs = [value for value in results if isinstance(value, Tensor) and value.requires_grad]
        source = outputs[0].grad_fn if outputs else None
        if self.failure is not None or not outputs or source in self.custom:
            return
        if function.__name__.startswith("GeneratedBackwardFor"):  # of torch.library: the operation itself has it
            self.custom.append(source)  # pyrefly: ignore
            return
        try:
            if not isinstance(source, BackwardCFunction) or any(o.grad_fn is not source for o in outputs):
                raise self.fail(f"calls {function.__name__}, whose outputs have other derivatives than its own")
            self._add_custom_node(function.__name__, source, given, results, outputs)
        except Untraceable:
            pass  # kept as the failure
        except Exception as error:  # of the user's `backward`, on stand-in tensors
            self.fail(f"calls {function.__name__}, whose backward raised {type(error).__name__}: {error}")

    def _add_custom_node(
        self, name: str, source: BackwardCFunction, given: Sequence[Any], results: list, outputs: list[Tensor]
    ) -> None:
        inputs = [v for v in given if isinstance(v, Tensor) and v.requires_grad]
        input_nodes, output_nodes = [self._argument(v) for v in inputs], [self._node(v) for v in outputs]
        self.custom.append(source)
        graph, captured, self.graph, self.captured = self.graph, self.captured, fx.Graph(), {}
        try:
            found = self._record_backward(name, source, given, results, outputs)
            backward, read = self.graph, self.captured
        finally:
            self.graph, self.captured = graph, captured
        values = [*output_nodes, *input_nodes]
        values += [node for node in read if node not in values]
        custom = CustomVjp(name, backward, len(outputs), len(inputs), tuple(map(values.index, read)))
        backward.output(found)  # pyrefly: ignore
        self.backwards.append(backward)
        node = self.graph.call_function(custom.target(), tuple(values))
        node.meta |= {"val": tuple(outputs), DIFFERENTIABLE: True, LINE: location()}
        self._assign_results(tuple(outputs), node)

    def _record_backward(
        self, name: str, source: Any, given: Sequence[Any], results: list, outputs: list[Tensor]
    ) -> list[fx.Node | None]:
        """Run `backward` on stand-in cotangents. Returns a node, or None, per differentiable argument."""
        cotangents = []
        for value in results:
            with _disable_current_modes():
                cotangents.append(torch.zeros_like(value, requires_grad=value.is_floating_point()) * 1.0)
            if any(value is output for output in outputs):
                node = self.graph.placeholder(f"cotangent_{len(self.graph.nodes)}")
                node.meta |= {"val": cotangents[-1], DIFFERENTIABLE: True}
                self.assign(cotangents[-1], node)
        with torch.enable_grad():
            returned = source.apply(*cotangents)
        grads = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        found: list[fx.Node | None] = []
        for value, grad in zip(given, grads, strict=False):
            if isinstance(value, Tensor) and value.requires_grad:
                if grad is not None and (grad.shape != value.shape or grad.dtype != value.dtype):
                    raise self.fail(
                        f"calls {name}, whose backward returns {tuple(grad.shape)} for {tuple(value.shape)}"
                    )
                if grad is not None and not grad.requires_grad:
                    raise self.fail(f"calls {name}, whose backward has no derivative")
                found.append(None if grad is None else self._argument(grad))
        return found


def _written_tensors(func: Any, args: tuple, kwargs: dict) -> list[Tensor]:
    """The tensor arguments that an in-place operation writes to."""
    given = dict(zip((spec.name for spec in func._schema.arguments), args, strict=False)) | kwargs
    changed = [spec.name for spec in func._schema.arguments if spec.alias_info is not None and spec.alias_info.is_write]
    return [given[name] for name in changed if isinstance(given.get(name), Tensor)]


def _has_integer_indices(func: Any, args: tuple) -> bool:
    """Whether it is an index whose result has the shape of the indices. Booleans would select as many as are true."""
    if func is not aten.index.Tensor:
        return False
    return not any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])


def _without_history(value: Any) -> Any:
    """The value without the autograd graph of the step."""
    return value.detach() if isinstance(value, Tensor) else value


def _is_real(value: Any) -> bool:
    """Whether gradients exist for a result: it has numbers with a fraction."""
    parts = value if isinstance(value, (tuple, list)) else (value,)
    return any(isinstance(part, Tensor) and (part.is_floating_point() or part.is_complex()) for part in parts)


def _is_lazy(tensor: Tensor) -> bool:
    """Whether it is a conjugate or a negative, with a gradient, that is still to be computed."""
    return tensor.requires_grad and (tensor.is_conj() or tensor.is_neg())


def _share_memory(one: Tensor, other: Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() != 0
