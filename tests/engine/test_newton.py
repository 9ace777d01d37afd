"""Newton iterations over time against the loop, in float64: values and gradients."""

import pytest
import torch

import recurra as rc
from recurra.engine.backend import EngineWarning, _warned


def results(layer, x, state=None, **options):
    for p in layer.parameters():
        p.grad = None
    x = x.clone().requires_grad_()
    y, final = layer(x, state, **options)
    finals = final if isinstance(final, tuple) else (final,)
    weighted = [(v * torch.linspace(-1, 1, v.numel(), dtype=v.dtype).view_as(v)).sum() for v in (y, *finals)]
    torch.stack(weighted).sum().backward()
    grads = {n: p.grad for n, p in layer.named_parameters()}
    return {"y": y, "x": x.grad, **{f"final {k}": v for k, v in enumerate(finals)}, **grads}


def compare(name, x, state=None, solves=True, layer_options=None, **options):
    torch.manual_seed(0)
    layer = rc.layer(name, x.shape[-1], 6, dtype=torch.float64, parallel="newton", **(layer_options or {}))
    got = results(layer, x, state, **options)
    if solves:
        assert all(layer.newton_iterations), layer.newton_iterations
    with rc.set_backend("reference"):
        want = results(layer, x, state, **options)
    for key, value in want.items():
        if value is None or got[key] is None:
            for gradient in (value, got[key]):
                assert gradient is None or not gradient.any(), key
        else:
            torch.testing.assert_close(got[key], value, rtol=1e-9, atol=1e-10, msg=lambda m, key=key: f"{key}: {m}")
    return layer


def sequence(steps=70, batch=2, size=3):
    return torch.randn(steps, batch, size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru", "mgu", "min_gru", "sru", "lru", "brc", "nbrc", "peephole_lstm"])
def test_values_and_gradients_are_the_loops(name):
    compare(name, sequence())


@pytest.mark.parametrize("name", ["gru", "min_gru", "lstm"])
def test_lengths_resets_layers_directions_and_given_states(name):
    x = sequence(40, 3)
    compare(name, x, lengths=[40, 7, 1])
    resets = torch.zeros(40, 3, dtype=torch.bool)
    resets[5, 0] = resets[0, 1] = resets[39, 2] = True
    compare(name, x, resets=resets, layer_options={"initial": "learned"})
    compare(name, x, resets=resets, lengths=[40, 20, 40])
    compare(name, x, layer_options={"num_layers": 2, "bidirectional": True, "dilation": 2})
    compare(name, x, layer_options={"checkpoint": True})


def test_the_gradient_of_a_given_state():
    layer, x = rc.GRU(3, 6, dtype=torch.float64, parallel="newton"), sequence(30)
    found = []
    for name in ("auto", "reference"):
        state = torch.ones(1, 2, 6, dtype=torch.float64, requires_grad=True)
        with rc.set_backend(name):
            layer(x, state)[0].sum().backward()
        found.append(state.grad)
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-11)


def test_second_derivatives():
    layer = rc.layer("mgu", 2, 3, dtype=torch.float64, parallel="newton")
    x = sequence(5, 1, 2).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: layer(x)[0], (x,))


def test_a_trace_holds_the_named_values_of_the_loop():
    layer, x = rc.LSTM(3, 4, dtype=torch.float64, parallel="newton"), sequence(20)
    got = layer(x, return_trace=True)[2]
    assert layer.newton_iterations[0]
    with rc.set_backend("reference"):
        want = layer(x, return_trace=True)[2]
    torch.testing.assert_close(got["c"], want["c"], rtol=1e-10, atol=1e-12)


@pytest.fixture(autouse=True)
def warn_again():
    _warned.clear()


def test_chaos_falls_back_to_the_loop_with_one_warning():
    layer, x = rc.RNN(3, 30, dtype=torch.float64, parallel="newton"), sequence(400)
    with torch.no_grad():
        layer.cells[0].a.W.mul_(12.0)
    assert "cannot converge" in rc.explain(layer, x)
    with pytest.warns(EngineWarning, match="Newton iterations failed"):
        y = layer(x)[0]
    assert layer.newton_iterations == [None]
    with rc.set_backend("reference"):
        torch.testing.assert_close(y[:20], layer(x)[0][:20])


class Chain(rc.Cell):
    """x reaches the last unit through tiny numbers that grow again: a small correction is no small error."""

    states = ("h",)

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.m = self.affine("h")

    def step(self, x, h):
        return self.m(h) + x


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_tiny_correction_that_grows_is_not_convergence(dtype):
    layer = rc.Recurrent(Chain, 6, 6, dtype=dtype, parallel="newton")
    weights = torch.tensor([1e-12, 1.0, 1.0, 1.0, 1e12], dtype=dtype)
    with torch.no_grad():
        layer.cells[0].m.W.copy_(torch.diag(weights, -1))
        layer.cells[0].m.b.zero_()
    x = torch.zeros(12, 1, 6, dtype=dtype)
    x[0, 0, 0] = x[5:, 0, 1] = 1.0
    y = layer(x)[0]
    with rc.set_backend("reference"):
        torch.testing.assert_close(y, layer(x)[0], rtol=1e-5, atol=0)
    assert abs(y[5, 0, 5].item() - 1) < 1e-5


def test_explain_says_that_stable_states_can_converge():
    layer = rc.layer("min_gru", 3, 4, dtype=torch.float64, parallel="newton", batch_first=True)
    assert "the iterations can converge" in rc.explain(layer, sequence(70, 1).transpose(0, 1))


class Swaps(rc.Cell):
    """States whose residual is rounding of what they are computed from, not of themselves."""

    states = ("h", "c")

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")

    def step(self, x, h, c):
        return c, 0.5 * torch.tanh(self.a(x, h))


def test_the_callers_random_numbers_are_left_alone():
    torch.manual_seed(0)
    layer = rc.Recurrent(Swaps, 3, 6, dtype=torch.float64, parallel="newton")
    before = torch.get_rng_state()
    results(layer, sequence())
    assert torch.equal(torch.get_rng_state(), before)


def test_nan_falls_back_to_the_loop():
    layer, x = rc.layer("mgu", 3, 4, dtype=torch.float64, parallel="newton"), sequence(10)
    x[4, 0, 1] = float("nan")
    with pytest.warns(EngineWarning, match="NaN"):
        y = layer(x)[0]
    assert y[4:, 0].isnan().all()
    assert not y[:, 1].isnan().any()


def test_a_cell_that_reads_further_back_is_refused():
    with pytest.raises(rc.OptionError, match="several steps back"):
        rc.layer("delay_rnn", 3, 4, parallel="newton")
