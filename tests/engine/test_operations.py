"""Operations a step of one's own may use: each runs compiled, and is what the reference says, value and gradient."""

import re
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from engine.compare import compare, sequences
from torch import Tensor, sigmoid, tanh

from recurra.cell import Cell
from recurra.engine.backend import set_backend
from recurra.engine.dispatch import choose
from recurra.engine.explain import explain

OPERATIONS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "softmax": lambda a, b, h, g: torch.softmax(3 * a, -1) + 0.3 * tanh(b),
    "softmax of a far value": lambda a, b, h, g: torch.softmax(a + 1000.0, -1) * b,
    "log_softmax": lambda a, b, h, g: 0.1 * F.log_softmax(a, -1) * tanh(b),
    "logsumexp": lambda a, b, h, g: tanh(a - a.logsumexp(-1, keepdim=True)) + 0.1 * b,
    "amax": lambda a, b, h, g: tanh(a - a.amax(-1, keepdim=True)) + 0.5 * h,
    "amax of equals": lambda a, b, h, g: tanh(a) + b * torch.clamp(a, -0.1, 0.1).amax(-1, keepdim=True),
    "norm": lambda a, b, h, g: a / (1 + a.norm(dim=-1, keepdim=True)) + 0.2 * h / h.norm(dim=-1, keepdim=True),
    "normalize": lambda a, b, h, g: F.normalize(a, dim=-1) + 0.1 * F.normalize(torch.relu(-torch.abs(b)), dim=-1),
    "norm of order 1": lambda a, b, h, g: a / (1 + a.norm(p=1, dim=-1, keepdim=True)),
    "largest size": lambda a, b, h, g: a / (1 + a.norm(p=float("inf"), dim=-1, keepdim=True)),
    "std": lambda a, b, h, g: tanh((a - a.mean(-1, keepdim=True)) / a.std(-1, keepdim=True)),
    "lerp": lambda a, b, h, g: torch.lerp(h, tanh(a), sigmoid(b)),
    "lerp by a number": lambda a, b, h, g: torch.lerp(h, tanh(a), 0.3),
    "addcmul": lambda a, b, h, g: torch.addcmul(0.5 * h, sigmoid(a), tanh(b), value=0.7),
    "addcdiv": lambda a, b, h, g: torch.addcdiv(0.5 * h, tanh(a), 1 + b * b, value=0.7),
    "hardsigmoid": lambda a, b, h, g: F.hardsigmoid(3 * a) * tanh(b),
    "hardswish": lambda a, b, h, g: 0.5 * F.hardswish(3 * a),
    "mish": lambda a, b, h, g: 0.5 * F.mish(a),
    "celu": lambda a, b, h, g: 0.5 * F.celu(a, 0.5),
    "threshold": lambda a, b, h, g: 0.5 * F.threshold(a, 0.1, -0.3),
    "prelu": lambda a, b, h, g: 0.5 * F.prelu(a, g),
    "glu": lambda a, b, h, g: tanh(F.glu(torch.cat([a, b], -1))),
    "roll": lambda a, b, h, g: torch.roll(tanh(a), 3, -1) + 0.2 * b,
    "addmm with factors": lambda a, b, h, g: tanh(a + torch.addmm(g, h, torch.outer(g, g).t(), beta=2, alpha=0.5)),
    "a product of one number added to others": lambda a, b, h, g: tanh(a + F.linear(h, g[None])),
    "power of zero": lambda a, b, h, g: tanh(a) * (h**0).sum(-1, keepdim=True) / 21,
    "all rows": lambda a, b, h, g: tanh(a)[: h.shape[0]] + 0.1 * b[0 : h.shape[0], :],
    "truths added": lambda a, b, h, g: tanh(a) * ((b > 0) + (h > 0)),
    "truths counted": lambda a, b, h, g: tanh(a) * (b > 0).sum(-1, keepdim=True) / 21,
    "cast to truth": lambda a, b, h, g: tanh(a) * torch.relu(b).bool(),
    "cast to whole numbers": lambda a, b, h, g: tanh(a + (3 * b).to(torch.int32)),
    "masked_fill": lambda a, b, h, g: tanh(a).masked_fill(b > 0, 0.3),
    "softplus with a threshold": lambda a, b, h, g: 0.3 * F.softplus(a, beta=2.0, threshold=1.0),
    "clamp between values": lambda a, b, h, g: torch.clamp(tanh(a), -torch.abs(b), g) + 0.1 * h,
    "power of a number": lambda a, b, h, g: 2.0 ** tanh(a) - 1,
    "amin": lambda a, b, h, g: tanh(a - a.amin(-1, keepdim=True)) + 0.5 * h,
    "repeat": lambda a, b, h, g: tanh(a) + 0.2 * b.mean(-1, keepdim=True).repeat(1, 21),
    "products with parts that overlap": lambda a, b, h, g: tanh(
        a + F.linear(h[:, :9], torch.outer(g, g[:9])) + F.linear(h[:, 5:], torch.outer(g, g[5:]))
        + h[:, 3:12].mean(1)[:, None]),
    "variance of what changes in place": lambda a, b, h, g: tanh(b.add_(a) / (b.var(-1, keepdim=True) + 1)),
    "logsigmoid of what changes in place": lambda a, b, h, g: 0.3 * F.logsigmoid(b.add_(a)),
    "one unit read by all": lambda a, b, h, g: 0.5 * tanh(a) + h[:, :1] * g,
}  # fmt: skip
# Other shapes in which a row is seen on its way: a product from the left, a row as a column, a row by heads. `w` is a
# matrix of weights, `size` the number of sequences.
SHAPES: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    "columns": lambda h, w, size: (w @ h.T).T,
    "columns by torch.mm": lambda h, w, size: torch.mm(w, h.t()).t(),
    "columns by other names": lambda h, w, size: (w @ h.transpose(0, 1)).mT + (w @ h.permute(1, 0)).swapaxes(0, 1),
    "columns through several operations": lambda h, w, size: (w @ tanh(w @ h.T + w[:, :1])).T,
    "columns cut, joined and normalised": lambda h, w, size: torch.softmax(w @ torch.cat([h.T[4:], h.T[:4]]), 0).T,
    "addmm of columns": lambda h, w, size: torch.addmm(w[:, :1], w, h.T, alpha=0.5).T,
    "einsum bi,oi->bo": lambda h, w, size: torch.einsum("bi,oi->bo", h, w),
    "einsum oi,bi->bo": lambda h, w, size: torch.einsum("oi,bi->bo", w, h),
    "einsum bi,io->bo": lambda h, w, size: torch.einsum("bi,io->bo", h, w),
    "einsum io,bi->bo": lambda h, w, size: torch.einsum("io,bi->bo", w, h),
    "einsum oi,bi->ob": lambda h, w, size: torch.einsum("oi,bi->ob", w, h).T,
    "einsum of three": lambda h, w, size: torch.einsum("bi,oi,bo->bo", h, w, tanh(h)),
    "einsum with a vector": lambda h, w, size: torch.einsum("bi,i->b", h, w[0])[:, None] * h,
    "einsum of two rows": lambda h, w, size: torch.einsum("bi,bi->b", h, tanh(h))[:, None] * h,
    "tensordot": lambda h, w, size: torch.tensordot(h, w, dims=([1], [1])),
    "inner": lambda h, w, size: torch.inner(h, w),
    "a matrix for a column": lambda h, w, size: (w @ h.unsqueeze(-1)).squeeze(-1),
    "a matrix for a column, by index": lambda h, w, size: torch.matmul(w, h[..., None])[..., 0],
    "a column and a bias": lambda h, w, size: (w @ h.view(size, 21, 1) + w[:, :1]).view(size, 21),
    "a row and a matrix": lambda h, w, size: (h[:, None] @ w.T)[:, 0],
    "linear of a row": lambda h, w, size: F.linear(h[:, None, :], w, w[0]).squeeze(1),
    "bmm": lambda h, w, size: torch.bmm(w.expand(size, -1, -1), h.unsqueeze(2)).squeeze(2),
    "bmm from the right": lambda h, w, size: torch.bmm(h.unsqueeze(1), w.t()[None].expand(size, 21, 21)).squeeze(1),
    "bmm of copies": lambda h, w, size: torch.bmm(w[None].repeat(size, 1, 1), h[:, :, None]).flatten(1),
    "baddbmm": lambda h, w, size: torch.baddbmm(w[:, :1], w.expand(size, 21, 21), h[..., None], beta=0.5)[..., 0],
    "a repeated weight on its way": lambda h, w, size: (tanh(w.expand(size, -1, -1)).mT @ h[..., None])[..., 0],
    "a row there and back": lambda h, w, size: tanh(h[:, None]).squeeze(1) * h[None].squeeze(0),
    "views of a row": lambda h, w, size: h.view(size, 21) * h.reshape(-1, 21) + h[:, None].flatten(1),
    "a vector for every sequence": lambda h, w, size: h * w[0].expand(size, -1) + w[1].repeat(size, 1).sum(-1, True),
    "heads": lambda h, w, size: (tanh(h.view(size, 3, 7)) * w[0].view(3, 7) + w[0, :7]).view(size, 21),
    "sums by heads": lambda h, w, size: h.view(size, 7, 3).sum(-1).repeat(1, 3),
    "norms by heads": lambda h, w, size: F.layer_norm(h.view(size, 3, 7), (7,), w[0, :7]).reshape(size, 21),
    "softmax by heads": lambda h, w, size: torch.softmax(h.unflatten(-1, (3, 7)), -1).flatten(1) * w[0],
    "variance by heads": lambda h, w, size: (h.view(size, 3, 7) / (1 + h.view(size, 3, 7).var(-1, keepdim=True))
                                             ).flatten(1),
    "heads one by one": lambda h, w, size: torch.cat(h.view(size, 3, 7).unbind(1)[::-1], -1),
    "stacked": lambda h, w, size: torch.stack([h[:, :7], tanh(h[:, 7:14]), h[:, 14:]], 1).flatten(1),
    "assignment to a slice": lambda h, w, size: assigned(h, (slice(None), slice(2, 9)), h[:, 9:16]),
    "assignment of a number": lambda h, w, size: assigned(h, (..., slice(4)), 0.5),
    "assignment of a weight": lambda h, w, size: assigned(h, (..., slice(17, None)), w[0, :4]),
    "assignment to a unit": lambda h, w, size: assigned(h, (slice(None), -1), h.sum(-1)),
}  # fmt: skip
# What is left to the plain loop, and the words that say why.
LEFT: dict[str, tuple[Callable[[Tensor, Tensor, Tensor, Tensor], Tensor], str]] = {
    "another precision": (lambda a, b, h, g: tanh(a).float().to(h.dtype), "float32 inside a cell of torch.float64"),
    "a sum in another": (lambda a, b, h, g: tanh(a + h.sum(-1, keepdim=True, dtype=torch.float32)), "float32 inside"),
    "variance of a batch": (lambda a, b, h, g: tanh(a) * torch.var(b), "variance over all numbers"),
    "spread of a batch": (lambda a, b, h, g: tanh(a) * torch.std(b), "variance over all numbers"),
    "a clamp that torch hides from autograd": (
        lambda a, b, h, g: tanh(a) * torch.cosine_similarity(a, h)[:, None], "without its gradient"),
    "maximum of a batch": (lambda a, b, h, g: tanh(a) * b.amax(), "maximum over all numbers"),
    "sequences mixed": (lambda a, b, h, g: tanh(a + torch.softmax(h @ h.T, -1) @ h), "with time across sequences"),
    "sequences summed": (lambda a, b, h, g: tanh(a) - b.T.sum(-1), r"a sum over dimensions \[-1\]"),
    "the size of a batch": (lambda a, b, h, g: tanh(a) / len(h), "the batch size as a number"),
    "mean of a batch": (lambda a, b, h, g: tanh(a) - b.mean(0), r"sum over dimensions \[0\]"),
}  # fmt: skip


def assigned(row: Tensor, place: tuple, value: Tensor | float) -> Tensor:
    row = 0.7 * row
    row[place] = value
    return row


class Shaped(Cell):
    """An affine and, added to it, a value of h, a matrix and the number of sequences."""

    def __init__(self, input_size: int, hidden_size: int, added: Callable[[Tensor, Tensor, int], Tensor]):
        super().__init__(input_size, hidden_size)
        self.added, self.a = added, self.affine("x", "h")
        self.W = torch.nn.Parameter(torch.randn(hidden_size, hidden_size) / hidden_size**0.5)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h) + self.added(h, self.W, h.shape[0]))


def cell_of(operation: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor], units: int) -> Cell:
    class Made(Cell):
        def __init__(self, input_size: int, hidden_size: int):
            super().__init__(input_size, hidden_size)
            self.a, self.b = self.affine("x", "h"), self.affine("x", "h")
            self.gain = self.vector(fill=0.2)

        def step(self, x: Tensor, h: Tensor) -> Tensor:
            return operation(self.a(x, h), self.b(x, h), h, self.gain)

    return Made(5, units).double()


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_run_compiled(name: str):
    torch.manual_seed(3)
    cell = cell_of(OPERATIONS[name], 21)
    with set_backend("compiled"):
        found = compare(cell, sequences(cell, 5, 3, torch.float64, lengths=torch.tensor([5, 2, 4])))
    assert found.backend == "compiled"
    assert found.values < 1e-12
    assert found.gradients < (1e-7 if name == "hardswish" else 1e-10)  # torch's third is one of single precision


@pytest.mark.parametrize("name", SHAPES)
def test_rows_in_other_shapes_run_compiled(name: str):
    torch.manual_seed(3)
    cell = Shaped(5, 21, SHAPES[name]).double()
    found = compare(cell, sequences(cell, 5, 3, torch.float64, lengths=torch.tensor([5, 2, 4])))
    assert found.backend == "compiled"
    assert found.values < 1e-12
    assert found.gradients < 1e-10
    assert "backend: compiled" in explain(cell, torch.zeros(5, 3, 5, dtype=torch.float64))


def test_a_batch_of_one_keeps_its_shape():
    cell = Shaped(5, 21, SHAPES["a matrix for a column"]).double()
    found = compare(cell, sequences(cell, 4, 1, torch.float64))
    assert (found.backend, found.values < 1e-12, found.gradients < 1e-12) == ("compiled", True, True)


@pytest.mark.filterwarnings("ignore:Made runs on the reference engine")
@pytest.mark.parametrize("name", LEFT)
def test_what_the_plain_loop_runs_has_a_reason(name: str):
    operation, words = LEFT[name]
    cell = cell_of(operation, 21)
    given = sequences(cell, 3, 4, torch.float64)
    choice = choose(cell, given)
    assert choice.backend == "reference"
    assert re.search(words, choice.why)
    assert compare(cell, given).gradients == 0.0


@pytest.mark.parametrize("kind", [torch.int64, torch.bool])
def test_a_buffer_of_whole_numbers_or_truths_before_all_weights(kind: torch.dtype):
    class Masked(Cell):
        def __init__(self, input_size: int, hidden_size: int):
            super().__init__(input_size, hidden_size)
            self.register_buffer("open", (torch.arange(hidden_size) % 3).to(kind))
            self.linear = torch.nn.Linear(input_size + hidden_size, hidden_size)

        def step(self, x: Tensor, h: Tensor) -> Tensor:
            return torch.where(self.open > 0, tanh(self.linear(torch.cat([x, h], -1))), 0.5 * h)

    cell = Masked(5, 9).double()
    found = compare(cell, sequences(cell, 4, 3, torch.float64))
    assert (found.backend, found.values < 1e-12, found.gradients < 1e-12) == ("compiled", True, True)


@pytest.mark.parametrize("each", ["sequence", "step"])
def test_a_product_with_a_mask(each: str):
    class Conditioned(Cell):
        def __init__(self, input_size: int, hidden_size: int):
            super().__init__(input_size, hidden_size)
            self.a, self.b = self.affine("x", "h"), self.affine(9)
            self.mask("seen", 9, 0.5, each=each)

        def step(self, x: Tensor, h: Tensor, *, seen: Tensor) -> Tensor:
            return tanh(self.a(x, h) + self.b(seen))

    cell = Conditioned(5, 7).double()
    found = compare(cell, sequences(cell, 6, 3, torch.float64, lengths=torch.tensor([6, 2, 4])))
    assert (found.backend, found.values < 1e-12, found.gradients < 1e-12) == ("compiled", True, True)


def test_a_maximum_over_units_that_threads_share(monkeypatch: pytest.MonkeyPatch):
    from recurra.engine.cpu import kernel

    monkeypatch.setattr(kernel, "WORTH_THREADS", 0)
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        torch.manual_seed(4)
        cell = cell_of(OPERATIONS["softmax"], 70)
        found = compare(cell, sequences(cell, 6, 2, torch.float64))
    finally:
        torch.set_num_threads(threads)
    assert (found.backend, found.values < 1e-12, found.gradients < 1e-10) == ("compiled", True, True)


def test_nan_and_infinity_pass_through_a_maximum():
    cell = cell_of(OPERATIONS["amax"], 21)
    given = sequences(cell, 3, 2, torch.float64)
    with torch.no_grad():
        given.x[1, 0, 0] = float("nan")
    y = compare_values(cell, given)
    assert y[0].isfinite().all()
    assert y[1, 0].isnan().all()
    assert y[:, 1].isfinite().all()


def compare_values(cell: Cell, given) -> Tensor:
    from recurra.engine.dispatch import scan

    with set_backend("compiled"), torch.no_grad():
        return scan(cell, given).y


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_backward_finds_the_largest_where_forward_did(dtype: torch.dtype):
    """It computes `both + h` again, from what was kept. Here and there the compiler might round it in another way: once
    `both` is read by something else as well, once it is not."""

    def with_the_largest(a: Tensor, b: Tensor, h: Tensor, g: Tensor) -> Tensor:
        both = sigmoid(a) * tanh(b)
        return tanh(both) + 0.5 * (both + h).amax(-1, keepdim=True)

    torch.manual_seed(2)
    cell = cell_of(with_the_largest, 33).to(dtype)
    found = compare(cell, sequences(cell, 20, 7, dtype))
    assert found.backend == "compiled"
    assert found.gradients < (1e-12 if dtype == torch.float64 else 1e-4)
