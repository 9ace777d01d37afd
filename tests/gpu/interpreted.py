"""The GPU's kernels in Triton's interpreter, for cells named on the command line: equal to the plain loop, or an error.

    TRITON_INTERPRET=1 python tests/gpu/interpreted.py lstm gru Delays …

Triton must hear of its interpreter before it is imported, so this is a program of its own. One program computes all
columns here, for the interpreter runs programs one after another; that programs find each other is tested on a card.
"""

import sys
import warnings

import torch
from engine import strange_cells
from torch import Tensor

import recurra as rc
from recurra.cell import TIME, Cell
from recurra.engine import reference
from recurra.engine.gpu import tiers
from recurra.engine.gpu.run import OnGpu
from recurra.engine.plan import plan
from recurra.engine.reference import Sequences
from recurra.engine.traced import _trace_apart


class Competing(Cell):
    """Units that share one of a row between them: its largest, a sum over it."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a, self.b = self.affine("x", "h"), self.affine("x", "h")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return h + torch.softmax(self.a(x, h), -1) * torch.tanh(self.b(x, h))


def made(name: str) -> Cell:
    if name in rc.registry():
        return rc.layer(name, 5, 6).sheets[0]
    return Competing(5, 6) if name == "Competing" else getattr(strange_cells, name)(5, 6)


def check(cell: Cell, ragged: bool, steps: int = 4, batch: int = 3) -> None:
    x = torch.randn(steps, batch, cell.input_size, requires_grad=True)
    states = [
        fresh if spec.name == TIME else (0.3 * torch.randn_like(fresh)).requires_grad_()
        for spec, fresh in zip(cell.carried, cell.initial_state(batch, x), strict=True)
    ]
    lengths = torch.tensor([steps, 2, 1]) if ragged else None
    masks = cell.draw_masks(steps, batch, x)
    expected = reference.scan(cell, Sequences(x, tuple(states), masks, lengths))
    made = OnGpu(plan(cell, _trace_apart(cell), train=True, needs_x=True), torch.float32)
    hoisted = made.prologue(cell.weights())
    given = [masks[n] for n in made.plan.masks], [w.detach() for w in hoisted], lengths
    with torch.no_grad():
        y, *rest = made.forward(x, states, *given)
    finals, kept = rest[: len(states)], rest[len(states) :]
    torch.testing.assert_close(y, expected.y, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(finals, list(expected.state), rtol=1e-5, atol=1e-5)

    pulled = [expected.y, *(s for s in expected.state if s.requires_grad)]
    cotangents = [torch.randn_like(v) for v in pulled]
    wanted = [x, *(s for s in states if s.requires_grad), *cell.parameters()]
    truth = torch.autograd.grad(pulled, wanted, cotangents, allow_unused=True)
    of_states = iter(cotangents[1:])
    dfinals = [next(of_states) if s.requires_grad else None for s in expected.state]
    with torch.no_grad():
        found = made.backward((cotangents[0], dfinals, []), x, states, *given, (y, [], kept), True)
        dx, dstates = found[0], found[1 : 1 + len(states)]
        dweights = made.gradients(found[1 + len(states) :], given[1])
    through = [(h, d) for h, d in zip(hoisted, dweights, strict=True) if h.requires_grad]
    of_parameters = torch.autograd.grad(
        [h for h, _ in through], list(cell.parameters()), [d for _, d in through], allow_unused=True
    )
    mine = [dx, *(d for d, s in zip(dstates, states, strict=True) if s.requires_grad), *of_parameters]
    for a, b in zip(mine, truth, strict=True):
        if b is not None:
            assert a is not None
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()) + 1e-6)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message=".*encountered in.*")  # numpy's word for what where() drops
    for name in sys.argv[1:]:
        for tier in ("by kernel", "by steps"):
            for ragged in (False, True):
                torch.manual_seed(0)
                print(name, tier, "ragged" if ragged else "", flush=True)
                with tiers.only(tier):
                    check(made(name), ragged)
