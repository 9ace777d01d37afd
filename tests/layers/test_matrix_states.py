"""States with axes of their own: shapes that a step and a caller see, every way to call a layer, bad shapes."""

import pytest
import torch
from helpers import assert_close
from torch import Tensor

import recurra as rc
from recurra.errors import InputError, OptionError, ShapeError, TraceError


class Memory(rc.Cell):
    """A matrix per head that is read by the state, and a delayed one."""

    states = ("S", "h")

    def __init__(self, input_size: int, hidden_size: int, shape: tuple[int, ...] = (2, 3, 2), delays: bool = False):
        super().__init__(
            input_size,
            hidden_size,
            sizes={"S": shape},
            output_size=hidden_size,
            delays={"S": (1, 3)} if delays else None,
        )
        self.q, self.k = (self.affine("x", "h", size=shape[0] * shape[1]) for _ in range(2))
        self.v = self.affine("x")
        self.shape = shape

    def step(self, x: Tensor, S: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        S, past = S if isinstance(S, tuple) else (S, S)
        q, k = (gate(x, h).unflatten(1, self.shape[:2]) for gate in (self.q, self.k))
        v = self.v(x).unflatten(1, (self.shape[0], self.shape[2]))
        S = 0.6 * S + 0.3 * past + torch.tanh(k).unsqueeze(-1) * v.unsqueeze(-2)
        h = torch.einsum("bnkv,bnk->bnv", S, torch.softmax(q, -1)).flatten(1)
        return h, S, torch.tanh(h)


X = torch.randn(6, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=["compiled", "reference"])
def engine(request):
    with rc.set_backend(request.param):
        yield request.param


def memory(**options) -> rc.Recurrent:
    torch.manual_seed(0)
    return rc.Recurrent(Memory, 5, 4, dtype=torch.float64, **options)


def loop(layer: rc.Recurrent, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The step itself, called as a person would."""
    cell, y = layer.cell_list[0], []
    S, h = x.new_zeros(x.shape[1], 2, 3, 2), x.new_zeros(x.shape[1], 4)
    for x_t in x:
        out, S, h = cell.step(x_t, S, h)
        y.append(out)
    return torch.stack(y), S, h


def test_a_matrix_is_carried_as_the_step_writes_it(engine):
    layer, x = memory(), X.clone().requires_grad_()
    y, (S, h) = layer(x)
    assert S.shape == (1, 3, 2, 3, 2)
    expected = loop(layer, x)
    for value, other in zip((y, S[0], h[0]), expected, strict=True):
        assert_close(value, other)
    gradients = [
        torch.autograd.grad(y.square().sum() + S.sum(), [x, *layer.parameters()])
        for y, S in ((y, S), (expected[0], expected[1]))
    ]
    for value, other in zip(*gradients, strict=True):
        assert_close(value, other)


def test_pieces_steps_and_lengths(engine):
    layer = memory()
    y, state = layer(X)
    first, middle = layer(X[:2])
    rest, last = layer(X[2:], middle)
    assert_close(torch.cat([first, rest]), y)
    assert_close(last[0], state[0])
    now = None
    for t, x_t in enumerate(X):
        out, now = layer.step(x_t, now)
        assert_close(out, y[t])
    assert_close(now[0], state[0])
    ragged, (S, _) = layer(X, lengths=[6, 2, 4])
    assert_close(S[0, 1], layer(X[:2, 1:2])[1][0][0, 0])
    assert not ragged[2:, 1].any()
    assert_close(layer(X[:, 0])[1][0], state[0][:, 0])  # one sequence


def test_layers_directions_starts_and_traces(engine):
    stack = memory(num_layers=2, bidirectional=True, initial="learned")
    y, (S, _) = stack(X)
    assert y.shape == (6, 3, 8)
    assert S.shape == (4, 3, 2, 3, 2)
    assert stack.cell_list[0].S_0.shape == (2, 3, 2)


def test_a_trace_has_the_axes():
    layer = memory()
    _, (S, _), trace = layer(X, return_trace=True)
    assert trace["S"].shape == (6, 3, 2, 3, 2)
    assert_close(trace["S"][-1], S[0])


def test_a_trace_with_resets_has_the_axes_of_every_value():
    layer, resets = memory(), torch.zeros(6, 3, dtype=torch.bool)
    resets[0, 1] = resets[2, 0] = resets[5, 2] = True
    trace = layer(X, resets=resets, lengths=[6, 1, 6], return_trace=True)[2]
    assert trace["v"].shape == (6, 3, 2, 2)
    with rc.set_backend("reference"):
        expected = layer(X, resets=resets, lengths=[6, 1, 6], return_trace=True)[2]
    for name, value in expected.items():
        assert_close(trace[name], value)


def test_delays_of_a_matrix(engine):
    layer = memory(delays=True)
    y, state = layer(X)
    assert state[0].shape == (1, 3, 3, 2, 3, 2)  # three steps back
    first, middle = layer(X[:4])
    assert_close(torch.cat([first, layer(X[4:], middle)[0]]), y)


def test_the_start_may_be_a_parameter(engine):
    layer = memory(initial="learned")
    start = torch.randn(2, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        layer.cell_list[0].S_0.copy_(start)
    given = (start.expand(1, 3, 2, 3, 2), torch.zeros(1, 3, 4, dtype=torch.float64))
    assert_close(layer(X)[0], layer(X, given)[0])


def test_modifiers_see_rows():
    layer = memory(modifiers=[rc.Zoneout(0.5)]).eval()
    y, (S, _) = layer(X)
    assert S.shape == (1, 3, 2, 3, 2)
    plain = memory()
    plain.load_state_dict(layer.state_dict(), strict=False)
    assert not torch.allclose(y, plain(X)[0])  # in evaluation a state is mixed with the one before
    mixed = 0.5 * plain(X[:1])[1][0]
    assert_close(layer(X[:1])[1][0], mixed)


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}])
def test_an_onnx_file_has_the_same_shapes(tmp_path, options):
    onnxruntime = pytest.importorskip("onnxruntime")
    layer = memory(**options).eval()
    session = onnxruntime.InferenceSession(str(layer.export(tmp_path / "memory.onnx")))
    S, h = layer(X)[1]
    given = {"x": X.numpy(), "S_0": S.detach().numpy(), "h_0": h.detach().numpy()}
    found = session.run(["y", "S_n"], given)
    again, (after, _) = layer(X, (S, h))
    assert_close(torch.from_numpy(found[0]), again.detach(), 1e-9)
    assert_close(torch.from_numpy(found[1]), after.detach(), 1e-9)


def test_equations_print_outer_products_and_no_views():
    text = rc.registry()["gla"](3, 4).equations()
    assert r"S_{t} &= \alpha_{t} \odot S_{t-1} + k_{t} \otimes v_{t}" in text
    assert r"y_{t} &= q_{t}\,S_{t}" in text


@pytest.mark.parametrize("shape", [(), (2, 0, 2), (2, 3.5, 2), (2, "3", 2), ("x",)])
def test_a_shape_has_positive_whole_numbers(shape):
    class Shaped(rc.Cell):
        def __init__(self):
            super().__init__(3, 4, sizes={"h": shape})

        def step(self, x, h):
            return h

    with pytest.raises(InputError, match=r"^h"):
        Shaped()


def test_wrong_shapes_are_named():
    layer = memory()
    with pytest.raises(ShapeError, match=r"S with \(3, 2, 3, 2\)"):
        layer(X, (X.new_zeros(1, 3, 12), X.new_zeros(1, 3, 4)))
    with pytest.raises(OptionError, match=r"'S', of shape \(2, 3, 2\)"):
        layer.cell_list[0].affine("S")

    class Flat(Memory):
        def step(self, x, S, h):
            return h, S.flatten(1), h

    with pytest.raises(TraceError, match=r"returned S as \(B, 12\), expected \(B, 2, 3, 2\)"):
        rc.Recurrent(Flat, 5, 4)(X.float())

    class Unread(Memory):
        def step(self, x, S, h):
            return S, S, h

    with pytest.raises(TraceError, match=r"returned output as \(B, 2, 3, 2\).*output_size=12 and flatten it"):
        rc.Recurrent(Unread, 5, 4)(X.float())


def test_dilated_matrices(engine):
    layer = memory(num_layers=2, dilation=(1, 2))
    y, (S, h) = layer(X)
    assert [tuple(value.shape) for value in S] == [(3, 2, 3, 2), (3, 2, 2, 3, 2)]
    first, middle = layer(X[:3])
    assert_close(torch.cat([first, layer(X[3:], middle)[0]]), y)
    assert len(h) == 2


RARELY = ("linear_transformer", "gated_delta_net", "gla", "retention", "rwkv6", "rwkv7", "fast_weights")


@pytest.mark.parametrize(
    "name", ["delta_net", "mlstm", *(pytest.param(name, marks=pytest.mark.slow) for name in RARELY)]
)
def test_a_compiled_trace_holds_values_of_several_axes(name: str, monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(0)
    layer = rc.layer(name, 8, 8, dtype=torch.float64)
    x, found = torch.randn(5, 3, 8, dtype=torch.float64), []
    for backend in ("reference", "auto"):
        if backend == "auto":
            monkeypatch.setattr("recurra.engine.reference.scan", None)  # the plain loop must not run
        copy = x.clone().requires_grad_()
        with rc.set_backend(backend), pytest.MonkeyPatch.context() as patch:
            patch.setenv("RECURRA_CHECK", "0")
            trace = layer(copy, lengths=torch.tensor([5, 2, 4]), return_trace=True)[2]
        sum(value.sin().sum() for value in trace.values()).backward()
        found.append(({key: value.detach() for key, value in trace.items()}, copy.grad))
    torch.testing.assert_close(found[1], found[0], rtol=1e-10, atol=1e-11)
