"""A step with effects, draws or branches runs as Python says: in the plain loop, with a warning that names the line."""

import gc
import logging
import random
import re
import signal

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn, tanh

import recurra as rc
from recurra.engine import backend
from recurra.engine.trace import output_and_states, trace
from recurra.errors import TraceError

STEPS, BATCH = 5, 6
LOG: list[int] = []
COUNT = 0


class Plain(rc.Cell):
    """Everything that a step may touch."""

    total = 0

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.register_buffer("mean", torch.zeros(hidden_size))
        self.n, self.items, self.nested, self.numbers = 0, [], {"deep": [[]]}, np.zeros(3)


class Counter(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        self.n = self.n + 1
        return tanh(self.a(x, h)) * (1 + 0.1 * self.n)


class QuietCounter(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        self.n += 1
        return tanh(self.a(x, h))


class RunningMean(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = tanh(self.a(x, h))
        self.mean = 0.9 * self.mean + 0.1 * z.detach().mean(0)
        return z - self.mean


class RunningMeanInPlace(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = tanh(self.a(x, h))
        self.mean.mul_(0.9).add_(0.1 * z.detach().mean(0))
        return z - self.mean


class Previous(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = tanh(self.a(x, h))
        self.previous = z
        return z


class Appends(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = tanh(self.a(x, h))
        self.items.append(z)
        return z


class AppendsDeep(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        self.nested["deep"][0].append(1)
        return tanh(self.a(x, h))


class WritesToArray(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        self.numbers += 1
        return tanh(self.a(x, h))


class AppendsToGlobal(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        LOG.append(1)
        return tanh(self.a(x, h))


class CountsGlobally(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        global COUNT
        COUNT += 1
        return tanh(self.a(x, h))


class CountsOnTheClass(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        CountsOnTheClass.total += 1
        return tanh(self.a(x, h))


def _enclosed() -> type[rc.Cell]:
    calls = 0

    class CountsOutside(Plain):
        def step(self, x: Tensor, h: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            return tanh(self.a(x, h)) * (1 + 0.1 * calls)

    return CountsOutside


class Prints(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        print("one step")
        return tanh(self.a(x, h))


class Logs(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        logging.getLogger("recurra.test").warning("one step")
        return tanh(self.a(x, h))


class Noise(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)) + 0.1 * torch.randn_like(h)


class Uniform(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)) * torch.rand(1, self.hidden_size, dtype=x.dtype)


class DroppedWeight(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(F.linear(h, F.dropout(self.a.W, 0.5)) + x @ self.a.U.T)


class Bernoulli(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)) * torch.bernoulli(torch.full_like(h, 0.5))


class DrawsInPython(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)) * random.random()


class DrawsInNumPy(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)) * float(np.random.rand())  # noqa: NPY002


class ToList(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)) * self.scale.tolist()  # pyrefly: ignore


class ToNumPy(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)) * float(self.a.W.detach().numpy().max())


class ToArray(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)) * float(np.asarray(self.a.W.detach()).max())


class Item(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)) * self.scale.item()


class Float(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)) * float(self.scale.detach())


class InferenceItem(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = tanh(self.a(x, h))
        with torch.inference_mode():
            largest = (z.abs().max() + 1).item()
        return z / largest


class CaughtFloat(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = tanh(self.a(x, h))
        try:
            return z * float(z.detach().mean())
        except Exception:
            return z


class LargeBatch(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)) if x.shape[0] > 4 else self.a(x, h)


class ExactBatch(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        rows, _ = x.size()
        return tanh(self.a(x, h)) if rows // 2 == BATCH // 2 else self.a(x, h)


class LongBatch(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)) if len(x) > 4 else self.a(x, h)


class LargestOfBatch(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)) / max(x.shape[0], 4)


class BooleanIndex(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = tanh(self.a(x, h))
        return z + z[z > 0].sum()


class AsksForGradients(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)) if torch.is_grad_enabled() else self.a(x, h)


class ReadsRequiresGrad(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = self.a(x, h)
        return tanh(z) if z.requires_grad else z


class AsksForLayout(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)) if x.is_contiguous() else self.a(x, h)


class AsksForStrides(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)) * x.stride(1)


class AsksForOffset(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)) * (1 + int(x.storage_offset()))


class AsksForBase(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)) if x._base is None else self.a(x, h)


CASES = {
    Counter: "changes self.n", QuietCounter: "changes self.n", RunningMean: "changes self.mean",
    RunningMeanInPlace: "writes into a weight", Previous: "changes self.previous", Appends: "changes self.items",
    AppendsDeep: "changes self.nested", WritesToArray: "changes self.numbers", AppendsToGlobal: "changes LOG",
    CountsGlobally: "changes COUNT", CountsOnTheClass: "changes CountsOnTheClass.total", _enclosed(): "changes calls",
    Prints: "calls print", Logs: "writes to a log", Noise: "self.noise", Uniform: "self.noise",
    DroppedWeight: "self.noise", Bernoulli: "self.noise", DrawsInPython: "random number generator",
    DrawsInNumPy: "random number generator", ToList: "tolist", ToNumPy: "numpy", ToArray: "reads the numbers",
    Item: "reads", InferenceItem: "reads", Float: "reads", CaughtFloat: "reads",
    LargeBatch: "batch size", ExactBatch: "batch size",
    LongBatch: "batch size", LargestOfBatch: "batch size", BooleanIndex: "shape from values",
    AsksForGradients: "is_grad_enabled", ReadsRequiresGrad: "requires_grad",
    AsksForLayout: "is_contiguous", AsksForStrides: "stride", AsksForOffset: "storage_offset", AsksForBase: "_base",
}  # fmt: skip


@pytest.fixture(autouse=True)
def every_warning_is_new():
    backend._warned.clear()


def seed() -> None:
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002


def effects(cell: rc.Cell) -> list[object]:
    return [cell.n, len(cell.items), cell.nested, cell.numbers.tolist(), cell.mean.tolist(), len(LOG), COUNT]


def by_hand(layer: rc.Recurrent, x: Tensor) -> Tensor:
    cell, state, outputs = layer.cells[0], torch.zeros(BATCH, 4, dtype=x.dtype), []
    for x_t in x.unbind(0):
        y, state = output_and_states(cell, cell.step(x_t, state))
        outputs.append(y)
    return torch.stack(outputs)


def made(kind: type[rc.Cell]) -> tuple[rc.Recurrent, Tensor]:
    seed()
    x = torch.randn(STEPS, BATCH, 3, dtype=torch.float64)
    return rc.Recurrent(kind, 3, 4).double(), x.transpose(0, 2).contiguous().transpose(0, 2)  # a view, as people pass


@pytest.mark.parametrize("engine", ["auto", "compiled", "reference"])
@pytest.mark.parametrize("kind", CASES)
def test_values_and_effects_are_those_of_python(kind: type[rc.Cell], engine: str):
    (layer, x), (twin, _), states = made(kind), made(kind), []
    LOG.clear()
    globals()["COUNT"], kind.total = 0, 0
    for variable in kind.step.__closure__ or ():
        variable.cell_contents = 0
    for one, run in ((layer, lambda: layer(x)[0]), (twin, lambda: by_hand(twin, x))):
        seed()
        with rc.set_backend(engine):
            if one is layer and engine != "reference":
                said = rf"{kind.__name__} runs on the reference.*{re.escape(CASES[kind])}.*{re.escape(__file__)}:\d+"
                with pytest.warns(rc.EngineWarning, match=said) as warned:
                    y = run()
                assert len(warned) == 1
            else:
                y = run()
        states.append((y, effects(one.cells[0]), kind.total, [v.cell_contents for v in kind.step.__closure__ or ()]))
        LOG.clear()
        globals()["COUNT"], kind.total = 0, 0
        for variable in kind.step.__closure__ or ():
            variable.cell_contents = 0
    torch.testing.assert_close(states[0][0], states[1][0], rtol=0, atol=0)
    assert states[0][1:] == states[1][1:]


def test_explain_names_the_line_after_calls_too():
    layer, x = made(Previous)
    with pytest.warns(rc.EngineWarning):
        layer(x)
    line = Previous.step.__code__.co_firstlineno + 2
    assert f"changes self.previous ({__file__}:{line})" in rc.explain(layer, x)


def test_a_step_that_changes_the_cell_is_traced_once():
    layer, x = made(QuietCounter)
    with pytest.warns(rc.EngineWarning):
        layer(x)
    calls = []
    original = QuietCounter.step
    layer.cells[0].step = lambda *given: (calls.append(1), original(layer.cells[0], *given))[1]
    layer(x)
    assert len(calls) == STEPS


def test_tracing_leaves_no_effects():
    cell = Appends(3, 4)
    with pytest.raises(TraceError, match=r"changes self\.items"):
        trace(cell)
    assert cell.items == []
    with pytest.raises(TraceError, match=r"changes self\.previous"):
        trace(other := Previous(3, 4))
    assert not hasattr(other, "previous")


# ---------------------------------------------------------------------------------------------------- not refused


class LocalList(Plain):
    """Its own list, a nested function that fills it, sizes that are used and not decided by."""

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        parts: list[Tensor] = []

        def keep(value: Tensor) -> None:
            parts.append(value)

        keep(self.a(x, h))
        keep(h.view(x.shape[0], -1))
        assert x.shape[0] == h.shape[0]
        assert h.shape == (x.size(0), 4)
        return tanh(parts[0]) + 0.1 * parts[1] + torch.zeros(len(x), h.size(1), dtype=x.dtype).expand(x.size(0), 4)


class FeatureBranch(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)) if h.shape[-1] > 2 and self.training else h


@pytest.mark.parametrize("kind", [LocalList, FeatureBranch])
@pytest.mark.parametrize("hidden", [2, 3, 4])
def test_what_has_no_effect_compiles(kind: type[rc.Cell], hidden: int):
    if kind is LocalList and hidden != 4:
        return
    layer = rc.Recurrent(kind, 3, hidden).double()
    x = torch.randn(STEPS, BATCH, 3, dtype=torch.float64)
    assert "backend: compiled" in rc.explain(layer, x)


INTERRUPTIONS: list[str] = []


def count_interruption(kind: object, details: object) -> None:
    """A signal handler, or a callback of the garbage collector."""
    global COUNT
    COUNT += 1
    INTERRUPTIONS.append(str(kind))


class Interrupted(Plain):
    """A signal and a collection arrive in the middle of the step."""

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        signal.raise_signal(signal.SIGUSR1)
        gc.collect()
        return tanh(self.a(x, h))


def test_what_interrupts_a_step_is_no_effect_of_it():
    before, handler = COUNT, signal.signal(signal.SIGUSR1, count_interruption)
    gc.callbacks.append(count_interruption)
    INTERRUPTIONS.clear()
    try:
        assert "backend: compiled" in rc.explain(rc.Recurrent(Interrupted, 3, 4), torch.randn(STEPS, BATCH, 3))
    finally:
        gc.callbacks.remove(count_interruption)
        signal.signal(signal.SIGUSR1, handler)
    assert before + len(INTERRUPTIONS) == COUNT  # tracing takes nothing back
    assert {str(signal.SIGUSR1.value), "start", "stop"} <= set(INTERRUPTIONS)
    assert gc.isenabled()


class NamedOutput(rc.Cell):
    """A state with the name that the engine gives to the output."""

    states = ("output:", "c")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", hidden_size)

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        c = 0.5 * c + tanh(self.a(x, h))
        return 3 * c, 2 * h + c, c


@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_a_state_may_be_named_as_the_output(engine: str):
    layer = rc.Recurrent(NamedOutput, 3, 4).double()
    x = torch.randn(STEPS, BATCH, 3, dtype=torch.float64)
    h, c, expected = torch.zeros(BATCH, 4, dtype=x.dtype), torch.zeros(BATCH, 4, dtype=x.dtype), []
    for x_t in x:
        y, h, c = layer.cells[0].step(x_t, h, c)
        expected.append(y)
    with rc.set_backend(engine):
        found, states = layer(x)
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(states[0][0], h, rtol=1e-12, atol=1e-12)
    assert rc.Recurrent(NamedOutput, 3, 4, modifiers=rc.Zoneout(0.2))(x.float())[0].shape == (STEPS, BATCH, 4)
