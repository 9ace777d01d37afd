"""A builder for ONNX graphs: each call adds a node and returns the name of its value."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .export_errors import package

OPSET = 18
IR_VERSION = 9  # old enough for runtimes of the last years
KINDS = {torch.float32: "FLOAT", torch.float64: "DOUBLE", torch.int64: "INT64", torch.bool: "BOOL"}


class Graph:
    """The nodes of a graph, in order. The body of a loop has an `outer` graph, which holds its constants."""

    def __init__(self, dtype: torch.dtype, outer: "Graph | None" = None, prefix: str = ""):
        self.helper, self.proto = package("onnx.helper"), package("onnx").TensorProto
        self.dtype, self.outer, self.prefix = dtype, outer, prefix
        self.nodes: list[Any] = []
        self.constants: dict[Any, str] = {}
        self.initializers: list[Any] = []
        self.count = 0

    @property
    def root(self) -> "Graph":
        return self.outer.root if self.outer else self

    def name(self, hint: str) -> str:
        self.root.count += 1
        return f"{self.root.prefix}{hint}_{self.root.count}"

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; returns the name of its result, or a list of names if there are several."""
        names = [self.name(op.lower()) for _ in range(outputs)]
        self.nodes.append(self.helper.make_node(op, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value: Tensor, hint: str = "constant") -> str:
        """The name of a constant tensor; equal constants are stored once."""
        if self.outer is not None:
            return self.outer.constant(value, hint)
        value = value.detach().cpu().contiguous()
        data = value.numpy().tobytes()
        key = (data, tuple(value.shape), value.dtype)
        if key not in self.constants:
            self.constants[key] = self.name(hint)
            self.initializers.append(self.tensor(self.constants[key], value))
        return self.constants[key]

    def tensor(self, name: str, value: Tensor) -> Any:
        kind = getattr(self.proto, KINDS[value.dtype])
        return self.helper.make_tensor(name, kind, list(value.shape), value.contiguous().numpy().tobytes(), raw=True)

    def number(self, value: float) -> str:
        return self.constant(torch.full((1, 1), value, dtype=self.dtype), "number")

    def integers(self, *values: int) -> str:
        return self.constant(torch.tensor(values, dtype=torch.int64), "integers")

    def value_info(self, name: str, shape: Sequence[int | str], dtype: torch.dtype | None = None) -> Any:
        kind = getattr(self.proto, KINDS[dtype or self.dtype])
        return self.helper.make_tensor_value_info(name, kind, list(shape))

    # ------------------------------------------------------------------------------------------ common operations

    def join(self, values: Sequence[str], axis: int) -> str:
        return values[0] if len(values) == 1 else self.add("Concat", *values, axis=axis)

    def cut(self, value: str, low: int, high: int, axis: int) -> str:
        return self.add("Slice", value, self.integers(low), self.integers(high), self.integers(axis))

    def split(self, value: str, sizes: Sequence[int], axis: int) -> list[str]:
        if len(sizes) == 1:
            return [value]
        return self.add("Split", value, self.integers(*sizes), outputs=len(sizes), axis=axis)

    def size(self, value: str, axis: int) -> str:
        """The length of an axis, as a tensor of one number."""
        return self.add("Shape", value, start=axis, end=axis + 1)
