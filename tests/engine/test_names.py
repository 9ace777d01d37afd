"""States and masks may be called as the engine calls its own buffers."""

import pytest
import torch
from engine.compare import compare, sequences
from torch import Tensor, tanh

import recurra as rc
from recurra.errors import OptionError

NAMES = ["output", "doutput", "dx", "dh", "delta5", "carry", "kept", "shelf", "head", "named", "scratch", "vectors"]


def cell_with(state: str, mask: str | None = None) -> rc.Cell:
    def step(self: rc.Cell, x: Tensor, h: Tensor, other: Tensor) -> tuple[Tensor, ...]:
        new = tanh(self.a(x, h) + self.b(other) + 0.1 * x.sum(-1, keepdim=True))
        return new + other * other, new, 0.5 * other + 0.3 * new * x[:, :1] + h

    body = {"states": ("h", state), "step": step}
    if mask is not None:
        made: dict = {"plain": step}
        exec(f"def step(self, x, h, other, *, {mask}):\n    return plain(self, x, h * {mask}, self.c({mask}))", made)
        body["step"] = made["step"]
    cell = type("Named", (rc.Cell,), body)(3, 5)
    cell.a, cell.b = cell.affine("x", "h"), cell.affine(state)
    if mask is not None:
        cell.mask(mask, 5, 0.4, each="step")
        cell.c = cell.affine(5)
    return cell.double()


@pytest.mark.parametrize("keep_trace", [False, True])
@pytest.mark.parametrize("name", [*NAMES, "carry:h@1", "h[1]", "=kept", "two words", "two\nlines"])
def test_a_state(name: str, keep_trace: bool):
    cell = cell_with(name)
    found = compare(cell, sequences(cell, 6, 3, torch.float64), keep_trace)
    assert found.backend == "compiled"
    assert max(found.values, found.gradients) < 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_a_mask(name: str):
    cell = cell_with("c", name)
    found = compare(cell, sequences(cell, 6, 3, torch.float64))
    assert found.backend == "compiled"
    assert max(found.values, found.gradients) < 1e-12


@pytest.mark.parametrize("name", ["x", "t"])
def test_what_a_step_is_given_beside_states_lends_them_no_name(name: str):
    with pytest.raises(OptionError, match=f"states: got '{name}', expected other names: x is the input, t the time"):
        cell_with(name)


@pytest.mark.parametrize("name", ["x", "t", "h", "c"])
def test_a_mask_has_a_name_of_its_own(name: str):
    with pytest.raises(OptionError, match=f"mask: got {name}, expected a name not used before"):
        cell_with("c").mask(name, 5, 0.5)


def test_a_learned_start_takes_no_name_of_the_cells_own():
    class Offset(rc.Cell):
        def __init__(self, input_size: int, hidden_size: int):
            super().__init__(input_size, hidden_size)
            self.a, self.h_0 = self.affine("x", "h"), self.vector(fill=0.5)

        def step(self, x: Tensor, h: Tensor) -> Tensor:
            return tanh(self.a(x, h)) + self.h_0

    with pytest.raises(OptionError, match="no other attribute"):
        rc.Recurrent(Offset, 3, 4, initial="learned")
    with pytest.raises(OptionError, match="no other attribute"):
        cell_with("a.W").learn_start()
