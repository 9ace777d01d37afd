"""The contract of tracing: a stated, small set of operations, in graphs that compute what step computes."""

import operator

import pytest
import torch
from cases import Case, draw_inputs, draw_states, sampled_case
from helpers import assert_close
from torch import Tensor, fx, tanh

import recurra as rc
from recurra.cell import TIME
from recurra.engine.operations import MEANING
from recurra.engine.trace import OUTPUT, Step, decompose, output_and_states, trace
from recurra.errors import TraceError

aten = torch.ops.aten

# The contract with the compiled engines: what a step of any registered cell, lowered, may consist of.
PRODUCTS = {aten.linear.default}
FUNCTIONS = {
    aten.abs.default, aten.add.Tensor, aten.clamp.default, aten.div.Tensor, aten.exp.default, aten.log1p.default,
    aten.maximum.default, aten.minimum.default, aten.mul.Tensor, aten.neg.default, aten.reciprocal.default,
    aten.relu.default, aten.sigmoid.default, aten.sub.Tensor, aten.tanh.default,
}  # fmt: skip
CHOICES = {
    aten.eq.Scalar, aten.eq.Tensor, aten.gt.Scalar, aten.where.self, aten.new_zeros.default, aten.remainder.Tensor,
    aten.sum.dim_IntList, aten.scalar_tensor.default, aten.lt.Scalar, aten.isnan.default, aten.ones_like.default,
    aten.zeros_like.default, torch.ops.recurra.spike.default, aten.amax.default, aten.detach.default, aten.view.default,
    aten._softmax.default, aten.alias.default, aten.slice.Tensor, aten.unsqueeze.default, aten.remainder.Scalar,
}  # fmt: skip
JOINS = {aten.cat.default}
COMPLEX = {  # what the unitary cell needs beside those
    aten._conj.default, aten._fft_c2c.default, aten.clone.default, aten.complex.default, aten.index.Tensor,
    aten.ones_like.default, aten.polar.default, aten.scalar_tensor.default, aten.select.int, aten.split.Tensor,
    aten.sum.dim_IntList, aten.view_as_real.default,
}  # fmt: skip
MATRICES = {  # what the cells with a matrix memory need
    aten.bmm.default, aten.expand.default, aten._unsafe_view.default, aten.squeeze.dim, aten.sym_size.int,
    aten.expm1.default, aten.permute.default, aten.transpose.int, aten.view.default, aten.linalg_vector_norm.default,
    aten.clamp_min.default, aten.clamp.default, aten.select.int, aten.clone.default, aten.elu.default,
    aten.split.Tensor, aten.cos.default, aten.sin.default, aten.var_mean.correction, aten.rsqrt.default,
}  # fmt: skip
SCANS = {  # what the cells with a linear recurrence need
    aten.cos.default, aten.sin.default, aten.expm1.default, aten.sqrt.default, aten.ge.Scalar, aten.select.int,
    aten.sym_size.int,
}  # fmt: skip
LOWERED = PRODUCTS | FUNCTIONS | CHOICES | JOINS | SCANS


def operations(graph: fx.Graph) -> set:
    sizes = operator.getitem, operator.mul
    return {n.target for n in graph.nodes if n.op == "call_function" and n.target not in sizes}


def given(case: Case, cell: rc.Cell, step: Step, batch: int) -> list[Tensor]:
    """Random values for the placeholders of the traced step: x and states, then weights."""
    values = {"x": draw_inputs(case, 1, batch)[0]}
    for spec, state in zip(cell.carried, draw_states(cell, batch), strict=True):
        views = {f"{spec.name}[{k}]": state[:, k - 1] for k in spec.delays} if spec.delays else {spec.name: state}
        values |= views
    weights = cell.weights()
    return [values[name] for name in step.inputs] + [weights[name].detach() for name in step.weights]


def stepped(cell: rc.Cell, step: Step, inputs: list[Tensor]) -> list[Tensor]:
    """`[output, *states]` of the cell's own step on the same inputs."""
    values = dict(zip(step.inputs, inputs, strict=False))
    carried = [spec for spec in cell.carried if spec.name != TIME]
    rows = [tuple(values[f"{s.name}[{k}]"] for k in s.delays) if s.delays else values[s.name] for s in carried]
    states = [spec.with_axes(row) for spec, row in zip(carried, rows, strict=True)]
    clock = {TIME: values[TIME]} if TIME in values else {}
    return output_and_states(cell, cell.step(values["x"], *states, **clock))


def test_every_stated_operation_has_a_meaning():
    assert set(MEANING) >= LOWERED | COMPLEX


@sampled_case
def test_the_graph_and_its_lowering_compute_the_step_for_any_batch(case: Case):
    cell = case.cell()
    step = trace(cell)
    lowered = decompose(step)
    assert operations(step.graph) <= set(MEANING)
    extra = {"unitary_rnn": COMPLEX}.get(case.name, MATRICES if any(spec.axes for spec in cell.carried) else set())
    assert operations(lowered.graph) <= LOWERED | extra
    for batch in (1, 2, 5):
        inputs = given(case, cell, step, batch)
        expected = stepped(cell, step, inputs)
        for graph in (step, lowered):
            for value, wanted in zip(graph.function()(*inputs), expected, strict=False):
                assert_close(value, wanted.detach())


@sampled_case
def test_a_step_reads_every_weight_and_names_every_state(case: Case):
    cell = case.cell()
    step = trace(cell)
    assert set(step.weights) == set(cell.weights()) - {"h_0"}
    assert step.outputs == (OUTPUT, *(spec.name for spec in cell.carried if spec.name != TIME))
    assert trace(cell) is step


# ---------------------------------------------------------------------------------------------------- what is refused


class Plain(rc.Cell):
    """A cell to be spoiled by the tests."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")


class BranchesOnBatch(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)) if x.shape[0] > 2 else self.a(x, h)


class ReadsAnotherStateForThree(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        a, b = tanh(h), tanh(self.a(x, h))
        return a + a if x.shape[0] > 2 else a + b


class FoldsTheBatch(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)) * (x.shape[0] ** 2)


class BranchesOnAValue(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)) if h.sum() > 0 else h


class ReadsAValue(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return h * x.max().item()


@pytest.mark.parametrize("spoiled", [BranchesOnBatch, ReadsAnotherStateForThree, FoldsTheBatch])
def test_a_step_that_looks_at_the_batch_size_is_refused(spoiled: type[rc.Cell]):
    with pytest.raises(TraceError, match=r"2 sequences|the batch size"):
        trace(spoiled(3, 4))


@pytest.mark.parametrize("spoiled", [BranchesOnAValue, ReadsAValue])
def test_a_step_that_looks_at_a_value_is_refused(spoiled: type[rc.Cell]):
    with pytest.raises(TraceError, match=f"{spoiled.__name__}.*branches on the value"):
        trace(spoiled(3, 4))


class ReturnsTooMany(Plain):
    def step(self, x: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        return h, h, h


class ReturnsTooFew(Plain):
    states = ("h", "c", "n")

    def step(self, x: Tensor, h: Tensor, c: Tensor, n: Tensor) -> tuple[Tensor, ...]:
        return h, c


class ReturnsNothing(Plain):
    def step(self, x: Tensor, h: Tensor) -> None:
        return None


@pytest.mark.parametrize("spoiled", [ReturnsTooMany, ReturnsTooFew, ReturnsNothing])
def test_a_wrong_number_of_states_is_named(spoiled: type[rc.Cell]):
    cell = spoiled(3, 4)
    message = rf"^{spoiled.__name__}.step returned \d values, expected the {len(cell.states)} new states"
    with pytest.raises(TraceError, match=message):
        trace(cell)
    with pytest.raises(TraceError, match=message):
        rc.Recurrent(spoiled, 3, 4)(torch.randn(2, 2, 3))


class ReturnsWideState(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return torch.cat([h, x], -1)


class ReturnsOneNumber(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)).sum(-1)


class ReturnsNoBatch(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)).sum(0)


class ReturnsWideOutput(Plain):
    def step(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cat([h, x], -1), tanh(self.a(x, h))


@pytest.mark.parametrize(
    ("spoiled", "said"),
    [
        (ReturnsWideState, r"h as \(B, 7\), expected \(B, 4\)$"),
        (ReturnsOneNumber, r"h as \(B\), expected \(B, 4\)$"),
        (ReturnsNoBatch, r"h as \(B\), expected \(B, 4\)$"),
        (ReturnsWideOutput, r"output as \(B, 7\), expected \(B, 4\); .* initialise it with output_size=7$"),
    ],
)
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_wrong_shape_is_named(spoiled: type[rc.Cell], said: str, backend: str):
    with rc.set_backend(backend), pytest.raises(TraceError, match=rf"^{spoiled.__name__}.step returned {said}"):
        rc.Recurrent(spoiled, 3, 4)(torch.randn(1, 2, 3))


def test_a_step_may_use_the_batch_size_itself():
    class MakesZeros(Plain):
        def step(self, x: Tensor, h: Tensor) -> Tensor:
            return tanh(self.a(x, h)) + torch.zeros(x.shape[0], 4, dtype=x.dtype)

    cell = MakesZeros(3, 4).double()
    step, x, h = trace(cell), torch.randn(7, 3).double(), torch.randn(7, 4).double()
    results = step.function()(x, h, *(cell.weights()[name] for name in step.weights))
    assert_close(results[0], cell.step(x, h))
