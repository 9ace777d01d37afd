"""A learned gate between what enters a layer and what it puts out."""

from torch import Tensor, nn

from . import init
from .argument_checks import finite_number
from .cells.gru import GRU
from .errors import ShapeError


class GatedOutput(nn.Module):
    """The gating layer of GTrXL (Parisotto et al., *Stabilizing Transformers for Reinforcement Learning*, 2020).

    In place of the sum x + y of a residual connection, one step of a GRU whose state is x and whose input is y:

        r = σ(U_r y + W_r x)    z = σ(U_z y + W_z x - b)    g = tanh(U_g y + W_g (r ∗ x))    (1 - z) ∗ x + z ∗ g

    With b > 0 it starts close to the identity: a policy acts on what it sees before its memory has learned anything.

    **Arguments**

    - `size`: F, the size of x and of y.
    - `bias`: b; 2 in the paper's experiments on DMLab.

    **Returns**, when called with x and y (…, F), a tensor (…, F).

    **Example**

        >>> layer, gate = rc.GRU(8, 8), rc.GatedOutput(8)
        >>> x = torch.randn(5, 3, 8)
        >>> gate(x, layer(x)[0]).shape
        torch.Size([5, 3, 8])
    """

    def __init__(self, size: int, bias: float = 2.0):
        super().__init__()
        finite_number("bias", bias)
        self.gru = GRU(size, size)
        for affine in (self.gru.r, self.gru.z, self.gru.c):
            nn.init.xavier_uniform_(affine.U)
            nn.init.xavier_uniform_(affine.W)
        init.constant_(self.gru.z.b, -bias)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Two tensors (…, H) → (…, H)."""
        if x.shape != y.shape or x.shape[-1] != self.gru.hidden_size:
            got = f"x {tuple(x.shape)} and y {tuple(y.shape)}"
            raise ShapeError("x, y", got, f"two tensors (…, {self.gru.hidden_size}) of one shape")
        return self.gru.step(y.reshape(-1, x.shape[-1]), x.reshape(-1, x.shape[-1])).view(x.shape)
