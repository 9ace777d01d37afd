"""Time-delay networks against convolutions, and how little of them is computed."""

import pytest
import torch
from torch import Tensor, nn

import recurra as rc
from recurra.errors import InputError, LengthsError, ShapeError
from recurra.models import PEDDINTI, PNorm


def frames(steps: int = 30, batch: int = 3, size: int = 4) -> Tensor:
    return torch.randn(steps, batch, size, dtype=torch.float64)


def convolved(layer: nn.Linear, x: Tensor, taps: int, dilation: int = 1) -> Tensor:
    kernel = layer.weight.view(layer.out_features, taps, -1).transpose(1, 2)  # (out, in, taps)
    return nn.functional.conv1d(x.permute(1, 2, 0), kernel, layer.bias, dilation=dilation).permute(2, 0, 1)


def test_the_classic_network_is_two_convolutions():
    model, x = rc.TDNN(16, [8, 3], [3, 5]).double(), frames(15, 2, 16)
    expected = torch.sigmoid(convolved(model.layers[0], x, 3))
    expected = torch.sigmoid(convolved(model.layers[1], expected, 5))
    torch.testing.assert_close(model(x), expected, rtol=1e-12, atol=1e-12)
    assert model.receptive_field == (-6, 0)


def test_two_offsets_are_a_dilated_convolution():
    model, x = rc.TDNN(4, [5], [(-3, 4)], nonlinearity="tanh").double(), frames()
    torch.testing.assert_close(model(x), torch.tanh(convolved(model.layers[0], x, 2, dilation=7)))


def test_shifting_the_input_shifts_the_output():
    model, x = rc.TDNN(4, [5, 2], [3, (-1, 2)]).double(), frames()
    torch.testing.assert_close(model(x[1:]), model(x)[1:], rtol=1e-12, atol=1e-12)


def test_the_published_context():
    model = rc.TDNN(4, [20, 20, 20, 20, 3], PEDDINTI, nonlinearity=PNorm(10), output="identity").double()
    assert model.receptive_field == (-13, 9)
    x = frames(40, 1).requires_grad_()
    (gradient,) = torch.autograd.grad(model(x, at=[20]).sum(), x)
    touched = gradient.abs().sum(dim=(1, 2)).nonzero().squeeze(1)
    assert (touched.min().item(), touched.max().item()) == (20 - 13, 20 + 9)


def test_only_the_needed_frames_are_computed():
    model, x = rc.TDNN(4, [6, 6, 6, 6, 3], PEDDINTI).double(), frames(60)
    computed: list[int] = []
    for layer in model.layers:
        layer.register_forward_hook(lambda _, given, __: computed.append(len(given[0])))
    at = [20, 30]
    some = model(x, at=at)
    assert computed == [len(f) for f in model.needed_frames(at)[1:]]
    assert computed == [14, 8, 4, 2, 2]  # of 60 frames
    everything = model(x)
    torch.testing.assert_close(some, everything[[t - 13 for t in at]], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(model(x, at=[30, 20]), some.flip(0), rtol=1e-12, atol=1e-12)


def test_score_integration():
    x = frames()
    outputs = rc.TDNN(4, [5, 2], [3, 3]).double()
    for integrate, expected in (
        ("squares", lambda y: y.square().sum(dim=0)),
        ("sum", lambda y: y.sum(dim=0)),
        ("mean", lambda y: y.mean(dim=0)),
    ):
        model = rc.TDNN(4, [5, 2], [3, 3], integrate=integrate).double()
        model.load_state_dict(outputs.state_dict())
        torch.testing.assert_close(model(x), expected(outputs(x)))


@pytest.mark.parametrize("padding", ["valid", "edge"])
@pytest.mark.parametrize("integrate", [None, "mean", "squares"])
def test_results_do_not_depend_on_padding(padding: str, integrate: str | None):
    model = rc.TDNN(4, [5, 2], [(-2, 0, 1), (-1, 2)], padding=padding, integrate=integrate).double()
    x, lengths = frames(), torch.tensor([30, 7, 12])
    padded = x.clone()
    for b, n in enumerate(lengths):
        padded[n:, b] = 99.0
    y = model(padded, lengths=lengths)
    for b, n in enumerate(lengths):
        alone = model(x[:n, b : b + 1])
        if integrate:
            torch.testing.assert_close(y[b], alone[0], rtol=1e-12, atol=1e-12)
        else:
            torch.testing.assert_close(y[: len(alone), b : b + 1], alone, rtol=1e-12, atol=1e-12)
            assert (y[len(alone) :, b] == 0).all()


def test_edge_padding_repeats_the_ends():
    model, x = rc.TDNN(4, [5], [(-2, 3)], padding="edge").double(), frames(10)
    longer = torch.cat([x[:1]] * 2 + [x] + [x[-1:]] * 3)
    inside = rc.TDNN(4, [5], [(-2, 3)]).double()
    inside.load_state_dict(model.state_dict())
    torch.testing.assert_close(model(x), inside(longer), rtol=1e-12, atol=1e-12)


def test_p_norm():
    a = torch.tensor([[3.0, 4.0, 0.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(PNorm(2, renormalise=False)(a), torch.tensor([[5.0, 1.0]], dtype=torch.float64))
    assert PNorm(2)(a).square().mean().item() == pytest.approx(1.0)
    torch.testing.assert_close(PNorm(2, p=1.0, renormalise=False)(a), torch.tensor([[7.0, 1.0]], dtype=torch.float64))


def test_batch_first():
    model, x = rc.TDNN(4, [5], [3], batch_first=True).double(), frames()
    assert model(x.transpose(0, 1)).shape == (3, 28, 5)


def test_what_is_wrong_is_named():
    with pytest.raises(InputError, match="contexts"):
        rc.TDNN(4, [5, 2], [3])
    with pytest.raises(InputError, match="past to future"):
        rc.TDNN(4, [5], [(1, 0)])
    with pytest.raises(ShapeError, match="2 frames, expected at least 3"):
        rc.TDNN(4, [5], [3])(torch.zeros(2, 1, 4))
    with pytest.raises(LengthsError, match="2 frames"):
        rc.TDNN(4, [5], [3])(torch.zeros(5, 2, 4), lengths=[5, 2])
    with pytest.raises(InputError, match="at: got 1"):
        rc.TDNN(4, [5], [3])(torch.zeros(5, 2, 4), at=[1])
    with pytest.raises(ShapeError, match="multiple of the group"):
        rc.TDNN(4, [5], [3], nonlinearity=PNorm(2))(torch.zeros(5, 2, 4))
    with pytest.raises(InputError, match="integrate"):
        rc.TDNN(4, [5], [3], integrate="max")
