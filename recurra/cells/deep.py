"""Cells that are deep within one step: highway layers between two states, fast cells around a slow one."""

import torch
from torch import Tensor, sigmoid, tanh

from .. import init
from ..affine import Affine
from ..argument_checks import positive_int
from ..cell import Cell, register
from ..errors import InputError


@register("rhn")
class RHN(Cell):
    """Recurrent highway network: `transitions` highway layers between two steps; the first one reads x."""

    paper, year = "Zilly, Srivastava, Koutník & Schmidhuber, Recurrent Highway Networks", 2016

    def __init__(
        self, input_size: int, hidden_size: int, transitions: int = 3, coupled: bool = True, carry_bias: float = 2.0
    ):
        super().__init__(input_size, hidden_size)
        self.transitions, self.coupled = positive_int("transitions", transitions), coupled
        for k in range(1, transitions + 1):
            operands = ("x", "h") if k == 1 else ("h",)
            setattr(self, f"h_{k}", self.affine(*operands))
            setattr(self, f"t_{k}", self.affine(*operands))
            init.constant_(getattr(self, f"t_{k}").b, -carry_bias)  # the state is carried at first
            if not coupled:
                setattr(self, f"c_{k}", self.affine(*operands))
                init.constant_(getattr(self, f"c_{k}").b, carry_bias)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        for k in range(1, self.transitions + 1):
            read = (x, h) if k == 1 else (h,)
            gate = sigmoid(getattr(self, f"t_{k}")(*read))
            carry = 1 - gate if self.coupled else sigmoid(getattr(self, f"c_{k}")(*read))
            h = tanh(getattr(self, f"h_{k}")(*read)) * gate + h * carry
        return h


@register("fast_slow_lstm")
class FastSlowLSTM(Cell):
    """A chain of fast LSTMs within one step; a slow LSTM reads the first and is read by the second."""

    paper, year = "Mujika, Meier & Steger, Fast-Slow Recurrent Neural Networks", 2017
    states = ("h", "c", "s", "d")  # the fast output and memories (one after another), the slow output and memory

    def __init__(self, input_size: int, hidden_size: int, fast: int = 2, slow_size: int | None = None):
        if isinstance(fast, bool) or not isinstance(fast, int) or fast < 2:
            raise InputError("fast", fast, "a number of fast cells of at least 2")
        slow = hidden_size if slow_size is None else positive_int("slow_size", slow_size)
        super().__init__(input_size, hidden_size, sizes={"c": fast * hidden_size, "s": slow, "d": slow})
        self.fast = fast
        self._gates("fast_1", ("x", "h"), hidden_size)
        self._gates("slow", ("s", "h"), slow)
        self._gates("fast_2", ("h", "s"), hidden_size)
        for k in range(3, fast + 1):
            self._gates(f"fast_{k}", ("h",), hidden_size)

    def _gates(self, name: str, operands: tuple[str, ...], size: int) -> None:
        for gate in "ifgo":
            setattr(self, f"{name}_{gate}", self.affine(*operands, size=size))
        init.constant_(getattr(self, f"{name}_f").b, 1.0)

    def _lstm(self, name: str, memory: Tensor, *read: Tensor) -> tuple[Tensor, Tensor]:
        gates: list[Affine] = [getattr(self, f"{name}_{gate}") for gate in "ifgo"]
        write, keep, new, out = (gate(*read) for gate in gates)
        memory = sigmoid(keep) * memory + sigmoid(write) * tanh(new)
        return sigmoid(out) * tanh(memory), memory

    def step(self, x: Tensor, h: Tensor, c: Tensor, s: Tensor, d: Tensor) -> tuple[Tensor, ...]:
        size, memories = self.hidden_size, []
        for k in range(1, self.fast + 1):
            read = (x, h) if k == 1 else (h, s) if k == 2 else (h,)
            h, memory = self._lstm(f"fast_{k}", c[:, (k - 1) * size : k * size], *read)
            memories.append(memory)
            if k == 1:
                s, d = self._lstm("slow", d, s, h)
        return h, torch.cat(memories, dim=-1), s, d
