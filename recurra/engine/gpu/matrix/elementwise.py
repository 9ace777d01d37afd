"""Elementwise values of all rows: one kernel computes many of them. By torch each would be read and written in turn.

A kernel has one width. What it reads is a tensor of that width, a column, a row that all rows share, or a number for
each of some equal groups of columns.
"""

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...ir.index_map import IndexMap
from ...ir.nodes import Node
from ...on_device import on_device
from ..math_functions import can_write, expression, number, preamble
from ..persistent.launch import load_module, rounding

ELEMENTS, COLUMNS, WARPS = 2048, 512, 4  # of a program


def is_written(node: Node) -> bool:
    """Whether a kernel computes it beside other values."""
    return node.op == "expand" or can_write(node.op)


def group_of(node: Node) -> int:
    """How many columns read the same number of the argument, for a gather that repeats each number; else 0."""
    if node.op != "gather" or node.attr.terms != 1 or len(node.args) != 1:
        return 0
    return _group(node.attr.maps[0], node.args[0].width)


@functools.lru_cache(maxsize=512)
def _group(index: IndexMap, numbers: int) -> int:
    group, rest = divmod(index.width, numbers)
    if rest or group < 2:
        return 0
    return group if torch.equal(index.places[0], torch.arange(index.width) // group) else 0


@dataclass
class ElementwiseSource:
    """A generated kernel, what it reads and what it stores."""

    text: str
    inputs: list[Node]


def render(outputs: Sequence[Node], known: Collection[Node], exact: bool) -> ElementwiseSource:
    """The kernel that stores some values of one width, from known ones. `exact`: functions of 32-bit accuracy."""
    lines: list[str] = []
    inputs: list[Node] = []
    names: dict[Node, str] = {}

    def read(node: Node, columns: str) -> str:
        if node not in inputs:
            inputs.append(node)
        place = inputs.index(node)
        if node.width == 1:
            return f"load_f32(i{place} + row * stride{place}, live)"
        return f"load_f32(i{place} + row * stride{place} + {columns}, live & here)"

    def write(node: Node) -> str:
        if node in names:
            return names[node]
        if node.op == "const":
            return number(node.attr)
        if node in known:
            value = read(node, "column")
        elif group := group_of(node):
            value = read(node.args[0], f"column // {group}")
        elif node.op == "expand":
            return write(node.args[0])
        else:
            value = expression(node.op, node.attr, [write(argument) for argument in node.args])
        names[node] = f"n{node.index}"
        lines.append(f"n{node.index} = {value}")
        return names[node]

    for place, node in enumerate(outputs):
        lines.append(f"store(o{place} + row * step{place} + column, {write(node)}, live & here)")
    body = [
        "row = (L.program_id(0).to(L.int64) * ROWS + L.arange(0, ROWS))[:, None]",
        "column = (L.program_id(1) * COLUMNS + L.arange(0, COLUMNS))[None, :]",
        f"live, here = row < count, column < {outputs[0].width}",
        *lines,
    ]
    parameters = [f"i{i}, stride{i}" for i in range(len(inputs))] + [f"o{i}, step{i}" for i in range(len(outputs))]
    text = [
        "from recurra.engine.gpu.tiles_triton import *",
        "from recurra.engine.gpu.tiles_triton import L, constexpr, jit",
        "",
        preamble(exact, "\n".join(body)),
        "",
        '@jit(do_not_specialize=["count"])',
        f"def kernel({', '.join(parameters)}, count, ROWS: constexpr, COLUMNS: constexpr):",
        *("    " + line for line in body),
    ]
    return ElementwiseSource("\n".join(text) + "\n", inputs)


def launch(source: ElementwiseSource, known: Mapping[Node, Tensor], places: Sequence[Tensor], as_written: bool) -> None:
    """Store the values of a kernel in some places (rows, width). `as_written`: without fused multiply-adds."""
    (count, width), device = places[0].shape, places[0].device
    given: list[Tensor | int] = []
    for node in source.inputs:
        value = known[node]
        value = value if value.stride(1) == 1 or value.shape[1] == 1 else value.contiguous()
        given += [value, 0 if value.shape[0] == 1 else value.stride(0)]
    for place in places:
        given += [place, place.stride(0)]
    columns = min(COLUMNS, 1 << (width - 1).bit_length())
    rows = ELEMENTS // columns
    options = {} if device.type == "cpu" else {"num_warps": WARPS} | rounding(as_written)
    grid = -(-count // rows), -(-width // columns)
    with on_device(device):
        load_module(source.text).kernel[grid](*given, count, rows, columns, **options)
