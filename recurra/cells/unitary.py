"""The unitary RNN: a complex network whose recurrent matrix is unitary by construction."""

import math

import torch
from torch import Tensor, nn

from .. import init
from ..cell import Cell, register


@register("unitary_rnn", "urnn")
class UnitaryRNN(Cell):
    """Unitary evolution network: W = D₃ R₂ F⁻¹ D₂ Π R₁ F D₁ in O(n) parameters; state and output are [Re h; Im h]."""

    paper, year = "Arjovsky, Shah & Bengio, Unitary Evolution Recurrent Neural Networks", 2016

    def __init__(self, input_size: int, hidden_size: int):
        n = hidden_size
        super().__init__(input_size, hidden_size, sizes={"h": 2 * n})
        self.net = self.affine("x", size=2 * n, bias=False)
        self.theta_1, self.theta_2, self.theta_3 = (
            nn.Parameter(init.uniform_(torch.empty(n), math.pi)) for _ in range(3)
        )
        self.v_1, self.v_2 = (nn.Parameter(init.uniform_(torch.empty(2 * n), 1.0)) for _ in range(2))
        self.b = self.vector()
        self.register_buffer("permutation", torch.randperm(n))
        self.h_0 = nn.Parameter(init.uniform_(torch.empty(2 * n), math.sqrt(3 / (2 * n))))  # E‖h_0‖² = 1
        self.start("h", "h_0")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z_1 = torch.fft.fft(rotate(as_complex(h), self.theta_1), norm="ortho")
        z_2 = reflect(z_1, as_complex(self.v_1))[..., self.permutation]
        z_3 = torch.fft.ifft(rotate(z_2, self.theta_2), norm="ortho")
        z_4 = rotate(reflect(z_3, as_complex(self.v_2)), self.theta_3)  # = W h
        z = z_4 + as_complex(self.net(x))
        return as_real(modrelu(z, self.b))


def rotate(z: Tensor, theta: Tensor) -> Tensor:
    """`diag(e^{iθ}) z`."""
    return torch.polar(torch.ones_like(theta), theta) * z


def as_complex(real: Tensor) -> Tensor:
    """[Re; Im] → Re + i Im."""
    return torch.complex(*real.chunk(2, dim=-1))


def as_real(z: Tensor) -> Tensor:
    """Re + i Im → [Re; Im]."""
    return torch.cat([z.real, z.imag], dim=-1)


def reflect(z: Tensor, v: Tensor) -> Tensor:
    """`(I - 2 v v* / ‖v‖²) z` for every row z."""
    overlap = (z * v.conj()).sum(dim=-1, keepdim=True)
    return z - 2 * overlap * v / (v * v.conj()).sum(dim=-1, keepdim=True)


def modrelu(z: Tensor, b: Tensor) -> Tensor:
    """ReLU of the modulus plus b, with the phase kept; 0 stays 0."""
    modulus = z.abs()
    return z * (torch.relu(modulus + b) / torch.where(modulus == 0, 1.0, modulus))
