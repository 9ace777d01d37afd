"""The first call of a new plan is compared with the plain loop; a plan that differs is not used."""

import copy
import dataclasses
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakValueDictionary

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import recurra as rc
from recurra.engine import backend, dispatch, executors
from recurra.engine.backend import EngineWarning, set_backend
from recurra.engine.cell_cache import cache_of
from recurra.engine.cpu import compiler
from recurra.engine.ir.nodes import TABLE
from recurra.errors import OptionError


@pytest.fixture(autouse=True)
def _first_calls_are_checked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(backend._setting, "check", "1")
    monkeypatch.setattr(backend, "_warned", set())
    monkeypatch.setattr(executors, "_alive", WeakValueDictionary())  # graphs of torch.compile keep theirs for good
    rc.clear_caches()
    yield
    gc.collect()
    rc.clear_caches()


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The answers of all checks so far, of this thread alone: another test's may still be running."""
    answers: list[str | None] = []
    find, here = dispatch.find_disagreement, threading.get_ident()

    def counted(*given: Any) -> str | None:
        answer = find(*given)
        if threading.get_ident() == here:
            answers.append(answer)
        return answer

    monkeypatch.setattr(dispatch, "find_disagreement", counted)
    return answers


def layer(name: str = "rnn", **options: Any) -> rc.Recurrent:
    return rc.layer(name, 3, 5, **options)


def flat(results: Any) -> list[Tensor]:
    return [results] if isinstance(results, Tensor) else [t for part in results for t in flat(part)]


def replace_rule(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    monkeypatch.setitem(TABLE, "tanh", dataclasses.replace(TABLE["tanh"], **changes))


def wrong_code(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_rule(monkeypatch, cpp="splat(0.999) * tanh_({0})")


def wrong_derivative(monkeypatch: pytest.MonkeyPatch) -> None:
    right = TABLE["tanh"].vjp
    replace_rule(monkeypatch, vjp=lambda node, g: tuple(d * 1.001 for d in right(node, g)))


# ---------------------------------------------------------------------------------------------------- wrong plans


@pytest.mark.parametrize("make_wrong", [wrong_code, wrong_derivative])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("lengths", [None, [6, 2, 4]], ids=["dense", "ragged"])
def test_a_wrong_plan_is_not_used(
    make_wrong: Callable, dtype: torch.dtype, lengths: Any, monkeypatch: pytest.MonkeyPatch
):
    make_wrong(monkeypatch)
    model, x = layer(dtype=dtype), torch.randn(6, 3, 3, dtype=dtype)
    with pytest.warns(EngineWarning, match=r"RNN runs on the plain loop.*report it.*RECURRA_CHECK=0"):
        found = model(x, lengths=lengths)
    again = model(x, lengths=lengths)  # a second warning would be an error
    with set_backend("reference"):
        wanted = model(x, lengths=lengths)
    for results in (found, again):
        grads = torch.autograd.grad(results[0].sum(), list(model.parameters()))
        expected = torch.autograd.grad(wanted[0].sum(), list(model.parameters()), retain_graph=True)
        assert all(map(torch.equal, flat((results, grads)), flat((wanted, expected))))
    choice = dispatch.choose(model.cell_list[0], dispatch.Sequences(x, None))
    assert choice.backend == "reference"
    assert "gave other numbers" in choice.why


@torch.no_grad()
def test_a_wrong_step_is_not_used(monkeypatch: pytest.MonkeyPatch):
    wrong_code(monkeypatch)
    model, x, state = layer(), torch.randn(2, 3), torch.randn(1, 2, 5)
    with pytest.warns(EngineWarning, match="plain loop"):
        found = model.step(x, state)
    with set_backend("reference"):
        wanted = model.step(x, state)
    assert all(map(torch.equal, flat((found, model.step(x, state))), flat((wanted, wanted))))


def test_a_wrong_plan_without_a_compiler_is_not_used(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compiler, "find_compiler", lambda: None)
    monkeypatch.setattr(executors, "warn_once", lambda message: None)
    replace_rule(monkeypatch, torch=lambda value: 0.999 * torch.tanh(value))
    model, x = layer(dtype=torch.float64), torch.randn(6, 3, 3, dtype=torch.float64)
    with pytest.warns(EngineWarning, match="gave other numbers"):
        found = model(x)
    with set_backend("reference"):
        assert torch.equal(found[0], model(x)[0])


def test_a_wrong_plan_is_used_if_nobody_wants_to_know(monkeypatch: pytest.MonkeyPatch, checks: list):
    monkeypatch.setitem(backend._setting, "check", "0")
    wrong_code(monkeypatch)
    model, x = layer(), torch.randn(6, 3, 3)
    found = model(x)[0]
    with set_backend("reference"):
        assert not torch.allclose(found, model(x)[0], rtol=1e-4)
    assert not checks


# ---------------------------------------------------------------------------------------------------- right plans


class Noisy(rc.Cell):
    """Reads everything that a call can hold."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size, delays={"h": (1, 3)})
        self.a = self.affine("x", "h[1]", "h[3]")
        self.mask("m", "h", 0.5, each="step")
        self.mask("k", "h", 0.5)
        self.noise("n", "h")

    def step(self, x: Tensor, h: tuple, *, t: Tensor, m: Tensor, k: Tensor, n: Tensor) -> Tensor:
        return torch.tanh(self.a(x, h[0] * m, h[1] * k) + 0.1 * n + 0.01 * t)


CALLS: dict[str, Callable[[Tensor], Any]] = {
    "dense": lambda x: layer("lstm")(x),
    "no gradient": lambda x: torch.no_grad()(layer("lstm"))(x),
    "inference mode": lambda x: torch.inference_mode()(layer("gru"))(x),
    "a step": lambda x: torch.no_grad()(layer("lstm").step)(x[0]),
    "a step of one row": lambda x: torch.no_grad()(layer("lstm").step)(x[0, :1]),
    "lengths": lambda x: layer("gru")(x, lengths=[1, 6, 3]),
    "resets": lambda x: layer("gru")(x, resets=torch.rand(6, 3) < 0.4),
    "resets to a buffer that the step reads": lambda x: layer("gru_d")(x, resets=torch.eye(6, 3, dtype=torch.bool)),
    "trace": lambda x: layer("lstm")(x, return_trace=True),
    "gradient of x": lambda x: layer("lstm")(x.clone().requires_grad_()),
    "gradient of a state": lambda x: layer()(x, torch.randn(1, 3, 5, requires_grad=True)),
    "modifiers": lambda x: layer("lstm", modifiers=[rc.Zoneout(0.2), rc.LayerNorm()])(x),
    "a dropped weight": lambda x: layer("lstm", modifiers=rc.WeightDrop(0.5))(x),
    "masks and noise": lambda x: rc.Recurrent(Noisy, 3, 5)(x),
    "a derived weight": lambda x: layer("orthogonal_rnn")(x),
    "float64": lambda x: layer("gru", dtype=torch.float64)(x.double()),
    "bfloat16": lambda x: layer("gru", dtype=torch.bfloat16)(x.bfloat16()),
    "autocast": lambda x: torch.autocast("cpu", torch.bfloat16)(layer("gru"))(x),
    "nan and inf": lambda x: layer("gru")(x.masked_fill(x > 1, torch.inf).masked_fill(x < -1, torch.nan)),
    "a frozen weight": lambda x: frozen(layer("lstm"))(x),
}


def frozen(model: rc.Recurrent) -> rc.Recurrent:
    next(model.parameters()).requires_grad_(False)
    return model


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_right_plan_is_checked_once_and_used(call: Callable[[Tensor], Any], checks: list):
    call(torch.randn(6, 3, 3))
    assert checks == [""]


class Amplifies(rc.Cell):
    """A step whose results are mostly rounding."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return torch.sin(3e4 * (self.a(x, h) + 100.0))


def test_a_step_that_amplifies_rounding_is_no_bug(checks: list):
    model = rc.Recurrent(Amplifies, 3, 40)
    model(torch.randn(6, 3, 3))
    assert checks == [""]


@pytest.mark.parametrize(("how", "count"), [("0", 0), ("1", 1), ("all", 3)])
def test_how_often(how: str, count: int, checks: list, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(backend._setting, "check", how)
    model, x = layer(), torch.randn(6, 3, 3)
    for _ in range(3):
        model(x)
    assert checks == [""] * count
    other = layer()
    other(x)  # the same plan
    assert len(checks) == (4 if how == "all" else count)


def test_another_setting_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(backend._setting, "check", "yes")
    with pytest.raises(OptionError, match="RECURRA_CHECK: got 'yes', expected 0, 1 or all"):
        layer()(torch.randn(6, 3, 3))


# ---------------------------------------------------------------------------------------------------- no traces


def test_the_caller_sees_nothing_of_it(checks: list):
    seen: list[str] = []
    model = rc.Recurrent(Noisy, 3, 5)
    for name, parameter in model.named_parameters():
        parameter.register_hook(lambda grad, name=name: seen.append(name))
    x = torch.randn(6, 3, 3, requires_grad=True)
    x.register_hook(lambda grad: seen.append("x"))
    before = copy.deepcopy(model.state_dict())
    torch.manual_seed(3)
    model(x)
    drawn = torch.rand(())
    assert checks == [""]
    assert not seen
    assert x.grad is None
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(map(torch.equal, before.values(), model.state_dict().values()))
    torch.manual_seed(3)
    model(x)  # not checked
    assert torch.equal(torch.rand(()), drawn)


def test_the_results_are_those_of_an_unchecked_call(monkeypatch: pytest.MonkeyPatch):
    model, x = layer("lstm"), torch.randn(6, 3, 3)
    first, second = model(x), model(x)
    assert all(map(torch.equal, flat(first), flat(second)))


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpoints_count_what_is_saved(reentrant: bool, checks: list):
    model, x = layer("lstm", dtype=torch.float64), torch.randn(6, 3, 3, dtype=torch.float64, requires_grad=True)
    checkpoint(lambda x: model(x)[0], x, use_reentrant=reentrant).sum().backward()
    found = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    with set_backend("reference"):
        model(x)[0].sum().backward()
    torch.testing.assert_close(found, [p.grad for p in model.parameters()], rtol=1e-11, atol=1e-13)
    assert set(checks) <= {None, ""}
    rc.layer("lstm", 3, 5, dtype=torch.float64, checkpoint=True)(x)[0].sum().backward()


def test_no_check_under_torch_compile_and_transforms(checks: list):
    model, x = layer(), torch.randn(6, 3, 3)
    torch.compile(lambda x: model(x)[0], fullgraph=True, backend="eager")(x)
    torch.func.vmap(lambda x: model(x)[0])(torch.randn(2, 6, 3, 3))
    torch._dynamo.reset()
    assert not checks


def test_explaining_does_not_check(checks: list):
    model, x = layer(), torch.randn(6, 3, 3)
    assert "compiled" in rc.explain(model, x)
    assert not checks
    model(x)
    assert checks == [""]
    assert all(not isinstance(c.call, dispatch._FirstCall) for c in cache_of(model.cell_list[0]).choices.values())
