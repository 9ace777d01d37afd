"""Complex cells in real numbers, because ONNX has no complex ones.

The recurrent product of the unitary network, a sequence of Fourier transforms, reflections and rotations, is linear in
[Re h; Im h]. Its dense real matrix is computed by running the cell's step on unit vectors.
"""

import torch
from torch import Tensor, nn, sqrt

from ...cell import Cell
from ...cells.unitary import UnitaryRNN, as_real
from ...engine.trace import trace_equations
from ...modifiers import LayerNorm
from .export_errors import ExportError


class RealUnitaryRNN(Cell):
    """The unitary network with a dense recurrent matrix."""

    def __init__(self, cell: UnitaryRNN):
        width = 2 * cell.hidden_size
        super().__init__(cell.input_size, cell.hidden_size, sizes={"h": width})
        self.net = self.affine("x", "h", size=width, bias=False)
        self.net.U = cell.net.U
        self.net.W = nn.Parameter(recurrent_matrix(cell))
        self.b = cell.b
        self.modifiers, self.masks, self.starts = cell.modifiers, cell.masks, cell.starts

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        re, im = self.net(x, h).chunk(2, dim=-1)
        modulus = sqrt(re * re + im * im)
        scale = torch.relu(modulus + self.b) / torch.where(modulus == 0, 1.0, modulus)
        return torch.cat([re * scale, im * scale], dim=-1)


def recurrent_matrix(cell: UnitaryRNN) -> Tensor:
    """The real (2n, 2n) matrix of `W h`: the step's value z_4 for every unit vector h."""
    step = trace_equations(cell)
    weights = cell.weights()
    eye = torch.eye(2 * cell.hidden_size, dtype=cell.b.dtype)
    given = {"x": eye.new_zeros(len(eye), cell.input_size), "h": eye}
    with torch.no_grad():
        results = step.function()(*(given[n] for n in step.inputs), *(weights[n] for n in step.weights))
    return as_real(results[len(step.outputs) + step.named.index("z_4")]).t().contiguous()


def real_form(cell: Cell) -> Cell:
    """The cell itself, or an equivalent one in real numbers."""
    if not isinstance(cell, UnitaryRNN):
        return cell
    if any(isinstance(modifier, LayerNorm) for modifier in cell.modifiers):
        raise ExportError("UnitaryRNN with LayerNorm cannot be written as ONNX: it normalises complex products")
    return RealUnitaryRNN(cell)
