"""Loops over the axes of matrices give the plain loop's numbers, whatever is read from a matrix and written to it."""

import pytest
import torch
from engine.compare import compare, sequences
from torch import Tensor

import recurra as rc
from recurra.engine.dispatch import choose

HEADS, KEYS = 3, 18
READINGS = ("keys", "values", "all", "twice", "heads", "turned", "norm", "cube")


class Matrices(rc.Cell):
    """A decaying matrix of every head, of which a step takes sums of many kinds before and after it writes."""

    states = ("S", "h")

    def __init__(self, input_size: int, values: int, readings: tuple[str, ...] = READINGS, update: str = "gated"):
        self.values, self.readings, self.update = values, readings, update
        super().__init__(input_size, HEADS * values, sizes={"S": (HEADS, KEYS, values)}, output_size=HEADS * values)
        self.q, self.k, self.a = (self.affine("x", "h", size=HEADS * KEYS) for _ in range(3))
        self.v, self.g = self.affine("x"), self.affine("x", size=HEADS)
        self.bias = torch.nn.Parameter(0.1 * torch.randn(HEADS, KEYS, values))
        self.rate = torch.nn.Parameter(torch.rand(HEADS, 1))
        self.register_buffer("fixed", torch.linspace(0.5, 0.9, HEADS), persistent=False)

    def step(self, x: Tensor, S: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, a = (torch.tanh(gate(x, h)).unflatten(1, (HEADS, KEYS)) for gate in (self.q, self.k, self.a))
        v = self.v(x).unflatten(1, (HEADS, self.values))
        old = torch.einsum("bnkv,bnk->bnv", S, k)
        S = self._updated(S, k, a, v - 0.1 * old, x)
        y = sum(getattr(self, f"_{reading}")(S, q, v) for reading in self.readings)
        return torch.tanh(y).flatten(1), S, torch.tanh(0.5 * h + y.flatten(1))

    def _updated(self, S: Tensor, k: Tensor, a: Tensor, v: Tensor, x: Tensor) -> Tensor:
        if self.update == "gated":
            g = torch.sigmoid(self.g(x))[:, :, None, None] * self.fixed[:, None, None]
            return g * torch.sigmoid(a).unsqueeze(-1) * S + k.unsqueeze(-1) * v.unsqueeze(-2)
        if self.update == "nonlinear":
            return torch.tanh(S + k.unsqueeze(-1) * v.unsqueeze(-2) + self.bias)
        return torch.softmax(S, -1) * self.rate.unsqueeze(-1) + k.unsqueeze(-1) * v.unsqueeze(-2)

    def _keys(self, S: Tensor, q: Tensor, v: Tensor) -> Tensor:
        return (q.unsqueeze(-2) @ S).squeeze(-2)

    def _values(self, S: Tensor, q: Tensor, v: Tensor) -> Tensor:
        return (S @ v.unsqueeze(-1)).mean(-2).expand_as(v)

    def _all(self, S: Tensor, q: Tensor, v: Tensor) -> Tensor:
        return S.sum((2, 3)).unsqueeze(-1) * v * 0.01

    def _twice(self, S: Tensor, q: Tensor, v: Tensor) -> Tensor:
        return (S * S * q.unsqueeze(-1)).sum(-2) * 0.1

    def _heads(self, S: Tensor, q: Tensor, v: Tensor) -> Tensor:
        return (S.sum(1) * 0.1).mean(1).unsqueeze(1) * v

    def _turned(self, S: Tensor, q: Tensor, v: Tensor) -> Tensor:
        return (S.transpose(-1, -2) @ q.unsqueeze(-1)).squeeze(-1)

    def _norm(self, S: Tensor, q: Tensor, v: Tensor) -> Tensor:
        return v / (1.0 + S.square().sum((2, 3)).unsqueeze(-1))

    def _cube(self, S: Tensor, q: Tensor, v: Tensor) -> Tensor:
        return torch.einsum("bnkv,bnv,bnk->bn", S, v, q).unsqueeze(-1) * 0.1 + 0.0 * v


def check(cell: rc.Cell, dtype: torch.dtype = torch.float64, **more: Tensor) -> None:
    difference = compare(cell, sequences(cell, 7, 4, dtype, **more))
    assert difference.backend == "compiled"
    within = 1e-12 if dtype == torch.float64 else 2e-5
    assert difference.values < within
    assert difference.gradients < 10 * within


def matrices(*args: object, dtype: torch.dtype = torch.float64) -> Matrices:
    torch.manual_seed(0)
    return Matrices(5, *args).to(dtype)  # pyrefly: ignore


def test_one_pass_writes_a_matrix_and_makes_all_sums_of_it():
    cell = matrices(19, ("keys", "all"))
    given = sequences(cell, 2, 1, torch.float64)
    with torch.no_grad():
        groups = choose(cell, given._replace(x=given.x.detach())).executor.forward_kernel.schedule.groups
    (reads, writes) = (group for group in groups if group.axes)
    assert reads.axes == writes.axes == (HEADS, KEYS, 19)
    assert (len(reads.reductions), len(reads.stores)) == (1, 0)
    assert (len(writes.reductions), len(writes.stores)) == (2, 1)
    check(cell)


@pytest.mark.slow
@pytest.mark.parametrize("values", [19, 64])
@pytest.mark.parametrize("update", ["gated", "nonlinear", "softmax"])
def test_updates_and_readings(values, update):
    cell = matrices(values, READINGS, update)
    check(cell)
    check(cell, lengths=torch.tensor([7, 2, 1, 5]))
    check(cell.float(), torch.float32)


@pytest.mark.slow
@pytest.mark.parametrize("reading", ["heads", "turned", "cube"])
def test_each_reading(reading):
    check(matrices(20, (reading,)))


@pytest.mark.slow
def test_threads_share_the_heads():
    cell = matrices(64, ("keys", "values"))
    torch.set_num_threads(2)
    try:
        difference = compare(cell, sequences(cell, 20, 1, torch.float64))
    finally:
        torch.set_num_threads(1)
    assert difference.values < 1e-12
    assert difference.gradients < 1e-11
