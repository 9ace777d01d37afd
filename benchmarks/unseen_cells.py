"""Cells that are not in the registry, for benchmarks of user-defined cells."""

import torch
from torch import Tensor, sigmoid, tanh

import recurra as rc


class Chained(rc.Cell):
    """A product of what a product gave."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.inner, self.outer = self.affine("x", "h"), self.affine(hidden_size, "x")
        self.gate = self.affine("x", "h")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        update = sigmoid(self.gate(x, h))
        return (1 - update) * h + update * tanh(self.outer(torch.relu(self.inner(x, h)), x))


class Normalised(rc.Cell):
    """Every row of the gates is normalised."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.gate, self.new = self.affine("x", "h"), self.affine("x", "h")
        self.gain = self.vector(fill=1.0)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        update, new = (torch.layer_norm(a(x, h), (self.hidden_size,), self.gain) for a in (self.gate, self.new))
        return torch.lerp(h, tanh(new), sigmoid(update))


class FourStates(rc.Cell):
    """Memory at three speeds beside the output."""

    states = ("h", "fast", "slow", "count")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.i, self.f, self.o, self.z = (self.affine("x", "h") for _ in range(4))

    def step(self, x: Tensor, h: Tensor, fast: Tensor, slow: Tensor, count: Tensor) -> tuple[Tensor, ...]:
        keep = sigmoid(self.f(x, h))
        fast = keep * fast + sigmoid(self.i(x, h)) * tanh(self.z(x, h))
        slow = 0.95 * slow + 0.05 * fast
        count = keep * count + 1.0
        return sigmoid(self.o(x, h)) * tanh(fast + slow) / torch.sqrt(count), fast, slow, count


class Delayed(rc.Cell):
    """Reads itself one and five steps back."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size, delays={"h": (1, 5)})
        self.a, self.gate = self.affine("x", "h[1]", "h[5]"), self.affine("x", "h[1]")

    def step(self, x: Tensor, h: tuple[Tensor, ...]) -> Tensor:
        last, older = h
        gate = sigmoid(self.gate(x, last))
        return gate * last + (1 - gate) * tanh(self.a(x, last, older))


UNSEEN: dict[str, type[rc.Cell]] = {
    "two chained products": Chained,
    "row normalisation": Normalised,
    "four states": FourStates,
    "delays of 1 and 5": Delayed,
}
