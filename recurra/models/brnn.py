"""Bidirectional networks whose transitions are perceptrons (Baldi et al. 1999; Schuster & Paliwal 1997).

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
    """A bidirectional network whose transitions and output are perceptrons (Baldi et al. 1999).

    F_t = φ(F_{t-1}, x_t),  B_t = β(B_{t+1}, x_t),  O_t = η(F_t, B_t, x_t).

    **Arguments**

    - `input_size`, `output_size`: d and q, the numbers of inputs and outputs.
    - `state_size`: of F and of B; one number, or a pair.
    - `transition`, `output`: sizes of the hidden layers of φ and β, and of η; with none, φ and β are single layers and
      η is linear.
    - `shortcuts`: how many earlier states φ and β read.
    - `window`: k, so that φ, β and η read x_{t-k} … x_{t+k}, zero outside the sequence.
    - `nonlinearity`: of all hidden layers and states, a name or a function.
    - `batch_first`: x is (B, T, d) instead of (T, B, d).

    **Returns**

    `model(x, lengths)`: x (T, B, d) → (T, B, q), zero past the end of a sequence. Values of x past the end do not
    matter.

    **Example**

        >>> model = rc.BaldiBRNN(3, 4, 2, transition=(8,), window=1)
        >>> model(torch.randn(5, 2, 3), lengths=[5, 3]).shape
        torch.Size([5, 2, 2])
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
        window_size = input_size * (2 * window + 1)
        options = {"hidden": tuple(transition), "shortcuts": shortcuts, "nonlinearity": nonlinearity}
        self.past = Recurrent(PerceptronCell, window_size, forward_size, **options)
        self.future = Recurrent(PerceptronCell, window_size, backward_size, **options)
        sizes = [forward_size + backward_size + window_size, *output]
        layers: list[nn.Module] = []
        for a, b in pairwise(sizes):
            layers += [nn.Linear(a, b), Function(activation(nonlinearity))]
        self.readout = nn.Sequential(*layers, nn.Linear(sizes[-1], output_size))

    def forward(self, x: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """(T, B, d) → (T, B, q), zero past the end of a sequence."""
        x = time_major("x", x, self.input_size, self.batch_first)
        steps, batch = x.shape[:2]
        lengths = None if lengths is None else check_lengths(lengths, steps, batch, x.device)
        x = _zero_padding(x, lengths)
        windows = stack_window(x, self.window)
        past = self.past(windows, lengths=lengths)[0]
        future = reverse(self.future(reverse(windows, lengths), lengths=lengths)[0], lengths)
        y = _zero_padding(self.readout(torch.cat([past, future, windows], dim=-1)), lengths)
        return y.transpose(0, 1) if self.batch_first else y


def _zero_padding(x: Tensor, lengths: Tensor | None) -> Tensor:
    return x if lengths is None else x.masked_fill(~valid_steps(lengths, len(x))[..., None], 0.0)


def stack_window(x: Tensor, window: int) -> Tensor:
    """Concatenate x_{t-k} … x_{t+k} with k = `window`, zero outside: (T, B, d) → (T, B, d · (2k + 1))."""
    if not window:
        return x
    empty = x.new_zeros(window, *x.shape[1:])
    padded = torch.cat([empty, x, empty])
    return torch.cat([padded[k : k + len(x)] for k in range(2 * window + 1)], dim=-1)
