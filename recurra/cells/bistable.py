"""Bistable cells: a unit whose gain a exceeds one has two stable states, and keeps either for ever."""

from torch import Tensor, sigmoid, tanh

from ..cell import Cell, register


@register("brc")
class BRC(Cell):
    """Bistable cell: each unit reads only its own state, and has two stable ones where its gain exceeds one."""

    paper, year = "Vecoven, Ernst & Drion, A Bio-inspired Bistable Recurrent Cell", 2021
    keep, candidate = ("c",), "g"

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a, self.c, self.g = (self.affine("x") for _ in range(3))
        self.w_a, self.w_c = (self.vector(fill=1.0) for _ in range(2))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        a = 1 + tanh(self.a(x) + self.w_a * h)
        c = sigmoid(self.c(x) + self.w_c * h)
        g = tanh(self.g(x) + a * h)
        return c * h + (1 - c) * g


@register("nbrc")
class NBRC(Cell):
    """Neuromodulated bistable cell: gain and gate of a unit read the whole state."""

    paper, year = BRC.paper, BRC.year
    keep, candidate = ("c",), "g"

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a, self.c = (self.affine("x", "h") for _ in range(2))
        self.g = self.affine("x")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        a = 1 + tanh(self.a(x, h))
        c = sigmoid(self.c(x, h))
        g = tanh(self.g(x) + a * h)
        return c * h + (1 - c) * g
