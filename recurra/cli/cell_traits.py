"""What kind of cell a class is, read from its traced step: gated, spiking, or a scan."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from recurra.cell import TIME, Cell

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
    """Whether each unit's states are linear in themselves alone, so that a parallel scan could compute all steps."""
    cell = kind(INPUTS, UNITS).double()
    if any(spec.delays or spec.size != UNITS or spec.name == TIME for spec in cell.carried) or cell.masks:
        return False
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, INPUTS, generator=generator, dtype=torch.float64)

    @torch.no_grad()
    def change(states: torch.Tensor) -> torch.Tensor:
        """New states less those that follow from zero, (S, B, H)."""
        made = []
        for given in (states, torch.zeros_like(states)):
            new = cell.step(x.expand(states.shape[1], -1), *given)
            made.append(torch.stack(new[-len(given) :] if isinstance(new, tuple) else (new,)))
        return made[0] - made[1]

    shape = len(cell.carried), 64, UNITS
    a, b = (3 * torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    linear = torch.allclose(change(a + b), change(a) + change(b), rtol=1e-9, atol=1e-9)
    others = change(a * torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64))[..., 1:]
    return linear and not bool(others.any())


def _nodes(kind: type[Cell]) -> Iterator[Any]:
    from recurra.engine.trace import trace

    return iter([node for node in trace(kind(INPUTS, UNITS)).graph.nodes if node.op == "call_function"])
