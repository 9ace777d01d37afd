"""Writes the ONNX file of an estimator: the network with its scaling, and metadata."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import InputError

if TYPE_CHECKING:
    from .scaling import Scaling


def write(
    module: nn.Module, path: str | Path, example: Any, facts: dict[str, Any], outputs: Sequence[str] = ()
) -> Path:
    """Export a module, check it in onnxruntime, and write the file with `facts` as JSON metadata.

    `outputs` names the first outputs; the states after them are called `next_` and the name of the state that goes in.
    """
    from ..interop.onnx import export
    from ..interop.onnx.export_errors import package

    path = Path(path)
    with _draft(path) as draft:
        export(module, draft, example)
        model = package("onnx").load(draft)
    name_outputs(model, outputs)
    return save_checked(model, path, facts, lambda written: None)


def name_outputs(model: Any, names: Sequence[str]) -> None:
    """Rename the outputs of an ONNX model: the first ones to `names`, the others after the states they continue."""
    from ..interop.onnx.export_errors import package

    graph, helper = model.graph, package("onnx").helper
    states = [given.name for given in graph.input if given.name.startswith("state")]
    wanted = [*names, *(f"next_{state}" for state in states)]
    for output, name in zip(graph.output, wanted, strict=False) if names else ():
        graph.node.append(helper.make_node("Identity", [output.name], [name]))
        output.name = name


def save_checked(model: Any, path: str | Path, facts: dict[str, Any], check: Callable[[Path], None]) -> Path:
    """Write an ONNX model to `path` if `check(draft)` raises no error."""
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
    """A temporary path beside the file, removed at the end."""
    if path.is_dir() or not path.parent.is_dir():
        raise InputError("path", path, "a file in a folder that exists")
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        yield draft
    finally:
        draft.unlink(missing_ok=True)


class ScaledNetwork(nn.Module):
    """A network with its scalings: unscaled (T, B, D) and lengths (B,) → probabilities, or numbers in target units."""

    def __init__(self, network: nn.Module, inputs: "Scaling", targets: "Scaling | None" = None, link: str = "softmax"):
        super().__init__()
        self.network, self.link = network, link
        self.register_buffer("mean", tensor(inputs.mean))
        self.register_buffer("scale", tensor(inputs.scale))
        scaling = targets or type(inputs).none(1)
        self.register_buffer("target_mean", tensor(scaling.mean))
        self.register_buffer("target_scale", tensor(scaling.scale))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        outputs = self.network((x - self.mean) / self.scale, lengths)
        if self.link == "identity":
            return outputs * self.target_scale + self.target_mean
        return outputs.softmax(dim=-1) if self.link == "softmax" else outputs.sigmoid()


def tensor(values: np.ndarray) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)
