"""Recurrent cells of world models in reinforcement learning."""

import torch
from torch import Tensor, nn, sigmoid, tanh

from .. import init
from ..affine import Affine
from ..argument_checks import positive_int
from ..cell import Cell, register
from ..errors import InputError
from .derivations import BlockDiagonal


@register("block_gru")
class BlockGRU(Cell):
    """GRU of DreamerV3: recurrent matrices of diagonal blocks, the reset after the product, updates shut by one."""

    paper, year = "Hafner, Pasukonis, Ba & Lillicrap, Mastering Diverse Domains through World Models", 2023
    write, candidate = ("z",), "g"

    def __init__(self, input_size: int, hidden_size: int, blocks: int | None = None):
        super().__init__(input_size, hidden_size)
        if blocks is None:
            blocks = max(number for number in range(1, 9) if hidden_size % number == 0)  # 8 in the paper
        if hidden_size % positive_int("blocks", blocks):
            raise InputError("blocks", blocks, f"a divisor of hidden_size = {hidden_size}")
        self.r, self.z, self.c = (self._affine(blocks) for _ in range(3))

    def _affine(self, blocks: int) -> Affine:
        made, n = self.affine("x", "h"), self.hidden_size // blocks
        if blocks > 1:
            parts = torch.stack([init.orthogonal_(torch.empty(n, n)) for _ in range(blocks)])
            made.derive("W", BlockDiagonal(), raw=nn.Parameter(parts))
        return made

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        r = sigmoid(self.r(x, h))
        z = sigmoid(self.z(x, h) - 1)
        g = tanh(r * self.c(x, h))
        return (1 - z) * h + z * g
