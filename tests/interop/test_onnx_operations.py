"""Every operation of a planned step, in onnxruntime and in torch."""

from typing import Any

import onnxruntime
import pytest
import torch
from torch import Tensor

from recurra.engine.ir.table import TABLE
from recurra.engine.ir.table import evaluate as evaluate_by_torch
from recurra.interop.onnx.graph import IR_VERSION, OPSET, Graph
from recurra.interop.onnx.operations import ONNX

LOGICAL = ("and", "or", "not", "where")
POSITIVE = ("log", "log2", "log10", "sqrt", "rsqrt", "pow", "power")
ATTRIBUTES = {
    "pow": [2.0, 3.0, -0.5],
    "clamp": [(-0.5, 0.7), (None, 0.3), (-0.2, None)],
    "integer": [32, 64],
    "spike": [("atan", 2.0, 1.0)],
}
PRIMITIVE = [op for op, rule in TABLE.items() if rule.expansion is None]
INSIDE = {"asin": (-1.0, 1.0), "acos": (-1.0, 1.0), "atanh": (-0.9, 0.9), "acosh": (1.1, 20.0)}
# onnxruntime has these in float32 only on the CPU.
NOT_DOUBLE = ["erf", "erfc", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "asinh", "acosh", "atanh"]
CLOSE = {torch.float32: 1e-6, torch.float64: 1e-13}
CASES = [
    pytest.param(op, attr, dtype, id=f"{op}-{attr}-{dtype}")
    for op in PRIMITIVE
    for attr in ATTRIBUTES.get(op, [None])
    for dtype in CLOSE
    if op not in NOT_DOUBLE or dtype != torch.float64
]
ROUNDING = {torch.float32: 1e-7, torch.float64: 2.3e-16}


def test_every_operation_has_a_rule() -> None:
    assert set(ONNX) == set(PRIMITIVE)


@pytest.mark.parametrize(("op", "attr", "dtype"), CASES)
def test_operation(op: str, attr: Any, dtype: torch.dtype) -> None:
    args = arguments(op, dtype)
    expected = evaluate_by_torch(op, args, attr)
    found = evaluate(op, attr, args)
    assert found.dtype == expected.dtype
    absolute = ROUNDING[dtype] if op in ("sigmoid", "erfc") else 1e-30  # both are right to the last digit of 1
    torch.testing.assert_close(found, expected, rtol=CLOSE[dtype], atol=absolute)


def arguments(op: str, dtype: torch.dtype) -> list[Tensor]:
    """Ordinary numbers, tiny ones of both signs, large ones and zero; pairs that agree here and there."""
    tiny = torch.tensor([1e-7, -1e-7, 3e-4, -3e-4, 0.0, 14.0, -14.0, 1.0, -0.9], dtype=torch.float64)
    first = torch.cat([tiny, torch.randn(40, dtype=torch.float64) * 2])[None].to(dtype)
    first = first.abs() + 1e-3 if op in POSITIVE else first
    first = first.clamp(min=-0.9) if op == "log1p" else first
    first = (first > 0).to(dtype) if op in LOGICAL else first
    second = torch.where(torch.rand_like(first) < 0.3, first, torch.randn_like(first))
    first = first.clamp(*INSIDE[op]) if op in INSIDE else first
    second = second.abs() + 0.1 if op in ("div", "fmod") else second
    second = (second > 0).to(dtype) if op in LOGICAL and op != "where" else second
    count = 1 + max(i for i in range(3) if f"{{{i}}}" in TABLE[op].cpp) if op != "clamp" else 1
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
