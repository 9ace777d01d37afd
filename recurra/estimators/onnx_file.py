"""An estimator's network with everything around it, as it is written to an ONNX file."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import InputError

if TYPE_CHECKING:
    from .scaling import Scaling


def write(module: nn.Module, path: str | Path, example: Any, facts: dict[str, Any]) -> Path:
    """A module as a file that is checked in onnxruntime and holds the facts, as JSON, in its metadata; else none."""
    from ..interop.onnx import export
    from ..interop.onnx.export_errors import package

    path = Path(path)
    with _draft(path) as draft:
        export(module, draft, example)
        model = package("onnx").load(draft)
    return put(model, path, facts, lambda written: None)


def put(model: Any, path: str | Path, facts: dict[str, Any], check: Callable[[Path], None]) -> Path:
    """An ONNX model in its place, if the check does not object to the draft of it."""
    path = Path(path)
    for name, value in facts.items():
        model.metadata_props.add(key=name, value=json.dumps(value, ensure_ascii=False))
    with _draft(path) as draft:
        draft.write_bytes(model.SerializeToString())
        check(draft)
        os.replace(draft, path)
    return path


@contextmanager
def _draft(path: Path) -> Iterator[Path]:
    """A name beside the file, free again at the end."""
    if path.is_dir() or not path.parent.is_dir():
        raise InputError("path", path, "a file in a folder that exists")
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        yield draft
    finally:
        draft.unlink(missing_ok=True)


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
