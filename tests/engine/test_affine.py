"""States that are affine and elementwise in themselves: which are found, with which a and b; what forbids others."""

import pytest
import torch
from cases import CASES, Case, draw_inputs, draw_states, every_case
from torch import Tensor, tanh

import recurra as rc
from recurra.cell import TIME
from recurra.engine.ir.buffers import BufferRef, Role, X
from recurra.engine.ir.nodes import subgraph
from recurra.engine.ir.values import Unsupported
from recurra.engine.plan.affine import LoopBlock, ScanBlock, describe_scans, find_blocks, why_not_scanned
from recurra.engine.plan.planner import plan
from recurra.engine.plan.program import Plan
from recurra.engine.plan.replay import Evaluator
from recurra.engine.trace import trace

# Every state of the zoo that a scan can compute. All others need a loop.
SCANNED = {
    "min_gru": {"h"},
    "min_lstm": {"h"},
    "focused_rnn": {"h"},
    "t_rnn": {"h"},
    "t_gru": {"h", "v"},
    "t_lstm": {"c", "v"},
    "scrn": {"s"},
    "gru_d": {"v", "s"},
    "phased_lstm": {"clock"},
    "synaptic": {"i"},
    "alpha": {"e", "i"},
    "srm": {"p", "q"},
    "sru": {"c"},
    "qrnn": {"c", "v"},
    "hgrn": {"re", "im"},
    "rg_lru": {"h"},
    "gateloop": {"re", "im"},
    "lru": {"re", "im"},
    "s5": {"re", "im"},
    "s4d": {"re", "im"},
    "mamba": {"s", "v"},
    "linear_transformer": {"S", "z"},
    "mlstm": {"C", "n"},
    "retention": {"S"},
    "gla": {"S"},
    "rwkv6": {"S", "p"},
    "rwkv7": {"p"},
    "fast_weights": set(),
}


def planned(cell: rc.Cell) -> Plan:
    return plan(cell, trace(cell), train=False, needs_x=False)


@every_case
def test_the_states_of_every_cell_that_a_scan_can_compute(case: Case):
    if case.name == "unitary_rnn":  # has no plan
        return
    found = {state for state, why in why_not_scanned(planned(case.cell())).items() if not why and state != TIME}
    assert found == (set() if case.options.get("peepholes") else SCANNED.get(case.name, set()))


def values_of(cell: rc.Cell, blocks: list[ScanBlock], x: Tensor, states: tuple[Tensor, ...], made: Plan) -> dict:
    roots = [n for block in blocks for n in (*block.b, *(a for row in block.a for a in row if a is not None))]
    weights = dict(zip(made.weight_names, made.prologue(cell.weights()), strict=True))
    refs = [BufferRef.state(state.name) for state in cell.carried]
    rings = {ref: [*s.unbind(1)] if s.dim() == 3 else [s] for ref, s in zip(refs, states, strict=True)}
    return Evaluator([*roots, *(p.new for block in blocks for p in block.pieces)], weights)({X: x}, rings)


def check_a_and_b(cell: rc.Cell, x: Tensor, states: tuple[Tensor, ...]) -> None:
    """a and b read nothing of their own block; `a ⊙ h + b` is what the step gives, a is what autograd finds."""
    made = planned(cell)
    blocks = [block for block in find_blocks(made) if isinstance(block, ScanBlock)]
    values = values_of(cell, blocks, x, states, made)
    names = [state.name for state in cell.carried]
    given = [s.clone().requires_grad_(s.dim() == 2) for s in states]

    for block in blocks:
        for piece, row, b in zip(block.pieces, block.a, block.b, strict=True):
            loads = [
                n for n in subgraph([b, *filter(None, row)]) if n.op == "load" and n.attr.buffer.role is Role.STATE
            ]
            assert not any(own.overlaps(load) for own in block.pieces for load in loads)
            total = values[b].expand(len(x), piece.width)
            new = values_of(cell, [block], x, tuple(given), made)[piece.new].expand(len(x), piece.width)
            for other, a in zip(block.pieces, row, strict=True):
                old = given[names.index(other.state)]
                columns = slice(other.offset, other.offset + other.width)
                if a is not None:
                    total = total + values[a] * old[:, columns]
                if old.dim() == 2 and new.requires_grad:
                    (slope,) = torch.autograd.grad(new.sum(), old, retain_graph=True, allow_unused=True)
                    expected = torch.zeros_like(old) if slope is None else slope
                    coefficient = torch.zeros_like(old[:, columns]) if a is None else values[a]
                    torch.testing.assert_close(coefficient.expand_as(old[:, columns]), expected[:, columns])
            torch.testing.assert_close(total, new, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", [case for case in CASES if SCANNED.get(case.name)], ids=str)
def test_a_and_b_of_the_zoo(case: Case):
    cell = case.cell()
    check_a_and_b(cell, draw_inputs(case, batch=3)[0].nan_to_num(), draw_states(cell, 3))


# ---------------------------------------------------------------------------------------------------- spellings


class Spelled(rc.Cell):
    """A cell with two states, whose new values are functions of (gate, value, h, s)."""

    states = ("h", "s")

    def __init__(self, rule):
        super().__init__(3, 4)
        self.z, self.g, self.W, self.rule = self.affine("x"), self.affine("x"), self.affine("h"), rule

    def step(self, x: Tensor, h: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        return self.rule(torch.sigmoid(self.z(x)), self.g(x), h, s, self.W)


def rotated(z: Tensor, g: Tensor, h: Tensor, s: Tensor, W: rc.Cell) -> tuple[Tensor, Tensor]:
    return z * (h * torch.cos(g) - s * torch.sin(g)) + g, z * (h * torch.sin(g) + s * torch.cos(g))


def halves(z: Tensor, g: Tensor, h: Tensor, s: Tensor, W: rc.Cell) -> tuple[Tensor, Tensor]:
    re, im = h.chunk(2, -1)
    cos, sin = z.chunk(2, -1)
    return torch.cat([cos * re - sin * im, cos * im + sin * re], -1) + g, s + h


FOUND = {
    "a mixture": lambda z, g, h, s, W: ((1 - z) * h + z * g, s),
    "a difference": lambda z, g, h, s, W: (h + 0.1 * (g - h), s),
    "lerp": lambda z, g, h, s, W: (torch.lerp(h, g, z), torch.lerp(g, z, s)),
    "addcmul": lambda z, g, h, s, W: (torch.addcmul(g, z, h, value=-2.0), torch.addcdiv(s, g, 2 + z)),
    "where": lambda z, g, h, s, W: (torch.where(g > 0, z * h, 0.5 * h + g), torch.where(z > 0.5, g, s)),
    "several terms": lambda z, g, h, s, W: (-(z * h) * g + h / (1 + z) - (2 - h), s * torch.clamp(g, -1, 1)),
    "reshape": lambda z, g, h, s, W: ((h.reshape(-1, 2, 2) * z.reshape(-1, 2, 2)).flatten(1) + g, s),
    "a chain": lambda z, g, h, s, W: (z * h + g, z * s + tanh(W(h)) * h),
    "after a chain": lambda z, g, h, s, W: (g * torch.tanh(z * s + g) + (1 - g), z * s + g),
    "rotation": rotated,
    "rotation of halves": halves,
}


@pytest.mark.parametrize("spelling", FOUND)
def test_the_spelling_does_not_matter(spelling: str):
    torch.manual_seed(0)
    cell = Spelled(FOUND[spelling]).double()
    assert why_not_scanned(planned(cell)) == {"h": "", "s": ""}
    check_a_and_b(cell, torch.randn(5, 3).double(), (torch.randn(5, 4).double(), torch.randn(5, 4).double()))


def test_blocks_come_in_the_order_in_which_they_can_be_solved():
    cell = Spelled(FOUND["a chain"]).double()
    assert [block.pieces[0].state for block in find_blocks(planned(cell))] == ["h", "s"]
    blocks = find_blocks(planned(Spelled(rotated).double()))
    assert [len(block.pieces) for block in blocks] == [2]
    assert sorted(len(b.pieces) for b in find_blocks(planned(Spelled(halves).double()))) == [1, 2]


FORBIDDEN = {
    "h enters clamp": lambda z, g, h, s, W: (torch.clamp(h, -1, 1) * z, s),
    "h enters tanh": lambda z, g, h, s, W: (tanh(h + g), s),
    "h is multiplied by a value that reads h": lambda z, g, h, s, W: (h * (z - h), s),
    "h enters eq": lambda z, g, h, s, W: (torch.where(h == g, z * h, h), s),
    "h is a divisor": lambda z, g, h, s, W: (g / (2 + h), s),
    "h is multiplied by the matrix W.W": lambda z, g, h, s, W: (W(h), s),
    "units of h are mixed": lambda z, g, h, s, W: (h - h.mean(-1, keepdim=True), s),
    "4 pieces of h read each other": lambda z, g, h, s, W: (h.roll(1, -1) * z, s),
    "h is detached": lambda z, g, h, s, W: (h.detach() * z + g, s),
    "h enters gt": lambda z, g, h, s, W: (torch.where(h > 0, g, z * h), s),
}


@pytest.mark.parametrize("term", FORBIDDEN)
def test_the_term_that_forbids_a_scan_is_named(term: str):
    cell = Spelled(FORBIDDEN[term])
    made = planned(cell)
    reasons = why_not_scanned(made)
    assert reasons["h"].startswith(term)
    assert not reasons["s"]
    assert f"  one step after another: h, as {reasons['h']}" in describe_scans(made)


def test_a_value_named_in_the_step_tells_where_the_term_is():
    blocks = find_blocks(planned(rc.registry()["gru"](3, 4)))
    assert [block.why for block in blocks if isinstance(block, LoopBlock)] == [
        "h is multiplied by the matrix r.W, in r"
    ]
    text = rc.explain(rc.layer("scrn", 3, 4), torch.zeros(5, 2, 3))
    assert "parallel in time: s, affine in the step before, unit by unit" in text


def test_three_states_that_read_each_other_need_the_loop():
    class Ring(rc.Cell):
        states = ("a", "b", "c")

        def __init__(self):
            super().__init__(4, 4)
            self.w = self.vector(fill=0.5)

        def step(self, x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return self.w * b + x, self.w * c, self.w * a

    assert set(why_not_scanned(planned(Ring())).values()) == {"3 pieces of a, b, c read each other"}


def test_a_cell_without_a_plan_says_so():
    with pytest.raises(Unsupported, match="complex"):
        planned(rc.registry()["unitary_rnn"](3, 4))
