"""Convolutions over units, group norm, written-out tensors and indices in buffers compile, and agree with torch."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.engine.guards import constant_buffers

B, D, H = 3, 4, 12


class Applied(rc.Cell):
    """`tanh` of a sum of operations on `W h + U x + b`."""

    def __init__(self, input_size: int, hidden_size: int, kinds: tuple[str, ...]):
        super().__init__(input_size, hidden_size)
        self.a, self.kinds = self.affine("x", "h"), kinds
        self.conv = nn.Conv1d(1, 1, 3, padding=1)
        self.dilated = nn.Conv1d(3, 6, 2, stride=2, padding=1, dilation=2, groups=3, bias=False)
        self.image = nn.Conv2d(1, 2, (2, 3), padding=(0, 1))
        self.norm = nn.GroupNorm(3, hidden_size)
        self.planes = nn.GroupNorm(2, 4, affine=True)
        self.register_buffer("order", torch.randperm(hidden_size, generator=torch.Generator().manual_seed(0)))
        self.table = [0.5, -1.0, 2.0]

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        v = self.a(x, h)
        return torch.tanh(sum(k * getattr(self, f"_{kind}")(v) for k, kind in enumerate(self.kinds, 1)) + 0.3 * h)

    def _convolution(self, v: Tensor) -> Tensor:
        return self.conv(v[:, None])[:, 0]

    def _dilated(self, v: Tensor) -> Tensor:
        return self.dilated(v.view(-1, 3, 4)).flatten(1)

    def _image(self, v: Tensor) -> Tensor:
        return self.image(v.view(-1, 1, 3, 4)).flatten(1)[:, :12]

    def _circular(self, v: Tensor) -> Tensor:
        return F.conv1d(F.pad(v[:, None], (1, 1), mode="circular"), self.conv.weight)[:, 0]

    def _same_padding(self, v: Tensor) -> Tensor:
        return F.conv1d(v[:, None], self.conv.weight, padding="same")[:, 0]

    def _group_norm(self, v: Tensor) -> Tensor:
        return self.norm(v)

    def _group_norm_of_planes(self, v: Tensor) -> Tensor:
        return self.planes(v.view(-1, 4, 3)).flatten(1)

    def _plain_group_norm(self, v: Tensor) -> Tensor:
        return F.group_norm(v, 2)

    def _literal(self, v: Tensor) -> Tensor:
        return (v.view(-1, 4, 3) * torch.tensor([0.5, -1.0, 2.0])).flatten(1)

    def _literal_from_a_list(self, v: Tensor) -> Tensor:
        return (v.view(-1, 4, 3) * torch.tensor(self.table, dtype=v.dtype)).flatten(1)

    def _literal_matrix(self, v: Tensor) -> Tensor:
        turn = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], dtype=v.dtype)
        return (v.view(-1, 4, 3) @ turn).flatten(1)

    def _literal_indices(self, v: Tensor) -> Tensor:
        return v[:, torch.tensor([3, 1, 2, 0, -1, 5, 6, 7, 8, 9, 10, 4])]

    def _list_of_indices(self, v: Tensor) -> Tensor:
        return v[:, [3, 1, 2, 0, 11, 5, 6, 7, 8, 9, 10, 4]]

    def _index_select(self, v: Tensor) -> Tensor:
        return v.index_select(-1, self.get_buffer("order"))

    def _gather(self, v: Tensor) -> Tensor:
        return v.gather(-1, self.order.expand(v.shape[0], -1))

    def _index(self, v: Tensor) -> Tensor:
        return v[:, self.order]

    def _index_of_index(self, v: Tensor) -> Tensor:
        return v[:, self.order[self.order]] * (v > 0).any(-1, keepdim=True) + (v < 9).all(1, keepdim=True)


KINDS = {
    "windows": ("convolution", "dilated", "image", "same_padding", "circular"),
    "norms": ("group_norm", "group_norm_of_planes", "plain_group_norm"),
    "literals": ("literal", "literal_from_a_list", "literal_matrix", "literal_indices", "list_of_indices"),
    "indices": ("index_select", "gather", "index", "index_of_index"),
}


def make(kind: str, **options: Any) -> rc.Recurrent:
    return rc.Recurrent(Applied, D, H, kinds=KINDS[kind], **{"dtype": torch.float64, **options})


def results(layer: rc.Recurrent, x: Tensor) -> list[Tensor]:
    leaf = x.clone().requires_grad_()
    y, _ = layer(leaf)
    wanted = [leaf, *(p for p in layer.parameters())]
    grads = torch.autograd.grad(
        (y * torch.cos(torch.arange(y.numel()).to(y)).view_as(y)).sum(), wanted, allow_unused=True
    )
    return [y.detach(), *(g for g in grads if g is not None)]


def compare(layer: rc.Recurrent, x: Tensor) -> None:
    with set_backend("compiled"):
        assert "backend: compiled" in rc.explain(layer, x)
        found = results(layer, x)
    with set_backend("reference"):
        expected = results(layer, x)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_and_equal_to_the_plain_loop(kind: str):
    compare(make(kind), torch.randn(4, B, D, dtype=torch.float64))


@pytest.mark.parametrize("how", ["in place", "data", "numpy", "another tensor", "load_state_dict"])
def test_indices_that_change_are_followed(how: str):
    layer, x = make("indices"), torch.randn(4, B, D, dtype=torch.float64)
    compare(layer, x)
    cell, new = layer.cell_list[0], torch.arange(H).flip(0)
    order = cell.get_buffer("order")
    if how == "in place":
        order.copy_(new)
    elif how == "data":
        order.data[:] = new
    elif how == "numpy":
        order.numpy()[:] = new.numpy()
    elif how == "another tensor":
        cell.order = new
    else:
        layer.load_state_dict(layer.state_dict() | {"cells.0.order": new})
    compare(layer, x)


def test_a_list_that_changes_is_followed():
    layer = make("literals")
    x = torch.randn(4, B, D, dtype=torch.float64)
    compare(layer, x)
    layer.cell_list[0].table[1] = 0.7  # pyrefly: ignore
    compare(layer, x)


def test_layers_with_other_indices_do_not_share_a_plan():
    layers = [make("indices") for _ in range(2)]
    x = torch.randn(4, B, D, dtype=torch.float64)
    for number, layer in enumerate(layers):
        layer.cell_list[0].get_buffer("order").copy_(torch.arange(H).roll(5 + number))
    for layer in layers:
        compare(layer, x)


def test_an_index_out_of_range_is_the_plain_loops_error():
    layer, x = make("indices"), torch.randn(4, B, D, dtype=torch.float64)
    layer.cell_list[0].get_buffer("order")[0] = H
    with pytest.warns(rc.EngineWarning, match="index"), set_backend("auto"), pytest.raises((IndexError, RuntimeError)):
        layer(x)


def test_only_few_integers_on_the_cpu_are_indices():
    cell = Applied(D, H, ())
    cell.register_buffer("many", torch.zeros(5000, dtype=torch.int64))
    cell.register_buffer("counter", torch.zeros((), dtype=torch.int64))
    cell.register_buffer("numbers", torch.zeros(3))
    assert list(constant_buffers(cell, ["many", "counter", "numbers", "order", "absent"])) == ["order"]


@pytest.mark.slow
def test_literals_in_a_compiled_graph():
    layer, x = make("literals"), torch.randn(4, B, D, dtype=torch.float64)
    with set_backend("compiled"):
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x)[0], layer(x)[0])


def test_equations_print_the_numbers_of_a_literal():
    class Weighted(rc.Cell):
        def __init__(self, input_size: int, hidden_size: int):
            super().__init__(input_size, hidden_size)
            self.a = self.affine("x", "h")

        def step(self, x: Tensor, h: Tensor) -> Tensor:
            w = torch.tensor([0.5, 1.0, 2.0, 3.0])
            return torch.tanh(self.a(x, h) * w)

    assert r"w_{t} &= \left[0.5; 1; 2; 3\right]" in Weighted.equations()


class Unsupported(rc.Cell):
    """In place, so that the step is decomposed, and with an operation that is not compiled."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        v = self.a(x, h).clone()
        v[:, 0] = 0.5
        return torch.tanh(v.cummax(-1).values)


def test_the_reason_of_a_decomposed_step_names_its_line():
    layer = rc.Recurrent(Unsupported, D, H)
    with pytest.warns(rc.EngineWarning, match="cummax"), set_backend("auto"):
        text = rc.explain(layer, torch.zeros(2, B, D))
    line = Unsupported.step.__code__.co_firstlineno + 3
    assert re.search(rf"does not take aten\.cummax\.default \(.*{Path(__file__).name}:{line}\)", text)
