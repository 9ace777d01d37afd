"""An estimator's network with everything around it, as it is written to an ONNX file."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from recurra.estimators.scaling import Scaling


class Standalone(nn.Module):
    """Raw sequences (T, B, D) and their lengths (B,) → probabilities, or numbers in the units of the targets."""

    def __init__(self, network: nn.Module, inputs: "Scaling", targets: "Scaling | None" = None):
        super().__init__()
        self.network, self.softmax = network, targets is None
        self.register_buffer("mean", _tensor(inputs.mean))
        self.register_buffer("scale", _tensor(inputs.scale))
        outputs = targets or type(inputs).none(1)
        self.register_buffer("target_mean", _tensor(outputs.mean))
        self.register_buffer("target_scale", _tensor(outputs.scale))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        answers = self.network((x - self.mean) / self.scale, lengths)
        return answers.softmax(dim=-1) if self.softmax else answers * self.target_scale + self.target_mean


def _tensor(values: np.ndarray) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)
