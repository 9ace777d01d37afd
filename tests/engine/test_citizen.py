"""The compiled engine among everything else torch does: transforms, compilation, copies, processes."""

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from engine.compare import sequences
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.engine.dispatch import choose


@pytest.fixture
def layer() -> rc.Recurrent:
    return rc.layer("gru", 3, 4).double()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(5, 2, 3, dtype=torch.float64)


@pytest.mark.parametrize("lengths", [None, (5, 3), (5, 5)])
def test_opcheck(layer: rc.Recurrent, lengths: tuple[int, ...] | None):
    cell = layer.cell_list[0]
    given = sequences(cell, 5, 2, torch.float64)
    executor = choose(cell, given).executor
    weights = [w.detach().requires_grad_() for w in executor.prologue(cell.weights())]
    ends = None if lengths is None else torch.tensor(lengths)
    torch.library.opcheck(torch.ops.recurra.scan.default, (executor.key, given.x, list(given.state), [], weights, ends))


def test_first_and_second_derivatives(layer: rc.Recurrent, x: torch.Tensor):
    names = [name for name, _ in layer.named_parameters()]

    def run(x: torch.Tensor, h: torch.Tensor, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x, h))

    with set_backend("compiled"):
        given = [x[:3], torch.randn(1, 2, 4, dtype=torch.float64), *(p.detach() for p in layer.parameters())]
        inputs = [value.clone().requires_grad_() for value in given]
        assert torch.autograd.gradcheck(run, inputs)
        assert torch.autograd.gradgradcheck(run, inputs)


def test_transforms_give_what_the_reference_gives(layer: rc.Recurrent, x: torch.Tensor):
    def number(x: torch.Tensor) -> torch.Tensor:
        return (layer(x)[0] ** 2).sum()

    ones = torch.ones_like(x)
    with set_backend("compiled"):
        slope = torch.autograd.grad(number(x.requires_grad_()), x)[0]
        x = x.detach()
        torch.testing.assert_close(torch.func.jvp(number, (x,), (ones,))[1], slope.sum())
        torch.testing.assert_close(torch.func.jacfwd(number)(x), slope)
        torch.testing.assert_close(torch.func.grad(number)(x), slope)
        torch.testing.assert_close(torch.vmap(number)(torch.stack([x, -x])), torch.stack([number(x), number(-x)]))
        with forward_ad.dual_level():
            dual = number(forward_ad.make_dual(x, ones))
            torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, slope.sum())
        hessian = torch.func.hessian(number)(x)
    with set_backend("reference"):
        torch.testing.assert_close(hessian, torch.func.hessian(number)(x))


def tied(layer: rc.Recurrent, x: torch.Tensor) -> list[torch.Tensor]:
    """One tensor in three places of the cell."""
    cell = layer.cell_list[0]
    cell.z.W = cell.r.W = cell.c.W
    y = layer(x)[0]
    return [y, *(p for p in layer.parameters())]


def fed_back(layer: rc.Recurrent, x: torch.Tensor) -> list[torch.Tensor]:
    """The input is computed from the state it comes with, as where a decoder reads its own output."""
    state = layer(x)[1]
    y = layer(state[..., :3].square(), state)[0]
    return [y, x, *(p for p in layer.parameters())]


@pytest.mark.parametrize("use", [tied, fed_back])
def test_a_tensor_that_comes_by_two_ways_counts_once_for_each_in_second_derivatives(
    use: Callable[[rc.Recurrent, torch.Tensor], list[torch.Tensor]], layer: rc.Recurrent, x: torch.Tensor
):
    x.requires_grad_()

    def results() -> list[torch.Tensor]:
        y, *inputs = use(layer, x)
        slopes = torch.autograd.grad(y.square().sum(), inputs, create_graph=True)
        penalty = torch.stack([slope.square().sum() for slope in slopes]).sum()
        return [*slopes, *torch.autograd.grad(penalty, inputs)]

    with set_backend("compiled"):
        found = results()
    with set_backend("reference"):
        torch.testing.assert_close(found, results())


@pytest.mark.filterwarnings("ignore:.*There is a performance drop")  # torch's own
@pytest.mark.parametrize("lengths", [None, (5, 3)])
def test_many_cotangents_at_once(layer: rc.Recurrent, x: torch.Tensor, lengths: tuple[int, ...] | None):
    def results() -> list[torch.Tensor]:
        y = layer(x, lengths=lengths)[0]
        many = torch.eye(y.numel(), dtype=y.dtype).view(-1, *y.shape)
        slopes = torch.autograd.grad(y, list(layer.parameters()), many, is_grads_batched=True)
        return [*slopes, torch.autograd.functional.jacobian(lambda x: layer(x, lengths=lengths)[0], x, vectorize=True)]

    with set_backend("compiled"):
        found = results()
    with set_backend("reference"):
        torch.testing.assert_close(found, results())


def test_gradients_of_single_samples(layer: rc.Recurrent, x: torch.Tensor):
    parameters = {name: p.detach() for name, p in layer.named_parameters()}

    def loss(parameters: dict[str, torch.Tensor], one: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, parameters, (one[:, None],))[0].sum()

    with set_backend("compiled"):
        found = torch.vmap(torch.func.grad(loss), in_dims=(None, 1))(parameters, x)
        layer(x)[0].sum().backward()
    for name, parameter in layer.named_parameters():
        torch.testing.assert_close(found[name].sum(0), parameter.grad)


@pytest.mark.filterwarnings("ignore")  # torch.compile's own
@pytest.mark.parametrize("lengths", [None, (5, 3)])
def test_torch_compile_sees_one_operation(layer: rc.Recurrent, x: torch.Tensor, lengths: tuple[int, ...] | None):
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    ends = None if lengths is None else torch.tensor(lengths)
    counter = CompileCounterWithBackend("aot_eager")
    fast = torch.compile(layer, fullgraph=True, backend=counter)
    fast(x, lengths=ends)[0].sum().backward()
    found = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    y = layer(x, lengths=ends)[0]
    y.sum().backward()
    torch.testing.assert_close(fast(x, lengths=ends)[0], y)
    torch.testing.assert_close(found, [p.grad for p in layer.parameters()])
    operations = [node.target for graph in counter.graphs for node in graph.graph.nodes if node.op == "call_function"]
    assert operations.count(torch.ops.recurra.scan.default) == counter.frame_count == 1


class Switched(rc.Cell):
    """Branches on a plain attribute."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a, self.rate = self.affine("x", "h"), 1.0

    def step(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return (1.0 - self.rate) * h + self.rate * torch.tanh(self.a(x, h))


@pytest.mark.filterwarnings("ignore")  # torch.compile's own
def test_torch_compile_takes_two_cells_it_has_not_met_and_follows_their_attributes(x: torch.Tensor):
    torch._dynamo.reset()
    lower = rc.Recurrent(type("Lower", (rc.cells.GRU,), {}), 3, 5, dtype=torch.float64)
    upper = rc.Recurrent(Switched, 5, 7, dtype=torch.float64)
    run = lambda x: upper(torch.relu(lower(x)[0]))[0]  # noqa: E731
    fast = torch.compile(run, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(fast(x), run(x))
    upper.cell_list[0].rate = 0.5
    torch.testing.assert_close(fast(x), run(x))


def test_fake_tensors_tell_shapes():
    with FakeTensorMode():
        layer, x = rc.layer("gru", 3, 4), torch.randn(5, 2, 3)
        y = layer(x)[0]
        y.sum().backward()
        assert y.shape == (5, 2, 4)


DEFAULT_DEVICE = """
import torch, recurra as rc
torch.manual_seed(0)
layer, x, lengths = rc.layer("gru", 3, 4).double(), torch.randn(5, 2, 3, dtype=torch.float64), [5, 3]


def results():
    y, ragged = layer(x)[0], layer(x, lengths=lengths)[0]
    with torch.no_grad():
        streamed = layer.step(x[0])[0]
    return [y, ragged, streamed, *torch.autograd.grad(y.sum() + ragged.square().sum(), list(layer.parameters()))]


with torch.device("meta"):
    found = results()
with rc.set_backend("reference"):
    torch.testing.assert_close(found, results())
torch.testing.assert_close(found, results())
"""


def test_another_default_device_is_of_no_consequence():
    """In a process of its own: nothing is prepared there yet, and a pointer into nowhere would end it."""
    subprocess.run([sys.executable, "-c", DEFAULT_DEVICE], check=True, timeout=600)


class Doubling(TorchFunctionMode):
    """Another idea of what a product is."""

    def __init__(self):
        self.seen = []

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        self.seen.append(func)
        result = func(*args, **(kwargs or {}))
        return 2 * result if func is torch.nn.functional.linear else result


def test_a_mode_sees_one_operation_and_leaves_no_mark_on_the_plan():
    torch.manual_seed(0)
    layer, x = rc.Recurrent(type("Unplanned", (rc.cells.GRU,), {}), 3, 11, dtype=torch.float64), torch.randn(5, 2, 3)
    with Doubling() as mode:
        layer(x.double())
    assert mode.seen.count(torch.ops.recurra.scan.default) == 1
    found = layer(x.double())[0]
    with set_backend("reference"):
        torch.testing.assert_close(found, layer(x.double())[0])


def test_copies_and_pickles(layer: rc.Recurrent, x: torch.Tensor):
    y = layer(x)[0]
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        torch.testing.assert_close(other(x)[0], y, rtol=0, atol=0)


def test_two_forward_passes_before_a_backward_pass():
    layer = rc.layer("lstm", 8, 64)
    first, second = torch.randn(2, 40, 30, 8)
    one, other = layer(first)[0], layer(second)[0]
    one.sum().backward()
    other.sum().backward()
    together = [p.grad for p in layer.parameters()]
    layer.zero_grad(set_to_none=True)
    for x in (first, second):
        layer(x)[0].sum().backward()
    torch.testing.assert_close(together, [p.grad for p in layer.parameters()], rtol=0, atol=0)


def test_an_output_changed_in_place_is_noticed(layer: rc.Recurrent, x: torch.Tensor):
    y = layer(x)[0]
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_final_state_may_be_written_to(layer: rc.Recurrent, x: torch.Tensor):
    """As where an episode ends: the sequences that are over start anew, in the state that is carried on."""

    def gradients() -> list[torch.Tensor]:
        y, state = layer(x)
        state[:, 1] = 0.0
        total = y.square().sum() + layer(x, state)[0].square().sum()
        return list(torch.autograd.grad(total, list(layer.parameters())))

    with set_backend("compiled"):
        found = gradients()
    with set_backend("reference"):
        torch.testing.assert_close(found, gradients())


@pytest.mark.parametrize("lengths", [None, (5, 3)])
def test_what_is_kept_may_come_back_laid_out_in_another_way(
    layer: rc.Recurrent, x: torch.Tensor, lengths: tuple[int, ...] | None
):
    def gradients() -> list[torch.Tensor]:
        return list(torch.autograd.grad(layer(x, lengths=lengths)[0].square().sum(), list(layer.parameters())))

    expected = gradients()
    turned = torch.autograd.graph.saved_tensors_hooks(lambda t: t.mT.contiguous() if t.dim() > 1 else t, _turned_back)
    with turned:
        torch.testing.assert_close(gradients(), expected)


def _turned_back(kept: torch.Tensor) -> torch.Tensor:
    return kept.mT if kept.dim() > 1 else kept


def test_parameters_changed_behind_autograds_back_are_seen(layer: rc.Recurrent, x: torch.Tensor):
    before = layer(x)[0]
    for parameter in layer.parameters():
        parameter.data.mul_(0.5)
    with set_backend("reference"):
        expected = layer(x)[0]
    torch.testing.assert_close(layer(x)[0], expected)
    assert not torch.allclose(before, expected)


def test_autocast_and_narrow_floats():
    x = torch.randn(5, 2, 3)
    layer = rc.layer("lstm", 3, 4)
    exact = layer(x)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)[0]
    y.float().sum().backward()
    torch.testing.assert_close(y.float(), exact, rtol=0.02, atol=0.02)
    narrow = layer.bfloat16()
    y, (h, _) = narrow(x.bfloat16())
    assert y.dtype == h.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), exact.detach(), rtol=0.02, atol=0.02)


FORK = """
import os, sys, torch, recurra as rc
from recurra.engine.cpu import compiler
torch.set_num_threads(2)
if sys.argv[1] == "replayed":
    compiler.find_compiler = lambda: None
elif sys.argv[1] == "reference":
    rc.set_backend("reference")
layer, x = rc.layer("lstm", 64, 128).double(), torch.randn(50, 32, 64, dtype=torch.float64)
weights = list(layer.parameters())
y, expected = layer(x)[0], layer(x)[0]
gradients = torch.autograd.grad(expected.sum(), weights)
child = os.fork()
if child == 0:
    same = torch.allclose(layer(x)[0], expected)
    same &= all(map(torch.allclose, torch.autograd.grad(layer(x)[0].sum(), weights), gradients))
    same &= all(map(torch.allclose, torch.autograd.grad(y.sum(), weights), gradients))  # of the parent's graph
    os._exit(0 if same and torch.get_num_threads() == 1 else 1)
assert os.waitpid(child, 0)[1] == 0
assert torch.get_num_threads() == 2
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("engine", ["compiled", "replayed", "reference"])
def test_a_forked_child_runs_forward_and_backward_on_one_thread(engine: str):
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORK, engine], check=True, timeout=600)


FEWER_THREADS = """
import torch
from engine.compare import compare, sequences
from engine.strange_cells import RowNormalised, TwoChainedProducts
torch.manual_seed(0)
torch.set_num_threads(5)
for cell_class in (TwoChainedProducts, RowNormalised):
    for batch in (1, 2, 40):
        cell = cell_class(40, 140).double()
        found = compare(cell, sequences(cell, 60, batch, torch.float64))
        assert found.backend == "compiled"
        assert found.values < 1e-12, (cell_class, batch, found)
        assert found.gradients < 1e-12, (cell_class, batch, found)
"""


@pytest.mark.parametrize("limit", ["1", "2"])
def test_fewer_threads_than_torch_was_told_to_use(limit: str):
    environment = os.environ | {"OMP_THREAD_LIMIT": limit, "PYTHONPATH": str(Path(__file__).parents[1])}
    subprocess.run([sys.executable, "-c", FEWER_THREADS], env=environment, check=True, timeout=600)


def test_views_that_turn_all_signs(layer: rc.Recurrent):
    """The imaginary part of what was conjugated lies in memory with the other sign."""

    def turned(*shape: int) -> torch.Tensor:
        value = torch.randn(*shape, dtype=torch.complex128).conj().imag
        assert value.is_neg()
        return value

    def plain(value: torch.Tensor) -> torch.Tensor:
        return value.resolve_neg().clone()

    x, h, dy = turned(5, 2, 3), turned(1, 2, 4), turned(5, 2, 4)
    with torch.no_grad():
        torch.testing.assert_close(layer(x, h)[0], layer(plain(x), plain(h))[0], rtol=0, atol=0)
        torch.testing.assert_close(layer.step(x[0], h)[0], layer.step(plain(x[0]), plain(h))[0], rtol=0, atol=0)
    ours, theirs = layer(x, h)[0], layer(plain(x), plain(h))[0]
    weights = list(layer.parameters())
    pairs = zip(torch.autograd.grad(ours, weights, dy), torch.autograd.grad(theirs, weights, plain(dy)), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_the_backend_can_be_set_for_a_while():
    layer = rc.layer("lstm", 3, 4)
    given = sequences(layer.cell_list[0], 3, 2, torch.float32)
    assert choose(layer.cell_list[0], given).backend == "compiled"
    with set_backend("reference"):
        assert choose(layer.cell_list[0], given).backend == "reference"
    assert choose(layer.cell_list[0], given).backend == "compiled"
    with pytest.raises(rc.RecurraError, match="one of auto, compiled, reference"):
        set_backend("fast")
