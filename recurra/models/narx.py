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
    """A NARX network as a cell: the state is the delay line of its outputs; x holds the delayed inputs side by side."""

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
        for name in self.a.recurrent():  # as many paths as delays: scaled so that their sum has the variance of one
            with torch.no_grad():
                getattr(self.a, name).div_(len(delays) ** 0.5)
        self.v = self.affine(hidden) if hidden else None
        self.nonlinearity, self.output = activation(nonlinearity), activation(output)

    def step(self, x: Tensor, y: tuple[Tensor, ...]) -> Tensor:
        if self.v is None:
            return self.output(self.a(x, *y))
        return self.output(self.v(self.nonlinearity(self.a(x, *y))))


class NARX(nn.Module):
    """A NARX network: y_t from x at `input_delays` and y at `output_delays` (Lin et al. 1995).

    Also known as a nonlinear autoregressive network with exogenous inputs; without a hidden layer, as an ARX model.

    **Arguments**

    - `input_size`, `output_size`: d and q, the numbers of inputs and outputs.
    - `hidden_size`: units of the hidden layer; None makes the network linear in its delays.
    - `input_delays`: different whole numbers of at least 0; 0 is the present input.
    - `output_delays`: different whole numbers of at least 1.
    - `nonlinearity`, `output`: of the hidden layer and of the outputs, a name or a function.
    - `batch_first`: x and y are (B, T, …) instead of (T, B, …).

    **Returns**

    `model(x)` is the parallel mode, which feeds back its own outputs: x (T, B, d) → y (T, B, q). `model(x, y)` is the
    series-parallel mode (teacher forcing), which reads the true outputs y (T, B, q) and computes all steps at once.
    Inputs and outputs before the first step are zero.

    **Example**

        >>> model = rc.NARX(2, 1, hidden_size=8, output_delays=(1, 4))
        >>> x, y = torch.randn(50, 3, 2), torch.randn(50, 3, 1)
        >>> model(x).shape, model(x, y).shape
        (torch.Size([50, 3, 1]), torch.Size([50, 3, 1]))
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
        """(T, B, d) → (T, B, q), fed back with its own outputs, or with the true outputs y (T, B, q) if given."""
        x = time_major("x", x, self.input_size, self.batch_first)
        taps = stack_delays(x, self.input_delays)
        if y is None:
            found = self.recurrent(taps, lengths=lengths)[0]
        else:
            y = time_major("y", y, self.output_size, self.batch_first)
            if y.shape[:2] != x.shape[:2]:
                raise ShapeError(
                    "y", f"shape {tuple(y.shape)}", f"as many steps and sequences as x, {tuple(x.shape[:2])}"
                )
            delayed = stack_delays(y, self.output_delays).chunk(len(self.output_delays), dim=-1)
            found = self.cell.step(taps, delayed)
        return found.transpose(0, 1) if self.batch_first else found

    @torch.no_grad()
    def solve(self, x: Tensor, y: Tensor, ridge: float = 0.0) -> "NARX":
        """Fit a linear network by least squares, with `ridge` regularisation: the best one-step prediction of y."""
        if self.hidden_size is not None or self.cell.output is not activation("identity"):
            raise OptionError("solve", "a network that is not linear", "NARX(…, hidden_size=None, output='identity')")
        x, y = (
            time_major("x", x, self.input_size, self.batch_first),
            time_major("y", y, self.output_size, self.batch_first),
        )
        features = (
            torch.cat([stack_delays(x, self.input_delays), stack_delays(y, self.output_delays)], dim=-1)
            .flatten(0, 1)
            .double()
        )
        features = torch.cat([features, torch.ones_like(features[:, :1])], dim=-1)
        targets = y.flatten(0, 1).double()
        if ridge > 0:
            eye = ridge**0.5 * torch.eye(features.shape[1], dtype=features.dtype)
            features = torch.cat([features, eye])
            targets = torch.cat([targets, targets.new_zeros(len(eye), targets.shape[1])])
        weights = torch.linalg.lstsq(features, targets, driver="gelsd").solution.T
        parts = weights.split([self.cell.input_size, *[self.output_size] * len(self.output_delays), 1], dim=-1)
        for name, part in zip(self.cell.a.operands, parts, strict=False):
            getattr(self.cell.a, name).copy_(part)
        self.cell.a.b.copy_(parts[-1].squeeze(-1))
        return self


def stack_delays(x: Tensor, delays: Sequence[int]) -> Tensor:
    """Concatenate x_{t-k} for every k, zero before the first step: (T, B, d) → (T, B, d · number of delays)."""
    steps, longest = len(x), max(delays)
    padded = torch.cat([x.new_zeros(longest, *x.shape[1:]), x])
    return torch.cat([padded[longest - k : longest - k + steps] for k in delays], dim=-1)
