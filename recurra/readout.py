"""The linear output layer."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cell import positive_int
from .layers import Recurrent


class Readout(nn.Module):
    """The output layer `y = V h + b`, with an optional softmax.

    On a bidirectional layer h is [h→; h←], and V h is `V→ h→ + V← h←`.

    **Arguments**

    - `source`: the layer whose outputs are read, or their size F.
    - `outputs`: the size of y.
    - `softmax`: return probabilities instead of scores.
    - `bias`: whether to add b.

    **Returns**, when called with h (…, F), y (…, outputs).

    **Example**

        >>> import torch, recurra as rc
        >>> layer = rc.GRU(3, 4, bidirectional=True)
        >>> head = rc.Readout(layer, 5, softmax=True)
        >>> head(layer(torch.randn(6, 2, 3))[0]).shape
        torch.Size([6, 2, 5])
    """

    def __init__(self, source: Recurrent | int, outputs: int, softmax: bool = False, bias: bool = True):
        super().__init__()
        size = source.output_size if isinstance(source, Recurrent) else positive_int("source", source)
        self.V = nn.Parameter(torch.empty(positive_int("outputs", outputs), size))
        nn.init.xavier_uniform_(self.V)
        self.register_parameter("b", nn.Parameter(torch.zeros(outputs)) if bias else None)
        self.softmax = softmax

    def forward(self, h: Tensor) -> Tensor:
        """(…, H) → (…, q)."""
        y = F.linear(h, self.V, self.b)
        return F.softmax(y, dim=-1) if self.softmax else y
