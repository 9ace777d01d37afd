"""Steps that ask what a weight is: parameter or tensor, this one or that, with which attributes."""

import functools
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn, tanh

import recurra as rc


@functools.singledispatch
def kind(value: object) -> str:
    return "other"


@kind.register(nn.Parameter)
def _(value: nn.Parameter) -> str:
    return "parameter"


def matches(weight: Any) -> bool:
    match weight:
        case nn.Parameter():
            return True
    return False


class Asks(rc.Cell):
    """Adds one, or not, by the answer to a question about its weights."""

    ask: Callable[["Asks"], Any]

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")
        self.W = nn.Parameter(torch.rand(hidden_size))
        self.V = self.W
        self.W.rate = 0.5
        self.buffer = nn.Buffer(torch.rand(hidden_size))
        self.plain = torch.rand(hidden_size)
        self.held, self.rates = [self.W], {self.W: 2.0}

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)) * self.W * self.buffer + (1.0 if type(self).ask(self) else 0.0)


MISSING, NUMBERS = object(), itertools.count()  # a warning comes once for a class
SHARED = nn.Parameter(torch.linspace(0.1, 0.9, 5, dtype=torch.float64))
OF_THE_MODULE = {"weights": [SHARED], "layer": nn.Linear(2, 2)}
SETTINGS = {"gains": [0.5]}


class Elsewhere(Asks):
    """What it holds has other names, too."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.W, self.clip, self.gains, self.layer = SHARED, MISSING, SETTINGS["gains"], OF_THE_MODULE["layer"]


OBJECTS = {
    "a sentinel": lambda self: self.clip is MISSING,
    "a list": lambda self: self.gains is SETTINGS["gains"],
    "a default": lambda self, missing=MISSING: self.clip is missing,
    "another": lambda self: self.clip is not SETTINGS,
}
WEIGHTS = {
    "a global": lambda self: self.W is SHARED,
    "in a container": lambda self: any(self.W is weight for weight in OF_THE_MODULE["weights"]),
    "a default": lambda self, weight=SHARED: self.W is weight,
    "a module": lambda self: self.layer is OF_THE_MODULE["layer"],
}
COMPILED = {
    "isinstance": lambda self: isinstance(self.W, nn.Parameter),
    "of an affine": lambda self: isinstance(self.a.W, nn.Parameter),
    "not isinstance": lambda self: not isinstance(self.buffer, nn.Parameter),
    "a buffer": lambda self: isinstance(self.buffer, nn.Buffer),
    "type": lambda self: type(self.W) is nn.Parameter,
    "class": lambda self: self.W.__class__ is nn.Parameter,
    "match": lambda self: matches(self.W),
    "dispatch": lambda self: kind(self.W) == "parameter",
    "attribute": lambda self: getattr(self.W, "rate", 0.0) == 0.5,
    "no attribute": lambda self: not hasattr(self.buffer, "rate"),
    "tied": lambda self: self.W is self.V,
    "registered": lambda self: any(self.W is parameter for parameter in self.parameters()),
    "held": lambda self: self.held[0] is self.W,
}
ON_THE_PLAIN_LOOP = {
    "in a dictionary": (lambda self: self.rates.get(self.W, 0.0) > 1, "looks a tensor up by its identity"),
    "id": (lambda self: id(self.W) in {id(each) for each in self.parameters()}, r"asks id\(\)"),
    "hooks": (lambda self: self.W._backward_hooks is None, "reads the field _backward_hooks"),
}


def asking(ask: Callable[..., Any], kind: type[Asks] = Asks) -> rc.Recurrent:
    torch.manual_seed(0)
    return rc.Recurrent(type(f"Asks{next(NUMBERS)}", (kind,), {"ask": staticmethod(ask)}), 3, 5, dtype=torch.float64)


def results(layer: rc.Recurrent, **options: Any) -> list[Tensor]:
    x = torch.linspace(-1, 1, 24, dtype=torch.float64).view(4, 2, 3)
    y = layer(x, **options)[0]
    grads = torch.autograd.grad((y**2).sum(), list(layer.parameters()), materialize_grads=True)
    return [y.detach(), *grads]


def assert_like_the_plain_loop(layer: rc.Recurrent) -> None:
    found = results(layer)
    with rc.set_backend("reference"):
        torch.testing.assert_close(found, results(layer), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("question", COMPILED)
def test_the_compiled_step_gets_the_answers_of_the_plain_loop(question: str):
    layer = asking(COMPILED[question])
    with warnings.catch_warnings():
        warnings.simplefilter("error", rc.EngineWarning)  # also the one of the self-check
        assert_like_the_plain_loop(layer)
    with rc.set_backend("reference"):
        torch.testing.assert_close(results(layer, return_trace=True), results(layer), rtol=1e-9, atol=1e-12)
    assert "backend: compiled" in rc.explain(layer, torch.zeros(4, 2, 3, dtype=torch.float64))


@pytest.mark.parametrize("question", ON_THE_PLAIN_LOOP)
def test_what_a_copy_cannot_answer_is_asked_of_the_cell(question: str):
    ask, reason = ON_THE_PLAIN_LOOP[question]
    layer = asking(ask)
    with pytest.warns(rc.EngineWarning, match=f"{reason}.*test_kinds_in_step.py:"):
        assert_like_the_plain_loop(layer)


def test_answers_that_change_between_calls():
    layer = asking(lambda self: getattr(self.W, "rate", 0.0) == 0.5)
    assert_like_the_plain_loop(layer)
    layer.cells[0].W.rate = 0.7
    assert_like_the_plain_loop(layer)
    del layer.cells[0].W.rate
    assert_like_the_plain_loop(layer)
    layer = asking(lambda self: self.W is self.V)
    assert_like_the_plain_loop(layer)
    layer.cells[0].V = nn.Parameter(layer.cells[0].W.detach().clone())
    assert_like_the_plain_loop(layer)
    layer = asking(lambda self: isinstance(self.W, nn.Parameter))
    plain = {name: parameter.detach() for name, parameter in layer.named_parameters()}
    x = torch.ones(3, 2, 3, dtype=torch.float64)
    own = layer(x)[0], torch.func.functional_call(layer, plain, (x,))[0]
    with rc.set_backend("reference"):
        torch.testing.assert_close(own, (layer(x)[0], torch.func.functional_call(layer, plain, (x,))[0]))
    assert (own[0] - own[1]).abs().max() > 0.5  # a tensor in place of the parameter is none


def test_an_attribute_of_a_weight_that_the_step_changes():
    def ask(self: Asks) -> bool:
        self.W.rate += 0.25
        return self.W.rate > 1.0

    layer = asking(ask)
    with pytest.warns(rc.EngineWarning, match="changes self.W.rate"):
        found = layer(torch.zeros(4, 2, 3, dtype=torch.float64))[0]
    assert layer.cells[0].W.rate == 1.5
    layer.cells[0].W.rate = 0.5
    with rc.set_backend("reference"):
        torch.testing.assert_close(found, layer(torch.zeros(4, 2, 3, dtype=torch.float64))[0])


@pytest.mark.parametrize("question", OBJECTS)
def test_an_object_is_the_one_that_a_global_names(question: str):
    layer = asking(OBJECTS[question], Elsewhere)
    assert_like_the_plain_loop(layer)
    assert "backend: compiled" in rc.explain(layer, torch.zeros(4, 2, 3, dtype=torch.float64))


@pytest.mark.parametrize("question", WEIGHTS)
def test_a_weight_is_the_one_that_a_global_names(question: str):
    layer = asking(WEIGHTS[question], Elsewhere)
    with pytest.warns(
        rc.EngineWarning, match=r"asks which object something is, and refers to self\.\w+ by another name"
    ):
        assert_like_the_plain_loop(layer)
    with torch.no_grad():
        y = layer(torch.ones(1, 2, 3, dtype=torch.float64))[0]
        layer.cells[0].W = nn.Parameter(SHARED.detach().clone())
        layer.cells[0].layer = nn.Linear(2, 2)
        other = layer(torch.ones(1, 2, 3, dtype=torch.float64))[0]
    assert (y - other).abs().max() > 0.5  # and no longer, after that
