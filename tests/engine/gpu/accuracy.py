"""Helpers of the GPU tests: values and gradients of a scan on a named engine, and their error against float64."""

import re

import torch
from torch import Tensor

import recurra as rc
from recurra.cell import TIME, Cell
from recurra.engine.backend import set_backend
from recurra.engine.dispatch import Sequences, choose, scan
from recurra.engine.found_draws import draw_ahead

Named = dict[str, Tensor]


def layer(name: str = "lstm", dtype: torch.dtype = torch.bfloat16, **options: object) -> rc.Recurrent:
    """A layer on the card that the GPU engine takes."""
    torch.manual_seed(0)
    model = rc.layer(name, 32, 64, **options).cuda().to(dtype)
    assert_compiled(model, torch.zeros(3, 2, 32, device="cuda", dtype=dtype))
    return model


def assert_compiled(model: rc.Recurrent | Cell, x: Tensor) -> None:
    """Every cell of a layer runs on the compiled engine for this input."""
    backends = re.findall(r"backend: (\w+)", rc.explain(model, x))
    assert backends
    assert set(backends) == {"compiled"}


def plain(model: rc.Recurrent, x: Tensor, **arguments: Tensor) -> Tensor:
    """The layer's output on the plain loop."""
    with rc.set_backend("reference"):
        return model(x, **arguments)[0]


def assert_same_bits(cell: Cell, runs: int) -> None:
    """Repeated runs on the same numbers give identical results."""
    given = drawn(cell, 50, 40)
    _, first = results(cell, given, "auto")
    for _ in range(runs):
        ran, again = results(cell, given, "auto")
        assert ran == "compiled"
        assert all(torch.equal(first[name], again[name]) for name in first)


def drawn(cell: Cell, steps: int, batch: int, lengths: Tensor | None = None) -> Sequences:
    weight = next(cell.parameters())
    x = torch.randn(steps, batch, cell.input_size, device=weight.device, dtype=weight.dtype)
    states = tuple(  # sLSTM's normaliser n is positive, and what is divided by it must not be noise
        fresh if spec.name == TIME else 1 + fresh.abs() if spec.name == "n" else 0.3 * torch.randn_like(fresh)
        for spec, fresh in zip(cell.carried, cell.initial_state(batch, x), strict=True)
    )
    return Sequences(x, states, draw_ahead(cell, steps, batch, x), lengths)


def results(cell: Cell, given: Sequences, backend: str) -> tuple[str, Named]:
    """(the backend that ran, y, final states and every gradient by name)."""
    x = given.x.detach().requires_grad_()
    states = tuple(
        s.detach().requires_grad_(spec.name != TIME) for s, spec in zip(given.state, cell.carried, strict=True)
    )
    asked = Sequences(x, states, given.masks, given.lengths)
    with set_backend(backend):
        ran, out = choose(cell, asked).backend, scan(cell, asked)
    found = {"y": out.y} | {f"final {s.name}": v for s, v in zip(cell.carried, out.state, strict=True)}
    pulled = [v for v in found.values() if v.requires_grad]
    generator = torch.Generator().manual_seed(3)
    cotangents = [torch.randn(v.shape, generator=generator).to(v.device, v.dtype) for v in pulled]
    names = ["x", *(f"initial {s.name}" for s in cell.carried), *(n for n, _ in cell.named_parameters())]
    wanted = [x, *states, *cell.parameters()]
    asked_for = [(n, w) for n, w in zip(names, wanted, strict=True) if w.requires_grad]
    gradients = torch.autograd.grad(pulled, [w for _, w in asked_for], cotangents, allow_unused=True)
    found |= {f"d {n}": g for (n, _), g in zip(asked_for, gradients, strict=True) if g is not None}
    return ran, {name: value.detach() for name, value in found.items()}


def inferred(cell: Cell, given: Sequences) -> Named:
    """y and final states without gradients."""
    with torch.no_grad():
        out = scan(cell, given)
    return {"y": out.y} | {f"final {s.name}": v for s, v in zip(cell.carried, out.state, strict=True)}


def in_float64(given: Sequences) -> Sequences:
    masks = {name: mask.double() for name, mask in given.masks.items()}
    return Sequences(given.x.double(), tuple(s.double() for s in given.state), masks, given.lengths)


def error(found: Tensor, truth: Tensor) -> float:
    """The norm of the difference, relative to that of the truth."""
    return float((found.double() - truth).norm() / truth.norm().clamp(min=1e-30))
