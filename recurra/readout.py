"""From states to answers."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cell import positive_int
from .layers import Recurrent


class Readout(nn.Module):
    """The survey's output layer, `y = V h + b_y`, with an optional softmax.

    On a bidirectional layer h is [h→; h←], and the same line reads `V→ h→ + V← h← + b_y`.
    """

    def __init__(self, source: Recurrent | int, outputs: int, softmax: bool = False, bias: bool = True):
        super().__init__()
        size = source.output_size if isinstance(source, Recurrent) else positive_int("source", source)
        self.V = nn.Parameter(torch.empty(positive_int("outputs", outputs), size))
        nn.init.xavier_uniform_(self.V)
        self.register_parameter("b", nn.Parameter(torch.zeros(outputs)) if bias else None)
        self.softmax = softmax

    def forward(self, h: Tensor) -> Tensor:
        y = F.linear(h, self.V, self.b)
        return F.softmax(y, dim=-1) if self.softmax else y
