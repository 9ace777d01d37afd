"""A step that reads values through `super()`, objects of libraries, or lists of layers follows their changes."""

import collections
import configparser
import contextvars
import os
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from engine.test_guards import AFTER, BEFORE, Scaled, expected, gradients, made
from torch import Tensor, nn

from recurra.engine.cell_cache import cache_of
from recurra.engine.cpu import compiler
from recurra.engine.dispatch import Sequences, choose

LEVEL: contextvars.ContextVar[float] = contextvars.ContextVar("level", default=BEFORE)


class Options:
    gain = BEFORE


OPTIONS = Options()
REFERENCE = weakref.ref(OPTIONS)


class Base(Scaled):
    def prepare(self) -> None:
        self.level = BEFORE

    def gain(self) -> float:
        return self.level


class ReadsThroughSuper(Base):
    def gain(self) -> float:
        return super().gain()  # the only code that reads `level` is hidden by this one

    def change(self) -> None:
        self.level = AFTER


class ReadsUserDict(Scaled):
    def prepare(self) -> None:
        self.options = collections.UserDict(gain=BEFORE)

    def gain(self) -> float:
        return self.options["gain"]

    def change(self) -> None:
        self.options["gain"] = AFTER


class ReadsChainMap(ReadsUserDict):
    def prepare(self) -> None:
        self.options = collections.ChainMap({}, {"gain": BEFORE})


class ReadsConfiguration(Scaled):
    def prepare(self) -> None:
        self.options = configparser.ConfigParser()
        self.options.read_dict({"cell": {"gain": str(BEFORE)}})

    def gain(self) -> float:
        return self.options.getfloat("cell", "gain")

    def change(self) -> None:
        self.options.set("cell", "gain", str(AFTER))


class ReadsScheduler(Scaled):
    def prepare(self) -> None:
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=BEFORE)
        self.schedules = [torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: AFTER / BEFORE if n else 1.0)]

    def gain(self) -> float:
        return float(self.schedules[0].get_last_lr()[0])

    def change(self) -> None:
        self.schedules[0].optimizer.step()
        self.schedules[0].step()


class ReadsContextVariable(Scaled):
    def gain(self) -> float:
        return LEVEL.get()

    def change(self) -> None:
        LEVEL.set(AFTER)


class ReadsWeakReference(Scaled):
    def gain(self) -> float:
        return REFERENCE().gain  # pyrefly: ignore

    def change(self) -> None:
        OPTIONS.gain = AFTER


class ReadsObjectArray(Scaled):
    def prepare(self) -> None:
        self.rows = np.array([{"gain": BEFORE}], dtype=object)

    def gain(self) -> float:
        return self.rows[0]["gain"]

    def change(self) -> None:
        self.rows[0]["gain"] = AFTER


class ReadsEnvironment(Scaled):
    def gain(self) -> float:
        return float(os.environ.get("RECURRA_TEST_GAIN", BEFORE))

    def change(self) -> None:
        os.environ["RECURRA_TEST_GAIN"] = str(AFTER)


class Times(nn.Module):
    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, value: Tensor) -> Tensor:
        return self.factor * value


class AppendsPart(Scaled):
    def prepare(self) -> None:
        self.parts = nn.Sequential(Times(BEFORE))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return self.parts(torch.tanh(self.a(x, h)))

    def change(self) -> None:
        self.parts.append(Times(AFTER / BEFORE))


class AppendsToList(AppendsPart):
    def prepare(self) -> None:
        self.parts = nn.ModuleList([Times(BEFORE)])

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        value = torch.tanh(self.a(x, h))
        for part in self.parts:
            value = part(value)
        return value


class CountsParameters(Scaled):
    def prepare(self) -> None:
        self.levels = nn.ParameterList([nn.Parameter(torch.ones(()))])

    def gain(self) -> float:
        return AFTER if len(self.levels) > 1 else BEFORE

    def change(self) -> None:
        self.levels.append(nn.Parameter(torch.ones(())))


KINDS = [
    ReadsThroughSuper, ReadsUserDict, ReadsChainMap, ReadsConfiguration, ReadsScheduler, ReadsContextVariable,
    ReadsWeakReference, ReadsObjectArray, ReadsEnvironment, AppendsPart, AppendsToList, CountsParameters,
]  # fmt: skip


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch):
    """Plans run as torch operations: these tests are about what is traced."""
    monkeypatch.setattr(compiler, "find_compiler", lambda: None)
    monkeypatch.setenv("RECURRA_TEST_GAIN", str(BEFORE))
    monkeypatch.setattr(OPTIONS, "gain", BEFORE, raising=False)
    LEVEL.set(BEFORE)


@pytest.mark.filterwarnings("ignore::recurra.EngineWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_a_change_is_seen_by_the_next_call(kind: Any):
    layer, x = made(kind)
    for gain in (BEFORE, AFTER):
        y, wanted = layer(x)[0], expected(layer, x, gain)
        torch.testing.assert_close(y, wanted, rtol=1e-12, atol=1e-14)
        cell = layer.cell_list[0]
        read = [layer.cell_list[0].a.U, layer.cell_list[0].a.W]
        torch.testing.assert_close(
            torch.autograd.grad(y.sin().sum(), read), torch.autograd.grad(wanted.sin().sum(), read)
        )
        if gain == BEFORE:
            cell.change()


@pytest.mark.filterwarnings("ignore::recurra.EngineWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_what_did_not_change_is_not_planned_again(kind: Any):
    layer, x = made(kind)
    layer(x)
    cache = cache_of(layer.cell_list[0])
    layer(x)[0].sum().backward()
    assert cache_of(layer.cell_list[0]) is cache


class Shares(Scaled):
    """One module under two names."""

    def prepare(self) -> None:
        self.first = nn.Linear(4, 4)
        self.second = self.first

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return torch.tanh(self.second(torch.tanh(self.first(self.a(x, h)))))


class CallsWithOtherWeights(Scaled):
    def prepare(self) -> None:
        self.part = nn.Linear(4, 4)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        weights = {"weight": 2 * self.part.weight}
        return torch.func.functional_call(self.part, weights, (torch.tanh(self.a(x, h)),))


class Scripted(Scaled):
    def prepare(self) -> None:
        self.part = torch.jit.script(nn.Linear(4, 4))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return torch.tanh(self.part(self.a(x, h)))


WHY = {Shares: "", CallsWithOtherWeights: "functional_call", Scripted: "torch.jit"}  # the plain loop runs


@pytest.mark.filterwarnings("ignore::recurra.EngineWarning", "ignore:.*torch.jit.script.*:DeprecationWarning")
@pytest.mark.parametrize("kind", WHY)
def test_a_step_is_what_python_says(kind: Any):
    layer, x = made(kind)
    cell, h, ys = layer.cell_list[0], x.new_zeros(2, 4), []
    for x_t in x:
        h = cell.step(x_t, h)
        ys.append(h)
    wanted, y = torch.stack(ys), layer(x)[0]
    torch.testing.assert_close(y, wanted, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(gradients(y, layer), gradients(wanted, layer), rtol=1e-11, atol=1e-13)
    choice = choose(cell, Sequences(x, cell.initial_state(2, x)))
    assert (choice.backend == "reference") is bool(WHY[kind])
    assert WHY[kind] in choice.why


def test_a_function_of_torch_compile_runs_in_a_step_as_it_is_written():
    double = torch.compile(lambda z: 2 * torch.tanh(z), backend="eager")

    class Doubles(Scaled):
        def step(self, x: Tensor, h: Tensor) -> Tensor:
            return double(self.a(x, h))

    double(torch.ones(2))
    layer, x = made(Doubles)
    torch.testing.assert_close(layer(x)[0], expected(layer, x, 2.0), rtol=1e-12, atol=1e-14)
    torch._dynamo.reset()
