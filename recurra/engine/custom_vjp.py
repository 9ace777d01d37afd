"""A `torch.autograd.Function` inside a step: values from recorded operations, derivative from a recorded `backward`.

In the graph of a step it is one node whose target is a function `(*outputs, *values) → outputs`: the outputs as
`forward` computed them, but with the derivative of `backward`. `values` are the differentiable arguments of the
function, then whatever else `backward` reads.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx


@dataclass(frozen=True, eq=False)
class CustomVjp:
    """The recorded `backward` of an autograd.Function.

    Placeholders of `graph`: a cotangent per output, then a value per entry of `reads`. Its results: a cotangent, or
    None, per differentiable argument.
    """

    name: str  # of the autograd.Function
    graph: fx.Graph
    outputs: int
    inputs: int
    reads: tuple[int, ...]  # places in (*outputs, *values)

    def target(self) -> Callable[..., tuple[Tensor, ...]]:
        """The function that stands in the graph. Its name holds a hash of `backward`: graphs are compared as text."""
        text = f"{self.name} {self.outputs} {self.inputs} {self.reads} {self.graph}"
        pull = fx.GraphModule(torch.nn.Module(), _without_meta(self.graph)).forward

        def custom_vjp(*tensors: Tensor) -> tuple[Tensor, ...]:
            return _CustomVjp.apply(self, pull, *tensors)  # pyrefly: ignore

        custom_vjp.__name__ = custom_vjp.__qualname__ = (
            f"{self.name}_{hashlib.sha256(text.encode()).hexdigest()[:12]}".replace("<", "").replace(">", "")
        )
        custom_vjp.custom = self  # pyrefly: ignore
        return custom_vjp


def custom_vjp_of(node: fx.Node) -> CustomVjp | None:
    """The recorded `backward` that a node stands for, or None."""
    return getattr(node.target, "custom", None) if node.op == "call_function" else None


def surrogate(value: Tensor, of: Tensor, slope: Tensor) -> Tensor:
    """`value`, with the derivative `slope` by `of` and no other."""
    return _Surrogate.apply(*torch.broadcast_tensors(value, of, slope))  # pyrefly: ignore


def _without_meta(graph: fx.Graph) -> fx.Graph:
    """A copy that keeps no stand-in tensors alive."""
    copy = fx.Graph()
    copy.output(copy.graph_copy(graph, {}))
    for node in copy.nodes:
        node.meta = {}
    return copy


class _CustomVjp(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(custom: CustomVjp, pull: Callable, *tensors: Tensor) -> tuple[Tensor, ...]:  # pyrefly: ignore
        return tuple(value.clone() for value in tensors[: custom.outputs])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
        ctx.custom, ctx.pull = inputs[:2]
        ctx.save_for_backward(*output, *inputs[2 + ctx.custom.outputs :])

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple:
        custom, saved = ctx.custom, ctx.saved_tensors
        found = ctx.pull(*cotangents, *(saved[place] for place in custom.reads))
        read = len(saved) - custom.outputs - custom.inputs
        return None, None, *[None] * custom.outputs, *found, *[None] * read


class _Surrogate(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(value: Tensor, of: Tensor, slope: Tensor) -> Tensor:  # pyrefly: ignore
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple:  # pyrefly: ignore
        (slope,) = ctx.saved_tensors
        return None, cotangent * slope, None
