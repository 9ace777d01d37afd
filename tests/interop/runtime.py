"""ONNX files, run as a stranger would run them."""

from pathlib import Path

import onnxruntime
import torch
from torch import Tensor


def run(path: Path, *names: str, **given: Tensor) -> list[Tensor]:
    """The file's outputs (those named, or all)."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    outputs = session.run(list(names) or None, {name: value.numpy() for name, value in given.items()})
    return [torch.from_numpy(value) for value in outputs]


def flat(value: object) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else [tensor for part in value for tensor in flat(part)]


def near(found: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        scale = other.abs().max().clamp(min=1.0)
        assert float((one - other).abs().max() / scale) <= tolerance
