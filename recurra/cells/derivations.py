"""Weights that are computed from others once a call, before the time loop starts."""

import torch
from torch import Tensor, nn

from .. import init


class Orthogonal(nn.Module):
    """`W = Q exp(S - Sᵀ)`: orthogonal whatever the generator S, and the fixed random Q where S = 0."""

    Q: Tensor

    def __init__(self, size: int):
        super().__init__()
        self.register_buffer("Q", init.orthogonal_(torch.empty(size, size)))

    def forward(self, S: Tensor) -> Tensor:
        return self.Q @ torch.linalg.matrix_exp(S - S.mT)


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
