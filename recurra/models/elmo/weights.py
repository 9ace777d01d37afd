"""Maps the arrays of an official ELMo file to the parameters of the network."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ...interop.allennlp import ElmoOptions, cell_name
from ..language.stack import Stack
from .characters import CharacterEncoder

#: key of an array in the file, a slice of it, and the parameter stored there, as a view in the file's layout
Place = tuple[str, Any, Tensor]
ALL = slice(None)
#: gates in the file's order i, j, f, o; j is the candidate
GATES = ("i", "g", "f", "o")


@torch.no_grad()
def load_arrays(encoder: CharacterEncoder, ways: list[Stack], arrays: Mapping[str, Tensor]) -> None:
    """Copy the arrays of a file into the network."""
    for key, part, parameter in _places(encoder, ways):
        parameter.copy_(arrays[key][part])


@torch.no_grad()
def to_arrays(encoder: CharacterEncoder, ways: list[Stack], options: ElmoOptions) -> dict[str, Tensor]:
    """The arrays of a file from the network."""
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
        for number, layer in enumerate(stack.layer_list):
            yield from _cell(cell_name(direction, number), layer.cell_list[0])


def _cell(name: str, cell: Any) -> Iterator[Place]:
    """The arrays of one LSTM: W_0 has the rows of the input above those of the state, the gates as columns."""
    hidden, width = cell.i.U.shape
    for number, gate in enumerate(GATES):
        affine, columns = getattr(cell, gate), slice(number * hidden, (number + 1) * hidden)
        yield f"{name}/W_0", (slice(0, width), columns), affine.U.T
        yield f"{name}/W_0", (slice(width, None), columns), affine.W.T
        yield f"{name}/B", columns, affine.b
    yield f"{name}/W_P_0", ALL, cell.R.W.T
