"""Piecewise-linear networks that reconstruct dynamical systems from their time series.

The state is the reconstructed one: outputs are states, and a readout or `rc.train` forces them towards observations.
"""

import torch
from torch import Tensor, nn, relu

from .. import init
from ..affine import Affine
from ..cell import Cell, positive_int, register
from ..errors import InputError
from .derivations import ZeroDiagonal


class PiecewiseLinear(Cell):
    """Base of the family: A z with a diagonal A, and an input C x.

    A + W starts positive definite with the largest eigenvalue 1, as in the authors' programs: no linear piece of the
    untrained network expands.
    """

    states = ("z",)

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.A = nn.Parameter(torch.empty(hidden_size))
        self.C = self.affine("x")

    def _coupled(self) -> Affine:
        """W of the rectified state without its diagonal, which A starts from."""
        W = self.affine("z", bias=False)
        init.positive_definite_(W.W)
        with torch.no_grad():
            self.A.copy_(W.W.diagonal())
            W.W.fill_diagonal_(0.0)
        return W


@register("plrnn")
class PLRNN(PiecewiseLinear):
    """Piecewise-linear RNN: z = A z + W relu(z) + C x + b, with a diagonal A and a W without diagonal."""

    paper, year = "Durstewitz, A State Space Approach for Piecewise-Linear Recurrent Neural Networks", 2017

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.W = self._coupled()
        self.W.derive("W", ZeroDiagonal())

    def step(self, x: Tensor, z: Tensor) -> Tensor:
        return self.A * z + self.W(relu(z)) + self.C(x)


@register("shallow_plrnn")
class ShallowPLRNN(PiecewiseLinear):
    """PLRNN with a hidden layer of `units`; clipped, its states stay bounded wherever |A| < 1."""

    paper, year = (
        "Hess, Monfared, Brenner & Durstewitz, Generalized Teacher Forcing for Chaotic Dynamics",
        2023,
    )

    def __init__(self, input_size: int, hidden_size: int, units: int | None = None, clipped: bool = False):
        super().__init__(input_size, hidden_size)
        self._coupled()  # for A alone
        units = 4 * hidden_size if units is None else positive_int("units", units)
        self.inner, self.outer = self.affine("z", size=units), self.affine(units, bias=False)
        init.uniform_(self.inner.W, hidden_size**-0.5)
        init.uniform_(self.outer.W, units**-0.5)
        if clipped:
            init.uniform_(self.inner.b, 1.5)  # where b = 0, a clipped unit is zero everywhere, and nothing is learned
        self.clipped = clipped

    def step(self, x: Tensor, z: Tensor) -> Tensor:
        a = self.inner(z)
        u = relu(a) - relu(a - self.inner.b) if self.clipped else relu(a)
        return self.A * z + self.outer(u) + self.C(x)


@register("dendritic_plrnn")
class DendriticPLRNN(PiecewiseLinear):
    """PLRNN whose units have `bases` branches with thresholds: piecewise linear with many more pieces."""

    paper, year = "Brenner et al., Tractable Dendritic RNNs for Reconstructing Nonlinear Dynamical Systems", 2022

    def __init__(self, input_size: int, hidden_size: int, bases: int = 5):
        super().__init__(input_size, hidden_size)
        self.W = self._coupled()
        self.W.derive("W", ZeroDiagonal())
        self.bases = positive_int("bases", bases)
        for k in range(1, bases + 1):
            setattr(self, f"alpha_{k}", nn.Parameter(init.uniform_(torch.empty(1), 1 / bases)))  # none expands, too
            setattr(self, f"theta_{k}", nn.Parameter(torch.randn(hidden_size)))

    def step(self, x: Tensor, z: Tensor) -> Tensor:
        branches = [
            getattr(self, f"alpha_{k}") * relu(z - getattr(self, f"theta_{k}")) for k in range(1, self.bases + 1)
        ]
        u = sum(branches[1:], branches[0])
        return self.A * z + self.W(u) + self.C(x)


@register("al_rnn")
class ALRNN(PiecewiseLinear):
    """Almost-linear RNN: a PLRNN of which only the last `rectified` units are rectified, for few linear pieces."""

    paper, year = "Brenner, Hemmer, Monfared & Durstewitz, Almost-Linear RNNs Yield Highly Interpretable Codes", 2024

    def __init__(self, input_size: int, hidden_size: int, rectified: int | None = None):
        super().__init__(input_size, hidden_size)
        self.rectified = max(1, hidden_size // 5) if rectified is None else positive_int("rectified", rectified)
        if self.rectified > hidden_size:
            raise InputError("rectified", rectified, f"at most hidden_size = {hidden_size} units")
        self.W = self._coupled()
        self.register_buffer("m", (torch.arange(hidden_size) >= hidden_size - self.rectified).float())

    def step(self, x: Tensor, z: Tensor) -> Tensor:
        u = z + self.m * relu(-z)  # relu(z) = z + relu(-z)
        return self.A * z + self.W(u) + self.C(x)
