"""The kernels of states that are matrices in Triton's interpreter: values and all gradients equal the plain loop's.

    TRITON_INTERPRET=1 python tests/engine/gpu/interpreted_matrix.py 32 delta_net mlstm HeadSum …

A program of its own, because the interpreter must be enabled before Triton is imported. The first argument is how many
numbers a program holds: few, so that programs share the columns of a matrix.
"""

import sys
import warnings

import torch
from torch import Tensor, nn, sigmoid, tanh

import recurra as rc
from recurra.cell import TIME, Cell
from recurra.engine import reference
from recurra.engine.found_draws import draw_ahead
from recurra.engine.gpu.matrix import layout, runner
from recurra.engine.gpu.matrix.runner import MatrixExecutor
from recurra.engine.plan.planner import plan
from recurra.engine.reference import Sequences
from recurra.engine.restarts import restarting, with_mask
from recurra.engine.traced_step import trace_in_clean_context


def outer(k: Tensor, v: Tensor) -> Tensor:
    return k.unsqueeze(-1) * v.unsqueeze(-2)


def read(S: Tensor, q: Tensor) -> Tensor:
    return (q.unsqueeze(-2) @ S).squeeze(-2)


class ValuesFirst(Cell):
    """(heads, values, keys), by einsum, with keys that are a softmax."""

    states = ("S",)

    def __init__(self, input_size: int):
        super().__init__(input_size, 16, sizes={"S": (2, 8, 5)}, output_size=16)
        self.q, self.k, self.v = self.affine("x", size=10), self.affine("x", size=10), self.affine("x")

    def step(self, x: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
        q, k = (torch.softmax(project(x).unflatten(-1, (2, 5)), -1) for project in (self.q, self.k))
        v = self.v(x).unflatten(-1, (2, 8))
        S = 0.9 * S + torch.einsum("bhv,bhk->bhvk", v - torch.einsum("bhvk,bhk->bhv", S, k), k)
        return tanh((S @ q.unsqueeze(-1)).squeeze(-1)).flatten(1), S


class Squashed(Cell):
    """No heads, a memory that is not affine in itself, and a decay of its own for every number."""

    states = ("S",)

    def __init__(self, input_size: int):
        super().__init__(input_size, 8, sizes={"S": (6, 8)}, output_size=8)
        self.k, self.v = self.affine("x", size=6), self.affine("x")
        self.decay = nn.Parameter(torch.rand(6, 8))

    def step(self, x: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
        k = self.k(x)
        S = tanh(self.decay * S + outer(k, self.v(x)))
        return read(S, k), S


class HeadSum(Cell):
    """Every head writes what all heads together do not yet read."""

    states = ("S",)

    def __init__(self, input_size: int):
        super().__init__(input_size, 8, sizes={"S": (3, 4, 8)}, output_size=8)
        self.k, self.v = self.affine("x", size=12), self.affine("x", size=24)

    def step(self, x: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
        k, v = 0.2 * tanh(self.k(x)).unflatten(-1, (3, 4)), self.v(x).unflatten(-1, (3, 8))
        y = read(S, k).sum(1)
        return y, 0.5 * S + outer(k, v - y.unsqueeze(1))


class TwoMatrices(Cell):
    """A second matrix follows the first one; what they read feeds a gate of the next step."""

    states = ("S", "R", "h")

    def __init__(self, input_size: int):
        super().__init__(input_size, 16, sizes={"S": (2, 4, 8), "R": (2, 4, 8)}, output_size=16)
        self.k, self.v, self.g = self.affine("x", size=8), self.affine("x"), self.affine("x", "h")

    def step(self, x: Tensor, S: Tensor, R: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        k, v = self.k(x).unflatten(-1, (2, 4)), self.v(x).unflatten(-1, (2, 8))
        R = 0.9 * R + outer(k, v)
        S = 0.8 * S + 0.1 * R
        y = (sigmoid(self.g(x, h)).unflatten(-1, (2, 8)) * read(S, k)).flatten(1)
        return y, S, R, y


OWN = {kind.__name__: kind for kind in (ValuesFirst, Squashed, HeadSum, TwoMatrices)}


def made(name: str) -> Cell:
    if name in OWN:
        return OWN[name](5)
    if name == "fast_weights":
        return rc.layer(name, 5, 6).cell_list[0]
    return rc.layer(name, 5, 16, heads=2, key_size=6).cell_list[0]


def check(cell: Cell, ragged: bool, resets: bool, steps: int = 5, batch: int = 3) -> None:
    x = torch.randn(steps, batch, cell.input_size, requires_grad=True)
    states = [
        fresh if spec.name == TIME else (0.3 * torch.randn_like(fresh)).requires_grad_()
        for spec, fresh in zip(cell.carried, cell.initial_state(batch, x), strict=True)
    ]
    lengths = torch.tensor([steps, 2, 0])[:batch] if ragged else None
    given = Sequences(x, tuple(states), draw_ahead(cell, steps, batch, x), lengths)
    if resets:
        starts = torch.zeros(steps, batch, dtype=torch.bool)
        starts[3, 0] = starts[1, 1] = True
        given = with_mask(cell, given._replace(resets=starts))
        cell = restarting(cell)
    expected = reference.scan(cell, given)
    planned = plan(cell, trace_in_clean_context(cell), train=True, needs_x=True)
    executor = MatrixExecutor(planned, torch.float32)
    assert given.state is not None
    hoisted = executor.prologue(cell.weights())
    rest = [given.masks[n] for n in planned.masks], [w.detach().float() for w in hoisted], lengths
    y, *others = executor.forward(x, given.state, *rest)
    finals, kept = others[: len(states)], others[len(states) :]
    pulled = [expected.y, *expected.state]
    torch.testing.assert_close([y, *finals], pulled, rtol=1e-5, atol=1e-5)
    unkept = MatrixExecutor(plan(cell, trace_in_clean_context(cell), train=False, needs_x=False), torch.float32)
    weights = [w.detach().float() for w in unkept.prologue(cell.weights())]
    torch.testing.assert_close(unkept.forward(x, given.state, rest[0], weights, lengths), [y, *finals])

    cotangents = [torch.randn_like(v) if v.requires_grad else None for v in pulled]
    pairs = [(v, c) for v, c in zip(pulled, cotangents, strict=True) if c is not None]
    wanted = [x, *(s for s in given.state if s.requires_grad), *cell.parameters()]
    truth = torch.autograd.grad([v for v, _ in pairs], wanted, [c for _, c in pairs], allow_unused=True)
    found = executor.backward(cotangents, x, given.state, *rest, [y, *kept], True)
    dx, dstates = found[0], found[1 : 1 + len(states)]
    dweights = executor.gradients(found[1 + len(states) :], rest[1])
    through = [(h, d) for h, d in zip(hoisted, dweights, strict=True) if h.requires_grad]
    of_parameters = torch.autograd.grad(
        [h for h, _ in through], list(cell.parameters()), [d for _, d in through], allow_unused=True
    )
    mine = [dx, *(d for d, s in zip(dstates, given.state, strict=True) if s.requires_grad), *of_parameters]
    for a, b in zip(mine, truth, strict=True):
        if b is not None:
            assert a is not None
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()) + 1e-6)


def check_sixteen_bits(cell: Cell, steps: int = 4, batch: int = 2) -> None:
    """Values and all pieces of gradients in bfloat16 are near those in float32."""
    torch.manual_seed(1)
    x, found = torch.randn(steps, batch, cell.input_size), []
    cotangent = torch.randn(steps, batch, cell.output_size)
    for dtype in (torch.float32, torch.bfloat16):
        executor = MatrixExecutor(plan(cell, trace_in_clean_context(cell), train=True, needs_x=True), dtype)
        states = [state.to(dtype) for state in cell.initial_state(batch, x)]
        given = x.to(dtype), states, [], [w.detach().to(dtype) for w in executor.prologue(cell.weights())], None
        y, *others = executor.forward(*given)
        rendered = len(executor.forward_phases.kernels)
        executor.forward(*given)
        assert len(executor.forward_phases.kernels) == rendered
        cotangents = [cotangent.to(dtype), *[None] * len(states)]
        found.append([y, *executor.backward(cotangents, *given, [y, *others[len(states) :]], False)])
    for exact, short in zip(*found, strict=True):
        assert (short.float() - exact).abs().max() <= 0.06 * exact.abs().max() if exact.numel() else True


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message=".*encountered in.*")  # numpy warns of values that where() discards
    layout.TILE, runner.CHUNK = int(sys.argv[1]), 2
    for case in sys.argv[2:]:
        for ragged, resets in ((False, False), (True, False), (True, True)):
            if resets and case not in ("gla", *OWN):
                continue
            torch.manual_seed(0)
            print(case, "ragged" if ragged else "", "with resets" if resets else "", flush=True)
            check(made(case), ragged, resets)
        if case in ("linear_transformer", "rwkv6", "mlstm"):
            check_sixteen_bits(made(case))
