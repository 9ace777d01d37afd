"""The kernels of scans over time in Triton's interpreter: values and all gradients equal the plain loop's.

    TRITON_INTERPRET=1 python tests/engine/gpu/interpreted_scan.py 4 min_gru sru:70 lru Chain …

A program of its own, because the interpreter must be enabled before Triton is imported. The first argument is how many
steps a chunk has, 0 for a single one; a number behind a name is how many units.
"""

import sys
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn, sigmoid, tanh

import recurra as rc
from recurra.cell import TIME, Cell
from recurra.engine import reference, torch_op
from recurra.engine.found_draws import draw_ahead
from recurra.engine.gpu.runner import GpuExecutor
from recurra.engine.gpu.scan import codegen, run, shape, split
from recurra.engine.gpu.scan_runner import ScanExecutor
from recurra.engine.ir.values import Unsupported
from recurra.engine.plan.planner import plan
from recurra.engine.reference import Sequences
from recurra.engine.restarts import can_restart, restarting, with_mask
from recurra.engine.traced_step import trace_in_clean_context


class Chain(Cell):
    """c by a scan, then h by a scan of what c gives; the decay is any number, and may grow."""

    states = ("c", "h")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a, self.f, self.u = self.affine("x"), self.affine("x"), self.affine("x")

    def step(self, x: Tensor, c: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        c = self.a(x) * c + self.u(x)
        h = torch.lerp(h, tanh(c), sigmoid(self.f(x)))
        return h * c, c, h


class Choice(Cell):
    """Two numbers that turn, a state that nobody needs a step later, one kept by `where`, a product of all."""

    states = ("h", "p", "q", "last")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size, output_size=2)
        self.g, self.out = self.affine("x"), nn.Parameter(torch.randn(2, hidden_size))
        self.angle = nn.Parameter(torch.rand(hidden_size))

    def step(self, x: Tensor, h: Tensor, p: Tensor, q: Tensor, last: Tensor) -> tuple[Tensor, ...]:
        g = self.g(x)
        p, q = (
            torch.cos(self.angle) * p - torch.sin(self.angle) * q + g,
            torch.sin(self.angle) * p + torch.cos(self.angle) * q,
        )
        h = torch.where(g > 0, h, 0.5 * h - tanh(q))
        return (h * p) @ self.out.t() + last.mean(-1, keepdim=True), h, p, q, h + p


class Growing(Cell):
    """A decay whose products no number holds, of a state that stays zero."""

    states = ("h",)

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.u = self.affine("x", bias=False)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return 1e30 * h + self.u(x)


class Many(Cell):
    """More states than one kernel finds the effects of, and one that reads them."""

    states = (*(f"s{i}" for i in range(9)), "h")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.f, self.u, self.angle = self.affine("x"), self.affine("x"), self.vector(fill=0.4)

    def step(self, x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        *old, alone, h = states
        f, u, new = sigmoid(self.f(x)), self.u(x), []
        for i, (p, q) in enumerate(zip(old[::2], old[1::2], strict=True), 1):
            cos, sin = torch.cos(i * self.angle), torch.sin(i * self.angle)
            new += [f * (cos * p - sin * q) + u, f * (sin * p + cos * q)]
        alone = u - 0.7 * alone
        h = f * h + new[1] * new[6] + alone
        return h + new[3], *new, alone, h


class Averaged(Cell):
    """Masks of a sequence and of a step, and the time index."""

    states = ("h",)

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.u, self.f = self.affine("x"), self.affine("x")
        self.mask("kept", "h", 0.3)
        self.mask("seen", "x", 0.3, each="step")

    def step(self, x: Tensor, h: Tensor, *, t: Tensor, kept: Tensor, seen: Tensor) -> Tensor:
        return h + (kept * self.u(x * seen) - h) * sigmoid(self.f(x)) / (t + 1.0)


OWN = {kind.__name__: kind for kind in (Chain, Choice, Many, Averaged, Growing)}


def cell_named(name: str) -> Cell:
    name, _, units = name.partition(":")
    if name in OWN:
        return OWN[name](5, int(units or 6))
    return rc.layer(name, 5, int(units or 6)).cell_list[0]


def executor(cell: Cell, train: bool) -> GpuExecutor:
    """With every named value in training, unless one of them is a constant, which no compiled engine names."""
    step = trace_in_clean_context(cell)
    try:
        planned = plan(cell, step, train=train, needs_x=train, named=train)
    except Unsupported:
        planned = plan(cell, step, train=train, needs_x=train)
    found = (ScanExecutor if planned.gathers else GpuExecutor)(planned, torch.float32)
    assert found.scan is not None, found.why_no_scan
    return found


def check(cell: Cell, steps: int, batch: int, ragged: bool = False, resets: bool = False) -> None:
    x = torch.randn(steps, batch, cell.input_size, requires_grad=True)
    states = [
        fresh if spec.name == TIME else (0.3 * torch.randn_like(fresh)).requires_grad_()
        for spec, fresh in zip(cell.carried, cell.initial_state(batch, x), strict=True)
    ]
    lengths = torch.tensor([steps, steps // 2, 0])[:batch] if ragged else None
    given = Sequences(x, tuple(states), draw_ahead(cell, steps, batch, x), lengths)
    if resets:
        starts = torch.rand(steps, batch) < 0.2
        given = with_mask(cell, given._replace(resets=starts))
        cell = restarting(cell)
    made, expected = executor(cell, train=True), reference.scan(cell, given, keep_trace=True)
    assert expected.trace is not None
    named = (expected.trace[name].flatten(2) for name in made.plan.named)
    pulled = [expected.y, *expected.state, *named]
    masks, hoisted = [given.masks[n] for n in made.plan.masks], made.prologue(cell.weights())
    with torch.no_grad():
        unkept = executor(cell, train=False).forward(x, given.state, masks, hoisted, lengths)
    results = torch_op.scan(made, x, given.state, masks, hoisted, lengths)[: len(pulled)]
    torch.testing.assert_close(list(results), pulled, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(unkept, list(results[: 1 + len(states)]), rtol=1e-6, atol=1e-6)

    cotangents = [torch.randn_like(v) for v in pulled]
    wanted = [x, *(s for s in states if s.requires_grad), *cell.parameters()]

    def gradients(values: list[Tensor]) -> tuple:
        pairs = [(v, c) for v, c in zip(values, cotangents, strict=True) if v.requires_grad]
        return torch.autograd.grad(
            [v for v, _ in pairs], wanted, [c for _, c in pairs], retain_graph=True, allow_unused=True
        )

    for a, b in zip(gradients([*results]), gradients(pulled), strict=True):
        if b is not None:
            assert a is not None
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()) + 1e-6)


@torch.no_grad()
def check_zero(cell: Cell, steps: int, batch: int) -> None:
    """Zero stays zero, and what comes at the end is not lost."""
    made, x = executor(cell, train=False), torch.zeros(steps, batch, cell.input_size)
    x[-1] = 1.0
    states, weights = cell.initial_state(batch, x), made.prologue(cell.weights())
    torch.testing.assert_close(
        made.forward(x, states, [], weights, None)[0], reference.scan(cell, Sequences(x, states)).y
    )


def few_units_of(chunk: int) -> Callable[..., shape.ScanShape]:
    """Four units and a few steps for every program, so that many share a row."""

    def choose(steps: int, batch: int, width: int, *_: int) -> shape.ScanShape:
        units = min(4, 1 << (width - 1).bit_length())
        return shape.ScanShape(units, -(-width // units), chunk, -(-steps // chunk))

    return choose


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message=".*encountered in.*")  # numpy warns of values that where() discards
    codegen.STEPS, run.JOINED_CHUNKS, run.JOINED_UNITS, split.MOST_NUMBERS = 2, 2, 2, 22
    chunk, *cases = sys.argv[1:]
    if int(chunk):
        run.choose_shape = few_units_of(int(chunk))
    check_zero(Growing(5, 3), 40, 2)
    for case in cases:
        for ragged, resets in ((False, False), (True, False), (True, True)):
            torch.manual_seed(0)
            print(case, "ragged" if ragged else "", "with resets" if resets else "", flush=True)
            check(cell_named(case), 7, 3 if ragged else 2, ragged, resets and can_restart(cell_named(case)))
