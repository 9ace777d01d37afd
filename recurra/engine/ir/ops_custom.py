"""Lowers a `torch.autograd.Function`: its value is what `forward` computed, its slope what `backward` multiplies with.

That is the form of straight-through estimators and surrogate gradients: `backward` works element by element and is
linear in the cotangent. Then it is `slope ⊙ cotangent`, and the slope is `backward` at a cotangent of ones.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from ..custom_vjp import CustomVjp
from .nodes import Builder, Node
from .ops_elementwise import BOOLEAN, ELEMENTWISE
from .ops_reduce import Reader
from .values import BATCH, Unsupported, Value

aten = torch.ops.aten
_FILLED = {aten.ones_like.default: 1.0, aten.zeros_like.default: 0.0}
_SHAPED = {*_FILLED, aten.full_like.default, aten.sym_size.int}  # of the cotangent they read the shape alone
_ZERO = (0, 0.0, False)
# Operations that keep the cotangent a factor, by the arguments in which it may stand.
_LINEAR: dict[Any, tuple[int, ...]] = {
    aten.neg.default: (0,),
    aten.clone.default: (0,),
    aten.detach.default: (0,),
    aten.alias.default: (0,),
    aten._to_copy.default: (0,),
    aten.mul.Tensor: (0, 1),
    aten.mul.Scalar: (0,),
    aten.div.Tensor: (0,),
    aten.div.Scalar: (0,),
}
_SUMS = (aten.add.Tensor, aten.sub.Tensor)


def lower_custom_vjp(reader: Reader, custom: CustomVjp, args: tuple, shapes: list[tuple[int, ...]]) -> list[Value]:
    """The outputs of the function, one of them, with its derivative."""
    if custom.outputs != 1:
        raise Unsupported(f"{custom.name}, an autograd.Function with {custom.outputs} outputs")
    results = next(node for node in custom.graph.nodes if node.op == "output").args[0]
    placeholders = [node for node in custom.graph.nodes if node.op == "placeholder"]
    for result, shape in zip(results, shapes[1:], strict=False):
        if result is not None and (shape != shapes[0] or not _is_linear(custom.graph, placeholders[0], result)):
            raise Unsupported(f"{custom.name}, an autograd.Function whose backward is not slope times gradient")
    stopped = reader.elementwise(lambda b, x: b.make("stop", x), args[:1], {})
    value = _with_slopes(reader, custom, placeholders, results, (stopped, *args[1:]))
    if 0 in custom.reads:  # what backward reads of the output has the derivative of backward itself
        value = _with_slopes(reader, custom, placeholders, results, (stopped, *args[1:]), value)
    return [value]


def _with_slopes(
    reader: Reader, custom: CustomVjp, placeholders: list[fx.Node], results: Any, args: tuple, output: Any = None
) -> Value:
    """The value, with the slope by each argument; `output` stands for the value where backward reads it."""
    value: Any = args[0]
    read = [output if place == 0 and output is not None else args[place] for place in custom.reads]
    wanted = [(of, result) for of, result in zip(args[1:], results, strict=False) if result is not None]
    for number, (of, result) in enumerate(wanted):
        slope = _slope(custom, placeholders, result)
        part = reader.elementwise(slope, (0.0 if number else value, of, *read), {})
        value = reader.elementwise(ELEMENTWISE[aten.add.Tensor], (value, part), {}) if number else part
    return value


def _slope(custom: CustomVjp, placeholders: list[fx.Node], result: fx.Node) -> Callable[..., Node]:
    """The lowering of one piece: `surrogate(value, argument, slope)`."""

    def lower(builder: Builder, value: Any, of: Any, *read: Any) -> Node:
        known: dict[fx.Node, Any] = dict(zip(placeholders[1:], read, strict=True)) | {placeholders[0]: 1.0}
        for node in custom.graph.nodes:
            if node.op == "call_function":
                known[node] = _lower(builder, node, known)
        return builder.make("surrogate", *(builder.lift(v) for v in (value, of, known[result])))

    return lower


def _lower(builder: Builder, node: fx.Node, known: dict[fx.Node, Any]) -> Any:
    """One operation of `backward` on the numbers of one unit."""
    args: list[Any] = [known[a] if isinstance(a, fx.Node) else a for a in node.args]
    kwargs = {k: known[v] if isinstance(v, fx.Node) else v for k, v in node.kwargs.items()}
    like = node.meta.get("val")
    if node.target in _FILLED:
        return _FILLED[node.target]
    if node.target in (aten.full_like.default, aten.scalar_tensor.default):
        return float(args[-1])
    if node.target is aten.sym_size.int:
        return BATCH
    table = BOOLEAN if isinstance(like, Tensor) and like.dtype is torch.bool and node.target in BOOLEAN else ELEMENTWISE
    if node.target not in table:
        raise Unsupported(f"{node.target} in the backward of an autograd.Function")
    first, *rest = args
    return table[node.target](builder, builder.lift(first), *rest, **kwargs)


def _is_linear(graph: fx.Graph, cotangent: fx.Node, result: fx.Node) -> bool:
    """Whether a result is a multiple of the cotangent."""
    linear = {cotangent}
    for node in graph.nodes:
        if node.target not in _SHAPED and linear.intersection(node.all_input_nodes) and node.op == "call_function":
            if not _keeps_factor(node, linear):
                return False
            linear.add(node)
    return result in linear


def _keeps_factor(node: fx.Node, linear: set[fx.Node]) -> bool:
    places = [i for i, argument in enumerate(node.args) if isinstance(argument, fx.Node) and argument in linear]
    if node.target in _SUMS:
        return len(places) == 2 and not node.kwargs
    if node.target is aten.where.self:
        return 0 not in places and all(i in places or _is_zero(node.args[i]) for i in (1, 2))
    if node.target is aten.masked_fill.Scalar:
        return places == [0] and node.args[2] in _ZERO
    return len(places) == 1 and places[0] in _LINEAR.get(node.target, ())


def _is_zero(value: Any) -> bool:
    if isinstance(value, fx.Node):
        return value.target is aten.zeros_like.default or (
            value.target is aten.scalar_tensor.default and value.args[0] in _ZERO
        )
    return value in _ZERO
