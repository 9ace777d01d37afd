"""Every operation of a planned step, in onnxruntime and in torch."""

from typing import Any

import onnxruntime
import pytest
import torch
from torch import Tensor

from recurra.engine.ir.nodes import TABLE
from recurra.interop.onnx.graph import IR_VERSION, OPSET, Graph
from recurra.interop.onnx.operations import ONNX

LOGICAL = ("and", "or", "not", "where")
POSITIVE = ("log", "sqrt", "rsqrt", "pow")
ATTRIBUTES = {
    "pow": [2.0, 3.0, -0.5],
    "clamp": [(-0.5, 0.7), (None, 0.3), (-0.2, None)],
    "spike": [("fast_sigmoid", 25.0, 1.0)],
}
TWO = ("add", "sub", "mul", "div", "remainder", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "and", "or")
CLOSE = {torch.float32: 1e-6, torch.float64: 1e-13}
CASES = [
    pytest.param(op, attr, dtype, id=f"{op}-{attr}-{dtype}")
    for op in TABLE
    for attr in ATTRIBUTES.get(op, [None])
    for dtype in CLOSE
    if (op, dtype) != ("erf", torch.float64)  # onnxruntime has none on the CPU
]
ROUNDING = {torch.float32: 1e-7, torch.float64: 2.3e-16}


def test_every_operation_has_a_rule() -> None:
    assert set(ONNX) == set(TABLE)


@pytest.mark.parametrize(("op", "attr", "dtype"), CASES)
def test_operation(op: str, attr: Any, dtype: torch.dtype) -> None:
    args = arguments(op, dtype)
    extra = attr if op == "clamp" else () if attr is None else (attr,)
    expected = TABLE[op].torch(*args, *extra)
    found = evaluate(op, attr, args)
    assert found.dtype == expected.dtype
    absolute = ROUNDING[dtype] if op == "sigmoid" else 1e-30  # onnxruntime's is right to the last digit of 1
    torch.testing.assert_close(found, expected, rtol=CLOSE[dtype], atol=absolute)


def arguments(op: str, dtype: torch.dtype) -> list[Tensor]:
    """Ordinary numbers, tiny ones of both signs, large ones and zero; pairs that agree here and there."""
    tiny = torch.tensor([1e-7, -1e-7, 3e-4, -3e-4, 0.0, 14.0, -14.0, 1.0, -0.9], dtype=torch.float64)
    first = torch.cat([tiny, torch.randn(40, dtype=torch.float64) * 2])[None].to(dtype)
    first = first.abs() + 1e-3 if op in POSITIVE else first
    first = first.clamp(min=-0.9) if op == "log1p" else first
    first = (first > 0).to(dtype) if op in LOGICAL else first
    second = torch.where(torch.rand_like(first) < 0.3, first, torch.randn_like(first))
    second = second.abs() + 0.1 if op in ("div", "remainder") else second
    second = (second > 0).to(dtype) if op in LOGICAL and op != "where" else second
    count = 3 if op == "where" else 2 if op in TWO else 1
    return [first + 0.1 if op == "reciprocal" else first, second, torch.randn_like(first)][:count]


def evaluate(op: str, attr: Any, args: list[Tensor]) -> Tensor:
    graph = Graph(args[0].dtype)
    names = [f"argument_{k}" for k in range(len(args))]
    result = ONNX[op](graph, names, attr)
    graph.nodes.append(graph.helper.make_node("Identity", [result], ["result"]))
    inputs = [graph.value_info(name, (1, "n")) for name in names]
    whole = graph.helper.make_graph(
        graph.nodes, op, inputs, [graph.value_info("result", (1, "n"))], initializer=graph.initializers
    )
    opsets = [graph.helper.make_opsetid("", OPSET)]
    model = graph.helper.make_model(whole, opset_imports=opsets, ir_version=IR_VERSION)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feed = {name: value.numpy() for name, value in zip(names, args, strict=True)}
    return torch.from_numpy(session.run(None, feed)[0])
