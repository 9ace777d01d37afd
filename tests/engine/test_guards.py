"""A step that reads something outside its tensors is planned again when that has changed."""

import dataclasses
import functools
import gc
import types
import weakref
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import recurra as rc
from recurra.engine import guards
from recurra.engine.backend import set_backend
from recurra.engine.cell_cache import cache_of

BEFORE, AFTER = 0.5, 0.9
SETTINGS = types.ModuleType("settings_of_a_user")  # a module of constants
LEVEL = BEFORE
TABLE = {"inner": {"gain": BEFORE}}


def helper() -> float:
    return LEVEL


def default_argument(levels: list = [BEFORE]) -> float:  # noqa: B006
    return levels[0]


class Scaled(rc.Cell):
    """`gain · tanh(U x + W h + b)`; a subclass says where the gain comes from."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")
        self.prepare()

    def prepare(self) -> None:
        pass

    def gain(self) -> float:
        raise NotImplementedError

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return self.gain() * torch.tanh(self.a(x, h))


class ReadsGlobal(Scaled):
    def gain(self) -> float:
        return LEVEL

    def change(self) -> None:
        globals()["LEVEL"] = AFTER


class ReadsGlobalOfHelper(ReadsGlobal):
    def gain(self) -> float:
        return helper()


class ReadsGlobalTable(Scaled):
    def gain(self) -> float:
        return TABLE["inner"]["gain"]

    def change(self) -> None:
        TABLE["inner"]["gain"] = AFTER


class CallsHelper(Scaled):
    def gain(self) -> float:
        return helper()

    def change(self) -> None:
        globals()["helper"] = lambda: AFTER


class ReadsModule(Scaled):
    def prepare(self) -> None:
        SETTINGS.gain = BEFORE

    def gain(self) -> float:
        return SETTINGS.gain

    def change(self) -> None:
        SETTINGS.gain = AFTER


class ReadsDefaultArgument(Scaled):
    def gain(self) -> float:
        return default_argument()

    def change(self) -> None:
        default_argument.__defaults__[0][0] = AFTER


class ReadsClosure(Scaled):
    def prepare(self) -> None:
        gain = BEFORE

        def set_gain(value: float) -> None:
            nonlocal gain
            gain = value

        self.read, self.set_gain = lambda: gain, set_gain

    def gain(self) -> float:
        return self.read()

    def change(self) -> None:
        self.set_gain(AFTER)


class ReadsClassAttribute(Scaled):
    level = BEFORE

    def gain(self) -> float:
        return self.level

    def change(self) -> None:
        type(self).level = AFTER


class HidesClassAttribute(ReadsClassAttribute):
    def change(self) -> None:
        type(self).level = AFTER  # until now, only the base class has it


class ReadsProperty(Scaled):
    @property
    def level(self) -> float:
        return BEFORE

    def gain(self) -> float:
        return self.level

    def change(self) -> None:
        type(self).level = property(lambda self: AFTER)


@dataclasses.dataclass
class Options:
    gain: float = BEFORE

    def read(self) -> float:
        return self.gain


class ReadsObject(Scaled):
    def prepare(self) -> None:
        self.options = Options()

    def gain(self) -> float:
        return self.options.gain

    def change(self) -> None:
        self.options.gain = AFTER


class CallsMethodOfObject(ReadsObject):
    def gain(self) -> float:
        return self.options.read()


class PatchesMethodOfObject(CallsMethodOfObject):
    def change(self) -> None:
        self.options.read = lambda: AFTER


class ReadsNamespace(ReadsObject):
    def prepare(self) -> None:
        self.options = types.SimpleNamespace(gain=BEFORE)


class Slotted:
    __slots__ = ("gain",)

    def __init__(self) -> None:
        self.gain = BEFORE


class ReadsSlot(ReadsObject):
    def prepare(self) -> None:
        self.options = Slotted()


class ReadsByGetattr(ReadsObject):
    def gain(self) -> float:
        return getattr(self.options, "".join(("ga", "in")))


class ReadsByAttrgetter(ReadsObject):
    def prepare(self) -> None:
        self.options, self.read = Options(), attrgetter("gain")

    def gain(self) -> float:
        return self.read(self.options)


class ReadsNestedContainers(Scaled):
    def prepare(self) -> None:
        self.levels = {"all": [0.1, (Options(),)]}

    def gain(self) -> float:
        return self.levels["all"][1][0].gain

    def change(self) -> None:
        self.levels["all"][1][0].gain = AFTER


class ReadsLongList(Scaled):
    def prepare(self) -> None:
        self.levels = [{"gain": [BEFORE] * 500}]

    def gain(self) -> float:
        return self.levels[0]["gain"][300]

    def change(self) -> None:
        self.levels[0]["gain"][300] = AFTER


class ReadsSet(Scaled):
    def prepare(self) -> None:
        self.flags = {"slow", "cold"}

    def gain(self) -> float:
        return AFTER if "fast" in self.flags else BEFORE

    def change(self) -> None:
        self.flags.remove("slow")
        self.flags.add("fast")


class ReadsNumpy(Scaled):
    def prepare(self) -> None:
        self.levels = np.full(3, BEFORE)

    def gain(self) -> float:
        return float(self.levels[1])

    def change(self) -> None:
        self.levels[1] = AFTER


class ReadsPartial(ReadsObject):
    def prepare(self) -> None:
        self.options = Options()
        self.read = functools.partial(Options.read, self.options)

    def gain(self) -> float:
        return self.read()


class PatchesStepOfClass(Scaled):
    def gain(self) -> float:
        return BEFORE

    def change(self) -> None:
        def step(self: Any, x: Tensor, h: Tensor) -> Tensor:
            return AFTER * torch.tanh(self.a(x, h))

        type(self).step = step


class PatchesStepOfInstance(PatchesStepOfClass):
    def change(self) -> None:
        def step(self: Any, x: Tensor, h: Tensor) -> Tensor:
            return AFTER * torch.tanh(self.a(x, h))

        self.step = types.MethodType(step, self)


class PatchesCodeOfStep(PatchesStepOfClass):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return BEFORE * torch.tanh(self.a(x, h))

    def change(self) -> None:
        def step(self: Any, x: Tensor, h: Tensor) -> Tensor:
            return AFTER * torch.tanh(self.a(x, h))

        type(self).step.__code__ = step.__code__


class Part(nn.Module):
    def forward(self, value: Tensor) -> Tensor:
        return BEFORE * value


class PatchesForwardOfPart(Scaled):
    def prepare(self) -> None:
        self.part = Part()

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return self.part(torch.tanh(self.a(x, h)))

    def change(self) -> None:
        self.part.forward = lambda value: AFTER * value


class PatchesForwardOfClass(PatchesForwardOfPart):
    def change(self) -> None:
        Part.forward = lambda self, value: AFTER * value


class PatchesForwardOfLibraryPart(PatchesForwardOfPart):
    def prepare(self) -> None:
        self.part = nn.LeakyReLU(1.0)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return self.part(BEFORE * torch.tanh(self.a(x, h)))

    def change(self) -> None:
        self.part.forward = lambda value: AFTER / BEFORE * value


def kinds(of: type = Scaled) -> list[type]:
    return [kind for direct in of.__subclasses__() for kind in (direct, *kinds(direct))]


KINDS = kinds()


@pytest.fixture(autouse=True)
def _as_written(monkeypatch: pytest.MonkeyPatch):
    """Undo what a change did to this module and its classes."""
    for name in ("LEVEL", "helper"):
        monkeypatch.setitem(globals(), name, globals()[name])
    monkeypatch.setitem(TABLE, "inner", {"gain": BEFORE})
    monkeypatch.setattr(default_argument, "__defaults__", ([BEFORE],))
    for kind in (*KINDS, Part):
        for name in {"step", "level", "forward"} & vars(kind).keys():
            monkeypatch.setattr(kind, name, vars(kind)[name])
    code = PatchesCodeOfStep.step.__code__
    yield
    PatchesCodeOfStep.step.__code__ = code
    for kind in (PatchesStepOfClass, HidesClassAttribute):
        for name in {"step", "level"} & vars(kind).keys():
            delattr(kind, name)


def expected(layer: rc.Recurrent, x: Tensor, gain: float) -> Tensor:
    """The same recurrence by hand."""
    a, h, outputs = layer.cell_list[0].a, x.new_zeros(x.shape[1], 4), []
    for x_t in x:
        h = gain * torch.tanh(x_t @ a.U.t() + h @ a.W.t() + a.b)
        outputs.append(h)
    return torch.stack(outputs)


def made(kind: type) -> tuple[rc.Recurrent, Tensor]:
    layer = rc.Recurrent(kind, 3, 4, dtype=torch.float64)
    return layer, torch.randn(5, 2, 3, dtype=torch.float64)


def gradients(y: Tensor, layer: rc.Recurrent) -> tuple[Tensor, ...]:
    return torch.autograd.grad(y.sin().sum(), list(layer.parameters()))


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_is_seen_by_the_next_call(kind: Any):
    layer, x = made(kind)
    for gain in (BEFORE, AFTER):
        y, wanted = layer(x)[0], expected(layer, x, gain)
        torch.testing.assert_close(y, wanted, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(gradients(y, layer), gradients(wanted, layer), rtol=1e-11, atol=1e-13)
        with torch.no_grad():
            torch.testing.assert_close(layer(x)[0], wanted, rtol=1e-12, atol=1e-14)
            torch.testing.assert_close(layer.step(x[0])[0], wanted[0], rtol=1e-12, atol=1e-14)
        if gain == BEFORE:
            layer.cell_list[0].change()


@torch.no_grad()
def test_a_patched_affine_of_recurras_own_cell_is_called():
    layer, x = rc.layer("rnn", 3, 4, dtype=torch.float64), torch.randn(5, 2, 3, dtype=torch.float64)
    layer(x)
    next(layer.cell_list[0].affines()).forward = lambda x, h: 0.5 * h + 1.0
    h, outputs = x.new_zeros(2, 4), []
    for _ in range(5):
        h = torch.tanh(0.5 * h + 1.0)
        outputs.append(h)
    torch.testing.assert_close(layer(x)[0], torch.stack(outputs), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kind", [ReadsGlobalTable, ReadsNestedContainers, ReadsClosure, PatchesStepOfClass])
def test_a_change_is_seen_under_torch_compile(kind: Any):
    layer, x = made(kind)
    compiled = torch.compile(lambda x: layer(x)[0], fullgraph=True, backend="eager")
    for gain in (BEFORE, AFTER):
        y, wanted = compiled(x), expected(layer, x, gain)
        torch.testing.assert_close(y, wanted, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(gradients(y, layer), gradients(wanted, layer), rtol=1e-11, atol=1e-13)
        layer.cell_list[0].change()
    torch._dynamo.reset()


@pytest.mark.parametrize("kind", [*KINDS, "lstm", "gru", "rnn"])
def test_what_did_not_change_is_not_planned_again(kind: Any, monkeypatch: pytest.MonkeyPatch):
    if isinstance(kind, str):
        layer, x = rc.layer(kind, 3, 4), torch.randn(5, 2, 3)
    else:
        layer, x = made(kind)
    layer(x)
    cache = cache_of(layer.cell_list[0])
    globals()["a_global_that_no_step_reads"] = object()
    for _ in range(3):
        layer(x)[0].sum().backward()
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.sub_(0.01)
    assert cache_of(layer.cell_list[0]) is cache


def test_equal_numbers_need_no_other_trace():
    layer, x = made(ReadsObject)
    layer(x)
    cell = layer.cell_list[0]
    before = cache_of(cell)
    cell.options.gain = float(str(BEFORE))  # another object
    assert cache_of(cell) is not before
    assert cache_of(cell).traced is before.traced


def test_signs_of_zero_and_types_are_changes():
    layer, _ = made(ReadsObject)
    cell = layer.cell_list[0]
    for value, other in ((0.0, -0.0), (1, True), (1, 1.0)):
        cell.options.gain = value
        before = cache_of(cell)
        cell.options.gain = other
        assert cache_of(cell).traced is not before.traced


def test_recurras_own_cells_have_few_guards():
    """Every layer call compares them."""
    guard = cache_of(rc.layer("lstm", 3, 4).cell_list[0]).guards
    assert len(guard.values) <= 6
    assert not guard.objects
    assert not guard.readers
    assert not guard.follows_code


def test_a_cell_that_reads_too_much_runs_on_the_plain_loop(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(guards, "MAX_VALUES", 20)
    layer, x = made(ReadsNestedContainers)
    layer.cell_list[0].levels["more"] = [[number] for number in range(100)]
    y = layer(x)[0]
    torch.testing.assert_close(y, expected(layer, x, BEFORE), rtol=1e-12, atol=1e-14)
    layer.cell_list[0].levels["more"][99][0] = None  # too far away to be seen, and nothing depends on it
    layer.cell_list[0].change()
    torch.testing.assert_close(layer(x)[0], expected(layer, x, AFTER), rtol=1e-12, atol=1e-14)


def test_named_values_follow_as_well():
    class Named(ReadsObject):
        def step(self, x: Tensor, h: Tensor) -> Tensor:
            new = self.gain() * torch.tanh(self.a(x, h))
            return new

    layer, x = made(Named)
    layer(x, return_trace=True)
    layer.cell_list[0].change()
    for backend in ("compiled", "reference"):
        with set_backend(backend):
            y, _, trace = layer(x, return_trace=True)
        torch.testing.assert_close(y, expected(layer, x, AFTER), rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(trace["new"], y)


def test_guards_hold_no_cell_alive():
    layer, x = made(ReadsClosure)
    layer(x)
    find = weakref.ref(layer.cell_list[0])
    del layer
    gc.collect()
    assert find() is None
