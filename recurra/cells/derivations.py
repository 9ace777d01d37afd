"""Weights that are computed from others once a call, before the time loop starts."""

import torch
from torch import Tensor, nn

from .. import init


class Orthogonal(nn.Module):
    """`W = exp(S - Sᵀ)`: orthogonal to rounding in every dtype, whatever the generator S."""

    def forward(self, S: Tensor) -> Tensor:
        return torch.linalg.matrix_exp(S - S.mT)


def rotation_generator(size: int) -> Tensor:
    """S such that exp(S - Sᵀ) is drawn evenly from the rotations: half the logarithm of a random one."""
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
    """One row a memory block, repeated for each of its cells: the cells of a block share their gates."""

    def __init__(self, times: int):
        super().__init__()
        self.times = times

    def forward(self, rows: Tensor) -> Tensor:
        return rows.repeat_interleave(self.times, dim=0)


class BlockDiagonal(nn.Module):
    """Heads that see only themselves: `(heads, n, n)` blocks laid on the diagonal of one matrix."""

    def forward(self, blocks: Tensor) -> Tensor:
        return torch.block_diag(*blocks)
