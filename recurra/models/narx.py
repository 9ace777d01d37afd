"""NARX networks: outputs from delayed inputs and delayed outputs, with no hidden recurrence (Lin et al. 1995).

z_t = tanh(Σ_{k ∈ K_x} U_k x_{t-k} + Σ_{k ∈ K_y} W_k y_{t-k} + b),  y_t = φ(V z_t + b_y)

Over n steps the shortest path passes ⌈n / max K_y⌉ Jacobians, so gradients decay by λ^{n / max K_y}.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..cell import Cell, positive_int
from ..cells.activations import Activation, activation
from ..engine.reference import valid_steps
from ..engine.split_at_resets import Pieces
from ..errors import InputError, OptionError, ShapeError
from ..layer_inputs import check_resets
from ..layer_trace import Trace
from ..layers import Recurrent
from ..ragged import check_lengths
from .common import time_major


class DelayLines(NamedTuple):
    """The state of a NARX network: what it read and put out last, newest first."""

    x: Tensor  # (1, B, longest input delay, d)
    y: Tensor  # (1, B, longest output delay, q)


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
        z = self.nonlinearity(self.a(x, *y))
        return self.output(self.v(z))


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

    `(y, state)`. `model(x)` is the parallel mode, which feeds back its own outputs: x (T, B, d) → y (T, B, q).
    `model(x, y)` is the series-parallel mode (teacher forcing), which reads the true outputs y (T, B, q) and computes
    all steps at once. `state` is a `DelayLines`, to continue from; inputs and outputs before the first step are zero.
    `lengths` (B,), `resets` (T, B) and `return_trace` are as in `rc.Recurrent`.

    **Example**

        >>> model = rc.NARX(2, 1, hidden_size=8, output_delays=(1, 4))
        >>> x, y = torch.randn(50, 3, 2), torch.randn(50, 3, 1)
        >>> found, state = model(x)
        >>> forced, _ = model(x, y)
        >>> found.shape, forced.shape, state.y.shape
        (torch.Size([50, 3, 1]), torch.Size([50, 3, 1]), torch.Size([1, 3, 4, 1]))
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
        whole = all(isinstance(delay, int) and delay >= 0 for delay in self.input_delays)
        if not self.input_delays or not whole or len(set(self.input_delays)) != len(self.input_delays):
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

    def initial_state(self, batch: int, like: Tensor) -> DelayLines:
        """Empty delay lines, on the device and in the dtype of `like`."""
        inputs, outputs = max(self.input_delays), max(self.output_delays)
        return DelayLines(
            like.new_zeros(1, batch, inputs, self.input_size), like.new_zeros(1, batch, outputs, self.output_size)
        )

    def forward(
        self,
        x: Tensor,
        y: Tensor | None = None,
        lengths: Tensor | Sequence[int] | None = None,
        state: DelayLines | None = None,
        resets: Tensor | None = None,
        return_trace: bool = False,
    ) -> Any:
        """(T, B, d) → (T, B, q), fed back with its own outputs, or with the true outputs y (T, B, q) if given."""
        x = time_major("x", x, self.input_size, self.batch_first)
        steps, batch = x.shape[:2]
        y = None if y is None else time_major("y", y, self.output_size, self.batch_first)
        if y is not None and y.shape[:2] != x.shape[:2]:
            raise ShapeError("y", f"shape {tuple(y.shape)}", f"as many steps and sequences as x, {tuple(x.shape[:2])}")
        size = None if lengths is None else check_lengths(lengths, steps, batch, x.device)
        begins = check_resets(resets, x, True, self.batch_first)
        lines = self.initial_state(batch, x) if state is None else self._check_state(state, batch)
        if begins is None:
            found, after, trace = self._run(x, y, lines, size, return_trace)
        else:
            begins = begins if size is None else begins & valid_steps(size, steps)
            found, after, trace = self._run_pieces(x, y, lines, Pieces.at_resets(begins, size), return_trace)
        found = found.transpose(0, 1) if self.batch_first else found
        if not return_trace:
            return found, after
        return found, after, Trace([{n: v.transpose(0, 1) if self.batch_first else v for n, v in trace.items()}])

    def _check_state(self, state: DelayLines, batch: int) -> DelayLines:
        expected = [(1, batch, max(self.input_delays), self.input_size)]
        expected += [(1, batch, max(self.output_delays), self.output_size)]
        if not isinstance(state, tuple) or [tuple(getattr(line, "shape", ())) for line in state] != expected:
            got = [tuple(getattr(line, "shape", ())) for line in state] if isinstance(state, tuple) else type(state)
            raise ShapeError("state", got, f"delay lines of shapes {expected[0]} and {expected[1]}")
        return DelayLines(*state)

    def _run(
        self, x: Tensor, y: Tensor | None, before: DelayLines, lengths: Tensor | None, keep_trace: bool
    ) -> tuple[Tensor, DelayLines, dict[str, Tensor]]:
        past = None if lengths is None else ~valid_steps(lengths, len(x))[..., None]
        x = x if past is None else x.masked_fill(past, 0.0)  # 0 · NaN of the padding would be NaN in a gradient
        taps = stack_delays(x, self.input_delays, before.x[0])
        inputs = last_values(x, before.x[0], lengths)[None]
        if y is None:
            found, line, *traced = self.recurrent(taps, before.y, lengths=lengths, return_trace=keep_trace)
            return found, DelayLines(inputs, line), dict(traced[0].by_cell[0]) if traced else {}
        y = y if past is None else y.masked_fill(past, 0.0)
        delayed = stack_delays(y, self.output_delays, before.y[0]).chunk(len(self.output_delays), dim=-1)
        found = self.cell.step(taps, delayed)
        trace = {"y": found}
        if keep_trace and self.cell.v is not None:
            trace["z"] = self.cell.nonlinearity(self.cell.a(taps, *delayed))
        if past is not None:
            found, trace = found.masked_fill(past, 0.0), {n: v.masked_fill(past, 0.0) for n, v in trace.items()}
        return found, DelayLines(inputs, last_values(y, before.y[0], lengths)[None]), trace

    def _run_pieces(
        self, x: Tensor, y: Tensor | None, before: DelayLines, pieces: Pieces, keep_trace: bool
    ) -> tuple[Tensor, DelayLines, dict[str, Tensor]]:
        """Pieces between resets, as a ragged batch; only the first of a sequence reads the delay lines."""
        lines = (pieces.initial(line[0], torch.zeros_like(line[0]))[None] for line in before)
        cut = None if y is None else pieces.cut(y)
        found, after, trace = self._run(pieces.cut(x), cut, DelayLines(*lines), pieces.lengths, keep_trace)
        after = DelayLines(*(line[:, pieces.last] for line in after))
        return pieces.join(found), after, {name: pieces.join(value) for name, value in trace.items()}

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
            eye = ridge**0.5 * torch.eye(features.shape[1]).to(features)
            features = torch.cat([features, eye])
            targets = torch.cat([targets, targets.new_zeros(len(eye), targets.shape[1])])
        weights = torch.linalg.lstsq(features.cpu(), targets.cpu(), driver="gelsd").solution.T  # only the CPU has gelsd
        parts = weights.split([self.cell.input_size, *[self.output_size] * len(self.output_delays), 1], dim=-1)
        for name, part in zip(self.cell.a.operands, parts, strict=False):
            getattr(self.cell.a, name).copy_(part)
        self.cell.a.b.copy_(parts[-1].squeeze(-1))
        return self


def stack_delays(x: Tensor, delays: Sequence[int], before: Tensor | None = None) -> Tensor:
    """Concatenate x_{t-k} for every k: (T, B, d) → (T, B, d · number of delays).

    `before` (B, longest delay, d) holds the values before the first step, newest first; zero without it.
    """
    steps, longest = len(x), max(delays)
    history = x.new_zeros(longest, *x.shape[1:]) if before is None else before.transpose(0, 1).flip(0)
    padded = torch.cat([history, x])
    return torch.cat([padded[longest - k : longest - k + steps] for k in delays], dim=-1)


def last_values(x: Tensor, before: Tensor, lengths: Tensor | None) -> Tensor:
    """The delay line after x (T, B, d): (B, depth, d), newest first, of each sequence's last valid steps."""
    depth, batch = before.shape[1], torch.arange(x.shape[1], device=x.device)
    padded = torch.cat([before.transpose(0, 1).flip(0), x])  # depth earlier values first
    ends = x.new_full((x.shape[1],), len(x), dtype=torch.int64) if lengths is None else lengths
    rows = depth + ends - 1 - torch.arange(depth, device=x.device)[:, None]  # (depth, B)
    return padded[rows, batch].transpose(0, 1)
