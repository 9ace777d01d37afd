"""What the arrays of an ELMo file mean in the network: every parameter as the part of an array it is stored in."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ...interop.allennlp import Options, cell_name
from ..language.stack import Stack
from .characters import CharacterEncoder

#: a file's key, a part of that array, and the parameter that lies there, seen in the file's layout
Place = tuple[str, Any, Tensor]
ALL = slice(None)
#: the file's order i, j, f, o; j is the candidate
GATES = ("i", "g", "f", "o")


@torch.no_grad()
def load_arrays(encoder: CharacterEncoder, ways: list[Stack], arrays: Mapping[str, Tensor]) -> None:
    for key, part, parameter in _places(encoder, ways):
        parameter.copy_(arrays[key][part])


@torch.no_grad()
def to_arrays(encoder: CharacterEncoder, ways: list[Stack], options: Options) -> dict[str, Tensor]:
    arrays = {key: torch.zeros(shape) for key, shape in options.shapes().items()}
    for key, part, parameter in _places(encoder, ways):
        arrays[key][part] = parameter.float().cpu()
    return arrays


def _places(encoder: CharacterEncoder, ways: list[Stack]) -> Iterator[Place]:
    yield "char_embed", ALL, encoder.table.weight[1:]  # row 0, padding, is not stored
    for k, convolution in enumerate(encoder.convolutions):
        yield f"CNN/W_cnn_{k}", 0, convolution.weight.permute(2, 1, 0)  # (out, in, width) as (width, in, out)
        yield f"CNN/b_cnn_{k}", ALL, convolution.bias  # pyrefly: ignore
    for k, highway in enumerate(encoder.gates):
        for name, linear in (("carry", highway.gate), ("transform", highway.transform)):
            yield f"CNN_high_{k}/W_{name}", ALL, linear.weight.T
            yield f"CNN_high_{k}/b_{name}", ALL, linear.bias
    if encoder.projection is not None:
        yield "CNN_proj/W_proj", ALL, encoder.projection.weight.T
        yield "CNN_proj/b_proj", ALL, encoder.projection.bias
    for direction, stack in enumerate(ways):
        for number, layer in enumerate(stack.sheets):
            yield from _cell(cell_name(direction, number), layer.cell_list[0])


def _cell(name: str, cell: Any) -> Iterator[Place]:
    """W_0 holds the input's rows above the state's, and the four gates side by side."""
    hidden, width = cell.i.U.shape
    for number, gate in enumerate(GATES):
        affine, columns = getattr(cell, gate), slice(number * hidden, (number + 1) * hidden)
        yield f"{name}/W_0", (slice(0, width), columns), affine.U.T
        yield f"{name}/W_0", (slice(width, None), columns), affine.W.T
        yield f"{name}/B", columns, affine.b
    yield f"{name}/W_P_0", ALL, cell.R.W.T
