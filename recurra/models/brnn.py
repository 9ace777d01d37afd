"""Bidirectional networks whose transitions are networks themselves (Baldi et al. 1999; Schuster & Paliwal 1997).

F_t = φ(F_{t-1}, x_t),  B_t = β(B_{t+1}, x_t),  O_t = η(F_t, B_t, x_t) with φ, β, η multi-layer perceptrons. Shortcuts
let φ and β read several earlier states, and all three a window of inputs around t.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from ..cell import Cell, positive_int
from ..cells.activations import Activation, activation
from ..engine.reference import valid_steps
from ..errors import InputError
from ..layers import Recurrent
from ..ragged import check_lengths, reverse
from .common import Function, time_major


class PerceptronCell(Cell):
    """A state whose transition is a multi-layer perceptron of the input and the last few states."""

    paper, year = "Baldi et al., Exploiting the Past and the Future in Protein Secondary Structure Prediction", 1999

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        hidden: Sequence[int] = (),
        shortcuts: int = 1,
        nonlinearity: str | Activation = "tanh",
    ):
        reach = range(1, positive_int("shortcuts", shortcuts) + 1)
        super().__init__(input_size, hidden_size, delays={"h": tuple(reach)})
        sizes = [*hidden, hidden_size]
        self.first = self.affine("x", *(f"h[{k}]" for k in reach), size=sizes[0])
        self.deeper = nn.ModuleList(self.affine(a, size=b) for a, b in pairwise(sizes))
        self.nonlinearity = activation(nonlinearity)

    def step(self, x: Tensor, h: tuple[Tensor, ...]) -> Tensor:
        value = self.nonlinearity(self.first(x, *h))
        for affine in self.deeper:
            value = self.nonlinearity(affine(value))
        return value


class BaldiBRNN(nn.Module):
    """O_t from the past, the future and the input.

    `state_size`: of F and of B, one number or a pair. `transition`, `output`: sizes of the hidden layers of φ and β,
    and of η; none makes them single layers, and η linear. `shortcuts`: how many earlier states φ and β read. `window`:
    inputs x_{t-k} … x_{t+k} that all three read, zero outside the sequence.
    """

    def __init__(
        self,
        input_size: int,
        state_size: int | tuple[int, int],
        output_size: int,
        *,
        transition: Sequence[int] = (),
        output: Sequence[int] = (),
        shortcuts: int = 1,
        window: int = 0,
        nonlinearity: str | Activation = "tanh",
        batch_first: bool = False,
    ):
        super().__init__()
        self.input_size = positive_int("input_size", input_size)
        if isinstance(window, bool) or not isinstance(window, int) or window < 0:
            raise InputError("window", window, "how many frames to either side, 0 or more")
        forward_size, backward_size = (state_size, state_size) if isinstance(state_size, int) else state_size
        self.window, self.batch_first, self.output_size = window, batch_first, positive_int("output_size", output_size)
        seen = input_size * (2 * window + 1)
        options = {"hidden": tuple(transition), "shortcuts": shortcuts, "nonlinearity": nonlinearity}
        self.past = Recurrent(PerceptronCell, seen, forward_size, **options)
        self.future = Recurrent(PerceptronCell, seen, backward_size, **options)
        sizes = [forward_size + backward_size + seen, *output]
        layers: list[nn.Module] = []
        for a, b in pairwise(sizes):
            layers += [nn.Linear(a, b), Function(activation(nonlinearity))]
        self.readout = nn.Sequential(*layers, nn.Linear(sizes[-1], output_size))

    def forward(self, x: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """(T, B, d) → (T, B, q); zero past a sequence's end, and independent of what stood there."""
        x = time_major("x", x, self.input_size, self.batch_first)
        steps, batch = x.shape[:2]
        lengths = None if lengths is None else check_lengths(lengths, steps, batch, x.device)
        x = _zero_padding(x, lengths)
        seen = around(x, self.window)
        past = self.past(seen, lengths=lengths)[0]
        future = reverse(self.future(reverse(seen, lengths), lengths=lengths)[0], lengths)
        y = _zero_padding(self.readout(torch.cat([past, future, seen], dim=-1)), lengths)
        return y.transpose(0, 1) if self.batch_first else y


def _zero_padding(x: Tensor, lengths: Tensor | None) -> Tensor:
    return x if lengths is None else x.masked_fill(~valid_steps(lengths, len(x))[..., None], 0.0)


def around(x: Tensor, window: int) -> Tensor:
    """x_{t-k} … x_{t+k} side by side, zero outside: (T, B, d · (2k + 1))."""
    if not window:
        return x
    empty = x.new_zeros(window, *x.shape[1:])
    padded = torch.cat([empty, x, empty])
    return torch.cat([padded[k : k + len(x)] for k in range(2 * window + 1)], dim=-1)
