"""Long short-term memory and its variants (survey section 4). Gates i, f, o; candidate g; memory c; output h."""

import torch
from torch import Tensor, sigmoid, tanh

from .. import init
from ..cell import Cell, positive_int, register
from ..errors import InputError
from .derivations import RepeatRows


class Memory(Cell):
    """Base of the LSTM family: the states (h, c) and the roles of the gates."""

    states = ("h", "c")
    keep, write, candidate, memory = ("f",), ("i",), "g", "c"


@register("lstm")
class LSTM(Memory):
    """LSTM with input, forget and output gates, without peepholes: the common default."""

    paper, year = "Gers, Schmidhuber & Cummins, Learning to Forget: Continual Prediction with LSTM", 2000

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.i, self.f, self.g, self.o = (self.affine("x", "h") for _ in range(4))
        init.constant_(self.f.b, 1.0)

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i = sigmoid(self.i(x, h))
        f = sigmoid(self.f(x, h))
        g = tanh(self.g(x, h))
        o = sigmoid(self.o(x, h))
        c = f * c + i * g
        return o * tanh(c), c


@register("vanilla_lstm", "peephole_lstm")
class VanillaLSTM(Memory):
    """LSTM whose gates read the memory through peepholes."""

    paper, year = "Graves & Schmidhuber, Framewise Phoneme Classification with Bidirectional LSTM", 2005

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.i, self.f, self.g, self.o = (self.affine("x", "h") for _ in range(4))
        self.p_i, self.p_f, self.p_o = (self.vector() for _ in range(3))
        for parameter in self.parameters():
            init.uniform_(parameter, 0.1)

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i = sigmoid(self.i(x, h) + self.p_i * c)
        f = sigmoid(self.f(x, h) + self.p_f * c)
        g = tanh(self.g(x, h))
        c = f * c + i * g
        o = sigmoid(self.o(x, h) + self.p_o * c)
        return o * tanh(c), c


@register("original_lstm")
class OriginalLSTM(Memory):
    """The first LSTM: no forget gate; blocks of memory cells may share their gates."""

    paper, year = "Hochreiter & Schmidhuber, Long Short-Term Memory", 1997
    keep, write = (), ()  # the memory is never overwritten

    def __init__(self, input_size: int, hidden_size: int, squash: str = "tanh", block_size: int = 1):
        super().__init__(input_size, hidden_size)
        if squash not in ("tanh", "1997"):
            raise InputError("squash", repr(squash), "'tanh' or '1997'")
        if hidden_size % positive_int("block_size", block_size):
            raise InputError("block_size", block_size, f"a divisor of hidden_size = {hidden_size}")
        blocks = hidden_size // block_size
        self.g = self.affine("x", "h")
        self.i, self.o = (self.affine("x", "h", size=blocks) for _ in range(2))
        for parameter in self.parameters():
            init.uniform_(parameter, 0.1)
        with torch.no_grad():  # -1, -2, -3, -4, -1, …: the blocks open one after the other
            self.o.b.copy_(-(torch.arange(blocks) % 4 + 1.0))
        self.squash = squash
        if block_size > 1:
            for gate in (self.i, self.o):
                for name in ("U", "W", "b"):
                    gate.derive(name, RepeatRows(block_size))

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i = sigmoid(self.i(x, h))
        o = sigmoid(self.o(x, h))
        if self.squash == "tanh":
            g = tanh(self.g(x, h))
            c = c + i * g
            return o * tanh(c), c
        g = 4 * sigmoid(self.g(x, h)) - 2
        c = c + i * g
        return o * (2 * sigmoid(c) - 1), c


@register("original_full_gate_lstm")
class OriginalFullGateLSTM(Memory):
    """The first LSTM with full gate recurrence: no forget gate; both gates also read both gates of the last step."""

    paper, year = "Hochreiter & Schmidhuber, Long Short-Term Memory", 1997
    states = ("h", "c", "i", "o")
    keep, write = (), ()  # the memory is never overwritten

    def __init__(self, input_size: int, hidden_size: int, squash: str = "1997"):
        super().__init__(input_size, hidden_size)
        if squash not in ("tanh", "1997"):
            raise InputError("squash", repr(squash), "'tanh' or '1997'")
        self.g = self.affine("x", "h")
        self.i, self.o = (self.affine("x", "h", "i", "o") for _ in range(2))
        for parameter in self.parameters():
            init.uniform_(parameter, 0.1)
        with torch.no_grad():  # -1, -2, -3, -4, -1, …: the units open one after the other
            self.o.b.copy_(-(torch.arange(hidden_size) % 4 + 1.0))
        self.squash = squash

    def step(self, x: Tensor, h: Tensor, c: Tensor, i: Tensor, o: Tensor) -> tuple[Tensor, ...]:
        past = (i, o)
        i = sigmoid(self.i(x, h, *past))
        o = sigmoid(self.o(x, h, *past))
        if self.squash == "tanh":
            g = tanh(self.g(x, h))
            c = c + i * g
            return o * tanh(c), c, i, o
        g = 4 * sigmoid(self.g(x, h)) - 2
        c = c + i * g
        return o * (2 * sigmoid(c) - 1), c, i, o


@register("full_gate_lstm", "lstm_fgr")
class FullGateLSTM(Memory):
    """Peephole LSTM with full gate recurrence: every gate also reads all gates of the previous step."""

    paper, year = "Hochreiter & Schmidhuber 1997, as studied by Greff et al., LSTM: A Search Space Odyssey", 2017
    states = ("h", "c", "i", "f", "o")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.i, self.f, self.o = (self.affine("x", "h", "i", "f", "o") for _ in range(3))
        self.g = self.affine("x", "h")
        self.p_i, self.p_f, self.p_o = (self.vector() for _ in range(3))
        for parameter in self.parameters():
            init.normal_(parameter, 0.1)

    def step(self, x: Tensor, h: Tensor, c: Tensor, i: Tensor, f: Tensor, o: Tensor) -> tuple[Tensor, ...]:
        past = (i, f, o)
        i = sigmoid(self.i(x, h, *past) + self.p_i * c)
        f = sigmoid(self.f(x, h, *past) + self.p_f * c)
        g = tanh(self.g(x, h))
        c = f * c + i * g
        o = sigmoid(self.o(x, h, *past) + self.p_o * c)
        return o * tanh(c), c, i, f, o


@register("projection_lstm", "lstmp")
class ProjectionLSTM(Memory):
    """LSTM with a large memory whose output is projected to fewer units before it recurs."""

    paper, year = "Sak, Senior & Beaufays, Long Short-Term Memory Recurrent Neural Network Architectures", 2014
    states = ("r", "c")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        proj_size: int | None = None,
        output_proj_size: int = 0,
        peepholes: bool = True,
        cell_clip: float | None = None,
        proj_clip: float | None = None,
        forget_bias: float = 0.0,
    ):
        positive_int("hidden_size", hidden_size)
        proj_size = max(1, hidden_size // 2) if proj_size is None else positive_int("proj_size", proj_size)
        super().__init__(
            input_size, hidden_size, sizes={"r": proj_size}, output_size=proj_size + max(0, output_proj_size)
        )
        self.i, self.f, self.g, self.o = (self.affine("x", "r") for _ in range(4))
        self.R = self.affine(hidden_size, size=proj_size, bias=False)
        self.Q = self.affine(hidden_size, size=output_proj_size, bias=False) if output_proj_size > 0 else None
        self.peepholes = peepholes
        if peepholes:
            self.p_i, self.p_f, self.p_o = (self.vector() for _ in range(3))
        for parameter in self.parameters():
            init.uniform_(parameter, 0.02)
        self.cell_clip = _bound("cell_clip", cell_clip)
        self.proj_clip = _bound("proj_clip", proj_clip)
        self.forget_bias = forget_bias  # added at run time, not stored in f.b, as in the ELMo weight files

    def step(self, x: Tensor, r: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        i, f, g, o = (gate(x, r) for gate in (self.i, self.f, self.g, self.o))
        if self.forget_bias:
            f = f + self.forget_bias
        if self.peepholes:
            i, f = i + self.p_i * c, f + self.p_f * c
        i, f, g = sigmoid(i), sigmoid(f), tanh(g)
        c = clip(f * c + i * g, self.cell_clip)
        if self.peepholes:
            o = o + self.p_o * c
        o = sigmoid(o)
        m = o * tanh(c)
        r = clip(self.R(m), self.proj_clip)
        return (r, c) if self.Q is None else (torch.cat([r, self.Q(m)], dim=-1), r, c)


def clip(value: Tensor, bound: float | None) -> Tensor:
    """Clamp to [-bound, bound]; None: no bound."""
    return value if bound is None else value.clamp(-bound, bound)


def _bound(argument: str, value: float | None) -> float | None:
    if value is not None and not value > 0:
        raise InputError(argument, value, "a positive number, or None")
    return value


@register("slope_lstm")
class SlopeLSTM(Memory):
    """Peephole LSTM whose gates learn the slopes of their sigmoids."""

    paper, year = "Doetsch, Kozielski & Ney, Fast and Robust Training of RNNs for Offline Handwriting Recognition", 2014

    def __init__(self, input_size: int, hidden_size: int, per: str = "unit"):
        super().__init__(input_size, hidden_size)
        if per not in ("unit", "gate"):
            raise InputError("per", repr(per), "'unit' or 'gate'")
        slopes = hidden_size if per == "unit" else 1
        self.i, self.f, self.g, self.o = (self.affine("x", "h") for _ in range(4))
        self.p_i, self.p_f, self.p_o = (self.vector() for _ in range(3))
        self.lambda_i, self.lambda_f, self.lambda_o = (self.vector(slopes, fill=1.0) for _ in range(3))
        init.constant_(self.f.b, 1.0)

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i = sigmoid(self.lambda_i * (self.i(x, h) + self.p_i * c))
        f = sigmoid(self.lambda_f * (self.f(x, h) + self.p_f * c))
        g = tanh(self.g(x, h))
        c = f * c + i * g
        o = sigmoid(self.lambda_o * (self.o(x, h) + self.p_o * c))
        return o * tanh(c), c


@register("dynamic_cortex_memory", "dcm")
class DynamicCortexMemory(Memory):
    """Peephole LSTM with gate recurrence inside each cell: diagonal matrices between its gates."""

    paper, year = "Otte, Liwicki & Zell, Dynamic Cortex Memory: Enhancing Recurrent Neural Networks", 2014
    states = ("h", "c", "i", "f", "o")

    def __init__(self, input_size: int, hidden_size: int, same_step: bool = False):
        super().__init__(input_size, hidden_size)
        self.i, self.f, self.g, self.o = (self.affine("x", "h") for _ in range(4))
        self.p_i, self.p_f, self.p_o = (self.vector() for _ in range(3))
        self.r_ii, self.r_if, self.r_io = (self.vector() for _ in range(3))  # first letter: the gate that receives
        self.r_fi, self.r_ff, self.r_fo = (self.vector() for _ in range(3))
        self.r_oi, self.r_of, self.r_oo = (self.vector() for _ in range(3))
        self.same_step = same_step
        if same_step:
            self.k_fi, self.k_oi, self.k_of = (self.vector() for _ in range(3))
        init.constant_(self.f.b, 1.0)

    def step(self, x: Tensor, h: Tensor, c: Tensor, i: Tensor, f: Tensor, o: Tensor) -> tuple[Tensor, ...]:
        a_i = self.i(x, h) + self.p_i * c + self.r_ii * i + self.r_if * f + self.r_io * o
        a_f = self.f(x, h) + self.p_f * c + self.r_fi * i + self.r_ff * f + self.r_fo * o
        a_o = self.o(x, h) + self.r_oi * i + self.r_of * f + self.r_oo * o
        i = sigmoid(a_i)
        f = sigmoid(a_f + self.k_fi * i if self.same_step else a_f)
        g = tanh(self.g(x, h))
        c = f * c + i * g
        a_o = a_o + self.p_o * c
        o = sigmoid(a_o + self.k_oi * i + self.k_of * f if self.same_step else a_o)
        return o * tanh(c), c, i, f, o
