"""Undamped oscillators as hidden units."""

import torch
from torch import Tensor, nn, sigmoid, tanh

from .. import init
from ..cell import Cell, register


@register("unicornn")
class UnICORNN(Cell):
    """Undamped independent oscillators: each unit reads only itself and the input; the steps conserve volume."""

    paper, year = "Rusch & Mishra, UnICORNN: A Recurrent Model for Learning Very Long Time Dependencies", 2021
    states = ("y", "z")

    def __init__(self, input_size: int, hidden_size: int, dt: float = 0.1, alpha: float = 1.0):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x")
        self.w = nn.Parameter(torch.rand(hidden_size))
        self.c = self.vector()
        init.uniform_(self.c, 0.1)
        self.dt, self.alpha = dt, alpha

    def step(self, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        d = self.dt * sigmoid(self.c)
        z = z - d * (tanh(self.w * y + self.a(x)) + self.alpha * y)
        y = y + d * z
        return y, z
