"""NARX networks: outputs from delayed inputs and delayed outputs, with no hidden recurrence (Lin et al. 1995).

z_t = tanh(Σ_{k ∈ K_x} U_k x_{t-k} + Σ_{k ∈ K_y} W_k y_{t-k} + b),  y_t = φ(V z_t + b_y)

Over n steps the shortest path passes ⌈n / max K_y⌉ Jacobians, so gradients decay by λ^{n / max K_y}.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..cell import Cell, positive_int
from ..cells.activations import Activation, activation
from ..errors import InputError, OptionError, ShapeError
from ..layers import Recurrent
from .common import time_major


class NARXCell(Cell):
    """The network as a cell: its state is the delay line of its outputs; the delayed inputs arrive side by side."""

    paper, year = "Lin, Horne, Tiño & Giles, Learning Long-Term Dependencies in NARX Recurrent Neural Networks", 1995
    states = ("y",)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        delays: Sequence[int],
        hidden: int | None,
        nonlinearity: str | Activation,
        output: str | Activation,
    ):
        super().__init__(input_size, hidden_size, delays={"y": delays})
        self.a = self.affine("x", *(f"y[{k}]" for k in delays), size=hidden or hidden_size)
        for name in self.a.recurrent():  # as many paths as there are delays: together no larger than one
            with torch.no_grad():
                getattr(self.a, name).div_(len(delays) ** 0.5)
        self.v = self.affine(hidden) if hidden else None
        self.nonlinearity, self.output = activation(nonlinearity), activation(output)

    def step(self, x: Tensor, y: tuple[Tensor, ...]) -> Tensor:
        if self.v is None:
            return self.output(self.a(x, *y))
        return self.output(self.v(self.nonlinearity(self.a(x, *y))))


class NARX(nn.Module):
    """y_t from x at `input_delays` and y at `output_delays`; without `hidden_size` it is linear (ARX).

    `model(x)` is the parallel mode: it hears its own outputs. `model(x, y)` is the series-parallel mode: it hears the
    true ones, and every step is computed at once. Before the first step everything was zero.
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        hidden_size: int | None = None,
        input_delays: Sequence[int] = (0, 1, 2),
        output_delays: Sequence[int] = (1, 2, 3),
        *,
        nonlinearity: str | Activation = "tanh",
        output: str | Activation = "identity",
        batch_first: bool = False,
    ):
        super().__init__()
        self.input_size, self.output_size = (
            positive_int("input_size", input_size),
            positive_int("output_size", output_size),
        )
        self.hidden_size = None if hidden_size is None else positive_int("hidden_size", hidden_size)
        self.input_delays, self.output_delays = tuple(input_delays), tuple(output_delays)
        if not self.input_delays or min(self.input_delays) < 0 or len(set(self.input_delays)) != len(self.input_delays):
            raise InputError("input_delays", self.input_delays, "different whole numbers of at least 0")
        self.batch_first = batch_first
        self.recurrent = Recurrent(
            NARXCell,
            self.input_size * len(self.input_delays),
            self.output_size,
            delays=self.output_delays,
            hidden=hidden_size,
            nonlinearity=nonlinearity,
            output=output,
        )

    @property
    def cell(self) -> NARXCell:
        cell = self.recurrent.cell_list[0]
        assert isinstance(cell, NARXCell)
        return cell

    def forward(self, x: Tensor, y: Tensor | None = None, lengths: Tensor | None = None) -> Tensor:
        """(T, B, d) → (T, B, q): hearing itself, or the true outputs y (T, B, q) where they are given."""
        x = time_major("x", x, self.input_size, self.batch_first)
        taps = delay(x, self.input_delays)
        if y is None:
            found = self.recurrent(taps, lengths=lengths)[0]
        else:
            y = time_major("y", y, self.output_size, self.batch_first)
            if y.shape[:2] != x.shape[:2]:
                raise ShapeError(
                    "y", f"shape {tuple(y.shape)}", f"as many steps and sequences as x, {tuple(x.shape[:2])}"
                )
            heard = delay(y, self.output_delays).chunk(len(self.output_delays), dim=-1)
            found = self.cell.step(taps, heard)
        return found.transpose(0, 1) if self.batch_first else found

    @torch.no_grad()
    def solve(self, x: Tensor, y: Tensor, ridge: float = 0.0) -> "NARX":
        """Least squares in closed form, for the linear case: the best one-step prediction of y (T, B, q)."""
        if self.hidden_size is not None or self.cell.output is not activation("identity"):
            raise OptionError("solve", "a network that is not linear", "NARX(…, hidden_size=None, output='identity')")
        x, y = (
            time_major("x", x, self.input_size, self.batch_first),
            time_major("y", y, self.output_size, self.batch_first),
        )
        features = torch.cat([delay(x, self.input_delays), delay(y, self.output_delays)], dim=-1).flatten(0, 1).double()
        features = torch.cat([features, torch.ones_like(features[:, :1])], dim=-1)
        wanted = y.flatten(0, 1).double()
        if ridge > 0:
            eye = ridge**0.5 * torch.eye(features.shape[1], dtype=features.dtype)
            features = torch.cat([features, eye])
            wanted = torch.cat([wanted, wanted.new_zeros(len(eye), wanted.shape[1])])
        weights = torch.linalg.lstsq(features, wanted, driver="gelsd").solution.T
        parts = weights.split([self.cell.input_size, *[self.output_size] * len(self.output_delays), 1], dim=-1)
        for name, part in zip(self.cell.a.operands, parts, strict=False):
            getattr(self.cell.a, name).copy_(part)
        self.cell.a.b.copy_(parts[-1].squeeze(-1))
        return self


def delay(x: Tensor, delays: Sequence[int]) -> Tensor:
    """x_{t-k} for every k side by side, zero before the first step: (T, B, d · delays)."""
    steps, most = len(x), max(delays)
    padded = torch.cat([x.new_zeros(most, *x.shape[1:]), x])
    return torch.cat([padded[most - k : most - k + steps] for k in delays], dim=-1)
