"""Derived weights: modules that compute a weight from a parameter, once per call, before the time loop."""

import torch
from torch import Tensor, nn

from .. import init


class Orthogonal(nn.Module):
    """`W = exp(S - Sᵀ)`: orthogonal up to rounding, for any S; with `reflect` its first row changes sign.

    exp reaches the rotations, det W = 1. The other half of the orthogonal group, det W = -1, is a reflection of it.
    """

    def __init__(self, reflect: bool = False):
        super().__init__()
        self.reflect = reflect

    def forward(self, S: Tensor) -> Tensor:
        W = torch.linalg.matrix_exp(S - S.mT)
        return torch.cat([-W[:1], W[1:]]) if self.reflect else W


def rotation_generator(size: int) -> Tensor:
    """S such that exp(S - Sᵀ) is a Haar-distributed rotation: half the logarithm of a random one."""
    Q = init.orthogonal_(torch.empty(size, size, dtype=torch.float64))
    Q[0] *= torch.linalg.det(Q).sign()  # a reflection has no real logarithm
    eigenvalues, vectors = torch.linalg.eig(Q)
    logarithm = (vectors * (1j * eigenvalues.angle())) @ vectors.mH
    return (logarithm.real / 2).to(torch.get_default_dtype())


class Antisymmetric(nn.Module):
    """`W = M - Mᵀ - γ I`: eigenvalues on the imaginary axis, moved left by the diffusion γ."""

    def __init__(self, diffusion: float):
        super().__init__()
        self.diffusion = diffusion

    def forward(self, M: Tensor) -> Tensor:
        return M - M.mT - self.diffusion * torch.eye(M.shape[0], dtype=M.dtype, device=M.device)


class RepeatRows(nn.Module):
    """Repeats the row of each memory block for its cells: the cells of a block share their gates."""

    def __init__(self, times: int):
        super().__init__()
        self.times = times

    def forward(self, rows: Tensor) -> Tensor:
        return rows.repeat_interleave(self.times, dim=0)


class BlockDiagonal(nn.Module):
    """`(heads, n, n)` blocks on the diagonal of one matrix: each head reads only itself."""

    def forward(self, blocks: Tensor) -> Tensor:
        heads, n, _ = blocks.shape
        # torch.block_diag copies the blocks one by one, which takes a GPU longer than a layer's whole sequence.
        return blocks.permute(1, 2, 0).diag_embed().permute(2, 0, 3, 1).reshape(heads * n, heads * n)


class Masked(nn.Module):
    """`W = V ⊙ mask`: only the entries where the mask is true exist."""

    def __init__(self, mask: Tensor):
        super().__init__()
        self.register_buffer("mask", mask.to(torch.get_default_dtype()))

    def forward(self, V: Tensor) -> Tensor:
        return V * self.mask


class Signed(nn.Module):
    """`W = |V| ⊙ sign` of the unit that sends (Dale's law), without the diagonal unless there are self-connections."""

    def __init__(self, sign: Tensor, self_connections: bool):
        super().__init__()
        exists = torch.ones(len(sign), len(sign)) if self_connections else 1 - torch.eye(len(sign))
        self.register_buffer("sign", (exists * sign).to(torch.get_default_dtype()))

    def forward(self, V: Tensor) -> Tensor:
        return V.abs() * self.sign


class ZeroDiagonal(nn.Module):
    """`W = V - diag(V)`: no unit reads itself."""

    def forward(self, V: Tensor) -> Tensor:
        return V * (1 - torch.eye(V.shape[0], dtype=V.dtype, device=V.device))
