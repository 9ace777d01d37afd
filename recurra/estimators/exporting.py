"""An estimator's network with everything around it, as it is written to an ONNX file."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from recurra.estimators.scaling import Scaling


def write(module: nn.Module, path: str | Path, example: Any, facts: dict[str, Any]) -> Path:
    """A file that is checked in onnxruntime and holds the facts, as JSON, in its metadata; else none."""
    from recurra.interop.onnx import export
    from recurra.interop.onnx.errors import package

    onnx, path = package("onnx"), Path(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        export(module, draft, example)
        model = onnx.load(draft)
        for name, value in facts.items():
            model.metadata_props.add(key=name, value=json.dumps(value, ensure_ascii=False))
        onnx.save(model, draft)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return path


class Standalone(nn.Module):
    """Raw sequences (T, B, D) and their lengths (B,) → probabilities, or numbers in the units of the targets."""

    def __init__(self, network: nn.Module, inputs: "Scaling", targets: "Scaling | None" = None):
        super().__init__()
        self.network, self.softmax = network, targets is None
        self.register_buffer("mean", tensor(inputs.mean))
        self.register_buffer("scale", tensor(inputs.scale))
        outputs = targets or type(inputs).none(1)
        self.register_buffer("target_mean", tensor(outputs.mean))
        self.register_buffer("target_scale", tensor(outputs.scale))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        answers = self.network((x - self.mean) / self.scale, lengths)
        return answers.softmax(dim=-1) if self.softmax else answers * self.target_scale + self.target_mean


def tensor(values: np.ndarray) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)
