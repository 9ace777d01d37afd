"""Steps that change, draw from or take from objects: what Python does at every step happens at every step, and once."""

import collections
import datetime
import itertools
import os
import random
import re
import sys
import time
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn, tanh

import recurra as rc

STEPS, CALLS = 4, 2


class Slots:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0


class Box:
    n = 0


def bump() -> int:
    bump.n += 1
    return bump.n


def remember(log: list = []) -> int:  # noqa: B006
    log.append(1)
    return len(log)


def counter() -> Callable[[], int]:
    n = 0

    def count() -> int:
        nonlocal n
        n += 1
        return n

    return count


def put(place: Any, key: Any) -> float:
    place[key] += 1
    return place[key]


def grow(thing: Any) -> int:
    thing.n += 1
    return thing.n


settings = types.ModuleType("settings_of_a_step")
sys.modules[settings.__name__] = settings
HELPER, BOX, NESTED, ITERATOR, DRAWS = nn.Identity(), Box(), {}, iter(()), random.Random()
SYSTEM = random.SystemRandom()


def renew() -> None:
    """The globals as they are before the first call."""
    global ITERATOR, DRAWS
    bump.n, HELPER.n, settings.n, BOX.n = 0, 0, 0, 0
    remember.__defaults__[0].clear()
    NESTED.clear()
    NESTED.update(a={"b": {"c": {"d": {"e": [0]}}}})
    ITERATOR, DRAWS = itertools.count(), random.Random(1)
    globals().pop("ASSIGNED", None)
    if "made" in vars(Box):
        del Box.made


def assign() -> int:
    global ASSIGNED
    ASSIGNED = globals().get("ASSIGNED", 0) + 1
    return ASSIGNED


# What the cell is given, and what its step does with it; the number it finds scales the output.
CASES: dict[str, tuple[Callable[[], Any], Callable[[Any], float]]] = {
    "slots": (Slots, lambda it: grow(it)),
    "attributes": (Box, lambda it: grow(it)),
    "an iterator": (itertools.count, lambda it: next(it)),
    "a cycle": (lambda: itertools.cycle([0.1, 0.5, 0.9]), lambda it: next(it)),
    "an iterator of a list": (lambda: iter([0.1] * 5 + [0.9] * 50), lambda it: next(it)),
    "a generator": (lambda: (0.5**k for k in range(99)), lambda it: next(it)),
    "random.Random": (lambda: random.Random(3), lambda it: it.random()),
    "numpy Generator": (lambda: np.random.default_rng(3), lambda it: float(it.normal())),
    "numpy RandomState": (lambda: np.random.RandomState(3), lambda it: it.rand()),
    "a long list": (lambda: [0.0] * 3000, lambda it: put(it, 2000)),
    "a large array": (lambda: np.zeros(30_000), lambda it: put(it, 2000)),
    "deep containers": (lambda: {"a": {"b": {"c": {"d": {"e": [0]}}}}}, lambda it: put(it["a"]["b"]["c"]["d"]["e"], 0)),
    "a deque": (lambda: collections.deque([0, 0], 2), lambda it: put(it, 0)),
    "a function": (counter, lambda it: it()),
    "a global function": (lambda: None, lambda it: bump()),
    "a default": (lambda: None, lambda it: remember()),
    "a global module of torch": (lambda: None, lambda it: grow(HELPER)),
    "a module of Python": (lambda: None, lambda it: grow(settings)),
    "a global object": (lambda: None, lambda it: grow(BOX)),
    "a global container": (lambda: None, lambda it: put(NESTED["a"]["b"]["c"]["d"]["e"], 0)),
    "a global iterator": (lambda: None, lambda it: next(ITERATOR)),
    "a global generator of numbers": (lambda: None, lambda it: DRAWS.random()),
    "a new global": (lambda: None, lambda it: assign()),
    "a new attribute of a class": (
        lambda: None,
        lambda it: setattr(Box, "made", getattr(Box, "made", 0) + 1) or Box.made,
    ),
}


class Uses(rc.Cell):
    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")
        self.it = self.given()

    given: Callable[[], Any]
    use: Callable[[Any], float]

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h)) * (1.0 + self.use(self.it))


def by_hand(layer: rc.Recurrent, x: Tensor) -> Tensor:
    h, rows = x.new_zeros(x.shape[1], 4), []
    for x_t in x.unbind(0):
        h = layer.cells[0].step(x_t, h)
        rows.append(h)
    return torch.stack(rows)


@pytest.mark.parametrize("case", CASES)
def test_what_an_object_does_it_does_at_every_step_and_once(case: str):
    given, use = CASES[case]
    kind = type("UsesThis", (Uses,), {"given": staticmethod(given), "use": staticmethod(use)})
    x, found = torch.linspace(-1, 1, STEPS * 6, dtype=torch.float64).view(STEPS, 2, 3), []
    for run in (by_hand, lambda layer, x: layer(x)[0]):
        renew()
        torch.manual_seed(0)
        layer = rc.Recurrent(kind, 3, 4, dtype=torch.float64)
        with rc.set_backend("auto"), warnings.catch_warnings():
            warnings.simplefilter("ignore", rc.EngineWarning)
            found.append([run(layer, x) for _ in range(CALLS)])
    torch.testing.assert_close(found[1], found[0], rtol=1e-12, atol=0)
    renew()


@pytest.mark.parametrize(
    ("given", "use", "reason"),
    [
        (lambda: None, lambda it: time.time(), r"asks time\(\)"),
        (lambda: None, lambda it: datetime.datetime.now().microsecond, r"asks now\(\)"),
        (lambda: None, lambda it: os.urandom(1)[0], r"asks urandom\(\)"),
        (random.SystemRandom, lambda it: it.random(), "cannot be copied"),
        (lambda: None, lambda it: SYSTEM.random(), "may take the next value of SYSTEM"),
        (itertools.count, lambda it: next(it), r"may take the next value of self\.it"),
    ],
)
def test_what_answers_otherwise_every_time_is_asked_at_every_step(given: Any, use: Any, reason: str):
    kind = type("UsesThis", (Uses,), {"given": staticmethod(given), "use": staticmethod(use)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rc.EngineWarning)
        assert re.search(rf"reference \(.*{reason}", rc.explain(rc.Recurrent(kind, 3, 4), torch.zeros(2, 2, 3)))


class OwnIterators(rc.Cell):
    """Its iterators are its own: they end with the step."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a, self.gains = self.affine("x", "h"), [0.5, 2.0]

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        gain, *_ = (each for each, _ in zip(self.gains, itertools.cycle("ab"), strict=False))
        return tanh(self.a(x, h)) * gain


def test_iterators_that_a_step_makes_compile():
    assert "backend: compiled" in rc.explain(rc.Recurrent(OwnIterators, 3, 4), torch.zeros(4, 2, 3))
