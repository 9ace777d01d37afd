"""What kind of cell a class is, read from its traced step: gated, spiking, or a scan."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from recurra.cell import Cell

INPUTS, UNITS = 3, 4


def is_spiking(kind: type[Cell]) -> bool:
    """Whether the step has a spike: a threshold with a surrogate derivative."""
    return any(node.target is torch.ops.recurra.spike.default for node in _nodes(kind))


def is_gated(kind: type[Cell]) -> bool:
    """Whether a sigmoid of input or state multiplies a value, as itself or as one minus itself."""
    aten = torch.ops.aten
    opened = {aten.sigmoid.default, aten.clamp.default}
    complements = {aten.rsub.Scalar, aten.sub.Tensor}
    for node in _nodes(kind):
        if node.target not in opened or node.meta["val"].dim() < 2:  # a sigmoid of a parameter is no gate
            continue
        users = [*node.users, *(later for user in node.users if user.target in complements for later in user.users)]
        if any(user.target is aten.mul.Tensor and all(isinstance(a, fx.Node) for a in user.args) for user in users):
            return True
    return False


def is_scan(kind: type[Cell]) -> bool:
    """Whether a parallel scan could compute all steps: each unit's states are affine in themselves alone."""
    from recurra.engine.ir.values import Unsupported
    from recurra.engine.plan import affine
    from recurra.engine.plan.planner import plan
    from recurra.engine.trace import trace

    cell = kind(INPUTS, UNITS)
    try:
        planned = plan(cell, trace(cell), train=False, needs_x=False)
    except Unsupported:
        return False
    return affine.is_scan(planned)


def _nodes(kind: type[Cell]) -> Iterator[Any]:
    from recurra.engine.trace import trace

    return iter([node for node in trace(kind(INPUTS, UNITS)).graph.nodes if node.op == "call_function"])
