"""Cells whose inputs and states are pictures, flattened channel by channel: (B, channels · height · width)."""

import torch
from torch import Tensor, nn, sigmoid, tanh

from .. import init
from ..affine import Affine
from ..argument_checks import positive_int
from ..cell import register
from ..errors import InputError
from .lstm import Memory


class Convolution(nn.Module):
    """The matrix of a convolution with zero padding, from its kernel (out, in, k, k): (out · H · W, in · H · W)."""

    def __init__(self, height: int, width: int):
        super().__init__()
        self.height, self.width = height, width

    def forward(self, kernel: Tensor) -> Tensor:
        outs, ins, k, _ = kernel.shape
        pixels = self.height * self.width
        eye = torch.eye(ins * pixels, dtype=kernel.dtype, device=kernel.device)
        pictures = eye.view(-1, ins, self.height, self.width)
        return nn.functional.conv2d(pictures, kernel, padding=k // 2).reshape(ins * pixels, outs * pixels).mT


@register("conv_lstm")
class ConvLSTM(Memory):
    """Peephole LSTM of pictures: products are convolutions, made into matrices once per call; for small pictures."""

    paper, year = (
        "Shi et al., Convolutional LSTM Network: An Approach for Precipitation Nowcasting",
        2015,
    )

    def __init__(self, input_size: int, hidden_size: int, height: int = 1, width: int = 1, kernel: int = 3):
        super().__init__(input_size, hidden_size)
        pixels = positive_int("height", height) * positive_int("width", width)
        for name, size in (("input_size", input_size), ("hidden_size", hidden_size)):
            if size % pixels:
                raise InputError(name, size, f"channels times {height} x {width} pixels")
        if positive_int("kernel", kernel) % 2 == 0:
            raise InputError("kernel", kernel, "an odd number of pixels")
        self.height, self.width, self.kernel = height, width, kernel
        self.i, self.f, self.g, self.o = (self._affine(pixels) for _ in range(4))
        self.p_i, self.p_f, self.p_o = (self.vector() for _ in range(3))
        init.constant_(self.f.stored("b"), 1.0)

    def _affine(self, pixels: int) -> Affine:
        made, k = self.affine("x", "h"), self.kernel
        outs = self.hidden_size // pixels
        for name, ins in (("U", self.input_size // pixels), ("W", outs)):
            weight = nn.Parameter(torch.empty(outs, ins, k, k))
            init.uniform_(weight, (6 / ((outs + ins) * k * k)) ** 0.5)  # Glorot
            made.derive(name, Convolution(self.height, self.width), raw=weight)
        made.derive("b", Pixels(pixels), raw=nn.Parameter(torch.zeros(outs)))
        return made

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i = sigmoid(self.i(x, h) + self.p_i * c)
        f = sigmoid(self.f(x, h) + self.p_f * c)
        g = tanh(self.g(x, h))
        c = f * c + i * g
        o = sigmoid(self.o(x, h) + self.p_o * c)
        return o * tanh(c), c


class Pixels(nn.Module):
    """One number per channel, for each of its pixels."""

    def __init__(self, pixels: int):
        super().__init__()
        self.pixels = pixels

    def forward(self, channels: Tensor) -> Tensor:
        return channels.repeat_interleave(self.pixels)
