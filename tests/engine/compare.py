"""One comparison for all engine tests: a scan on the reference and on the backend chosen, values and every gradient."""

from dataclasses import dataclass

import torch
from torch import Tensor

from recurra.cell import TIME, Cell
from recurra.engine import reference
from recurra.engine.dispatch import Scanned, Sequences, choose, scan
from recurra.engine.found_draws import draw_ahead


@dataclass(frozen=True)
class Difference:
    """Relative norm errors against the reference."""

    values: float
    gradients: float
    backend: str


def sequences(cell: Cell, steps: int, batch: int, dtype: torch.dtype, **more: Tensor | None) -> Sequences:
    """Random input, random initial states, masks as the cell draws them; everything that can requires a gradient."""
    x = torch.randn(steps, batch, cell.input_size, dtype=dtype, requires_grad=True)
    state = tuple(
        torch.zeros(spec.shape(batch), dtype=dtype)
        if spec.name == TIME
        else (0.5 * torch.randn(spec.shape(batch), dtype=dtype)).requires_grad_()
        for spec in cell.carried
    )
    masks = {name: mask.detach().clone() for name, mask in draw_ahead(cell, steps, batch, x).items()}
    return Sequences(x, state, masks, **more)


def results(scanned: Scanned) -> list[Tensor]:
    trace = scanned.trace or {}
    return [scanned.y, *scanned.state, *(trace[name] for name in sorted(trace))]


def pulled(cell: Cell, given: Sequences, scanned: Scanned) -> list[Tensor]:
    """Gradients of x, the initial states and all parameters, for cotangents that are the same at every call."""
    values = results(scanned)
    generator = torch.Generator().manual_seed(5)
    cotangents = [torch.randn(v.shape, dtype=torch.float64, generator=generator).to(v.dtype) for v in values]
    pairs = [(v, c) for v, c in zip(values, cotangents, strict=True) if v.requires_grad]
    values, cotangents = [v for v, _ in pairs], [c for _, c in pairs]
    wanted = [given.x, *(s for s in given.state if s.requires_grad), *cell.parameters()]
    found = torch.autograd.grad(values, wanted, cotangents, allow_unused=True)
    return [torch.zeros_like(w) if g is None else g for w, g in zip(wanted, found, strict=True)]


def compare(cell: Cell, given: Sequences, keep_trace: bool = False) -> Difference:
    """How far the chosen backend is from the reference."""
    expected = reference.scan(cell, given, keep_trace)
    found = scan(cell, given, keep_trace)
    if keep_trace:
        assert sorted(found.trace or {}) == sorted(expected.trace or {})
    return Difference(
        worst(results(found), results(expected)),
        worst(pulled(cell, given, found), pulled(cell, given, expected)),
        choose(cell, given, keep_trace).backend,
    )


def worst(found: list[Tensor], expected: list[Tensor]) -> float:
    assert [f.shape for f in found] == [e.shape for e in expected]
    scale = max(e.norm().item() for e in expected) * 1e-3 + 1e-30
    return max((f - e).norm().item() / (e.norm().item() + scale) for f, e in zip(found, expected, strict=True))
