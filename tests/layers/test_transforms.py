"""Function transforms and compilers give the numbers that plain loops and plain calls give."""

import copy
from collections.abc import Iterator

import pytest
import torch
from cases import Case, draw_inputs, sampled_case, sampled_name
from helpers import assert_close
from layers.test_layers import flat
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vmap

import recurra as rc
from recurra.engine.backend import set_backend

STEPS, BATCH = 4, 3


@pytest.fixture(autouse=True)
def _as_recurra_chooses() -> Iterator[None]:
    """The choice of an engine under a transform is part of what is tested."""
    with set_backend("auto"):
        yield


# ---------------------------------------------------------------------------------------------------- batches


@sampled_case
def test_vmap_over_inputs_is_a_loop(case: Case):
    layer = case.layer(bidirectional=True)
    x = draw_inputs(case, STEPS, 2 * BATCH).unflatten(1, (2, BATCH))  # (T, 2, B, D)
    lengths = torch.tensor([[4, 1, 3], [2, 4, 4]])

    def run(x, n):
        y, state = layer(x, lengths=n)
        return y, *flat(state)

    found = vmap(run, in_dims=(1, 0))(x, lengths)
    with set_backend("reference"):
        loops = [run(x[:, k], lengths[k]) for k in range(2)]
    for values, *loop in zip(found, *loops, strict=True):
        assert_close(values, torch.stack(loop))


@sampled_name
def test_per_sample_gradients_are_a_loop(case: Case):
    layer, x = case.layer(), draw_inputs(case, STEPS, BATCH)
    parameters = {name: p.detach() for name, p in layer.named_parameters() if p.requires_grad}

    def loss(parameters, x):
        return functional_call(layer, parameters, (x,))[0].square().sum()

    found = vmap(grad(loss), in_dims=(None, 1))(parameters, x)
    leaves = [layer.get_parameter(name) for name in parameters]
    for b in range(BATCH):
        with set_backend("reference"):
            wanted = torch.autograd.grad(layer(x[:, b])[0].square().sum(), leaves)
        for name, gradient in zip(parameters, wanted, strict=True):
            assert_close(found[name][b], gradient)


@sampled_name
def test_an_ensemble_is_a_loop_over_its_members(case: Case):
    members = [case.layer(seed=seed) for seed in range(3)]
    x = draw_inputs(case, STEPS, BATCH)
    parameters, buffers = stack_module_state(members)
    skeleton = copy.deepcopy(members[0]).to("meta")

    def run(parameters, buffers, x):
        return functional_call(skeleton, (parameters, buffers), (x,))[0]

    found = vmap(run, in_dims=(0, 0, None))(parameters, buffers, x)
    with set_backend("reference"):
        assert_close(found, torch.stack([member(x)[0] for member in members]))


MODIFIED = {
    "norm": [rc.LayerNorm()],
    "zoneout": [rc.Zoneout(0.3)],
    "drops": [rc.VariationalDropout(0.3), rc.RecurrentDropout(0.3), rc.WeightDrop(0.3)],
}


@pytest.mark.parametrize("modifiers", MODIFIED.values(), ids=MODIFIED)
def test_modified_layers_take_transforms_before_they_have_ever_run(modifiers):
    case = Case("lstm")
    x = draw_inputs(case, STEPS, BATCH)
    members = [case.layer(seed=seed, modifiers=modifiers).eval() for seed in range(2)]
    parameters, buffers = stack_module_state(members)
    skeleton = copy.deepcopy(members[0]).to("meta")
    found = vmap(lambda p, b: functional_call(skeleton, (p, b), (x,))[0])(parameters, buffers)
    assert_close(found, torch.stack([member(x)[0] for member in members]))

    layer = case.layer(modifiers=modifiers).eval()
    own = dict(layer.named_parameters())
    gradients = vmap(grad(lambda p, x: functional_call(layer, p, (x,))[0].sum()), in_dims=(None, 1))(own, x)
    for b in range(BATCH):
        wanted = torch.autograd.grad(layer(x[:, b])[0].sum(), [*own.values()])
        for name, gradient in zip(own, wanted, strict=True):
            assert_close(gradients[name][b], gradient)


def test_masks_under_vmap_differ_or_agree_as_asked():
    layer = Case("lstm").layer(modifiers=[rc.Zoneout(0.5)])
    x = draw_inputs(Case("lstm"), STEPS, 1).expand(STEPS, 2, 3)
    different = vmap(lambda x: layer(x)[0], in_dims=1, randomness="different")(x)
    same = vmap(lambda x: layer(x)[0], in_dims=1, randomness="same")(x)
    assert not torch.equal(different[0], different[1])
    assert torch.equal(same[0], same[1])


@pytest.mark.parametrize("batched", ["x", "state"])
def test_the_trace_comes_out_of_vmap(batched):
    layer, x = Case("gru").layer(), draw_inputs(Case("gru"), STEPS, BATCH)
    start = torch.randn(2, 1, BATCH, 4, dtype=torch.float64)
    if batched == "state":
        found = vmap(lambda h: layer(x, h, return_trace=True)[2]["z"])(start)
        loop = [layer(x, h, return_trace=True)[2]["z"] for h in start]
    else:
        found = vmap(lambda x: layer(x, return_trace=True)[2]["z"], in_dims=1)(x)
        loop = [layer(x[:, b], return_trace=True)[2]["z"] for b in range(BATCH)]
    assert_close(found, torch.stack(loop))


# ---------------------------------------------------------------------------------------------------- derivatives


@sampled_case
def test_forward_mode_is_the_jacobian_times_the_direction(case: Case):
    """jvp against reverse mode: v·(J d) computed as (vᵀJ)·d, and never a silent zero."""
    layer, x = case.layer(), draw_inputs(case, STEPS, BATCH)
    direction = torch.randn_like(x)
    y, tangent = jvp(lambda x: layer(x)[0], (x,), (direction,))[:2]
    assert tangent.abs().max() > 0
    cotangent = torch.randn_like(y)
    leaf = x.clone().requires_grad_()
    with set_backend("reference"):
        assert_close(y, layer(x)[0])
        (pulled,) = torch.autograd.grad((layer(leaf)[0] * cotangent).sum(), leaf)
    assert_close((cotangent * tangent).sum(), (pulled * direction).sum(), 1e-11)


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru", "delay_rnn", "orthogonal_rnn", "slstm"])
def test_jacobians_forward_and_reverse_agree_with_a_loop(name):
    layer, x = Case(name).layer(), draw_inputs(Case(name), 3, 1)[:, 0]
    forward, reverse = jacfwd(lambda x: layer(x)[0])(x), jacrev(lambda x: layer(x)[0])(x)
    leaf = x.clone().requires_grad_()
    y = layer(leaf)[0]
    rows = [torch.autograd.grad(value, leaf, retain_graph=True)[0] for value in y.flatten()]
    expected = torch.stack(rows).view(*y.shape, *x.shape)
    assert_close(forward, expected)
    assert_close(reverse, expected)


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru", "delay_rnn", "min_lstm"])
def test_the_hessian_is_the_derivative_of_the_gradient(name):
    layer, x = Case(name).layer(), draw_inputs(Case(name), 3, 1)[:, 0]
    found = hessian(lambda x: layer(x)[0].square().sum())(x)
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(layer(leaf)[0].square().sum(), leaf, create_graph=True)
    rows = [torch.autograd.grad(value, leaf, retain_graph=True)[0] for value in gradient.flatten()]
    assert_close(found, torch.stack(rows).view(*x.shape, *x.shape))
    assert_close(found, found.permute(2, 3, 0, 1))


def test_dual_numbers_outside_functorch():
    layer, x = Case("lstm").layer(bidirectional=True), draw_inputs(Case("lstm"), STEPS, BATCH)
    direction = torch.randn_like(x)
    with torch.autograd.forward_ad.dual_level():
        y, _ = layer(torch.autograd.forward_ad.make_dual(x, direction))
        tangent = torch.autograd.forward_ad.unpack_dual(y).tangent
    assert_close(tangent, jvp(lambda x: layer(x)[0], (x,), (direction,))[1])


def test_derivatives_with_respect_to_weights_and_starts_in_forward_mode():
    layer, x = Case("gru").layer(initial="learned"), draw_inputs(Case("gru"), STEPS, BATCH)
    parameters = {name: p.detach() for name, p in layer.named_parameters()}

    def loss(parameters):
        return functional_call(layer, parameters, (x,))[0].square().sum()

    forward, reverse = jacfwd(loss)(parameters), grad(loss)(parameters)
    wanted = torch.autograd.grad(layer(x)[0].square().sum(), [*layer.parameters()])
    for name, gradient in zip(parameters, wanted, strict=True):
        assert_close(forward[name], gradient)
        assert_close(reverse[name], gradient)


# ---------------------------------------------------------------------------------------------------- compilers


def check_compiled(layer: rc.Recurrent, x: torch.Tensor, backend: str, tolerance: float = 1e-12) -> None:
    """One graph, the same values, and the same gradients."""
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend=backend, fullgraph=True)
    lengths, outcomes = torch.tensor([4, 2, 3]), []
    for run in (compiled, layer):
        leaf = x.clone().requires_grad_()
        y, state = run(leaf, lengths=lengths)
        loss = y.square().sum() + sum(value.sum() for value in flat(state))
        inputs = [leaf, *(p for p in layer.parameters() if p.requires_grad)]
        outcomes.append([y, *flat(state), *torch.autograd.grad(loss, inputs)])
    for value, expected in zip(*outcomes, strict=True):
        assert_close(value.detach(), expected.detach(), tolerance)


@pytest.mark.slow
@sampled_case
def test_torch_compile_takes_every_cell_as_one_graph(case: Case):
    check_compiled(case.layer(), draw_inputs(case, STEPS, BATCH), "aot_eager")


@pytest.mark.parametrize("name", ["lstm", "orthogonal_rnn", "delay_rnn"])
def test_torch_compile_takes_a_layer_as_one_graph(name):
    check_compiled(Case(name).layer(), draw_inputs(Case(name), STEPS, BATCH), "aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("modifiers", MODIFIED.values(), ids=MODIFIED)
def test_torch_compile_takes_modified_layers(modifiers):
    layer = Case("lstm").layer(modifiers=modifiers)
    x = draw_inputs(Case("lstm"), STEPS, BATCH)
    check_compiled(layer.eval(), x, "aot_eager")
    torch._dynamo.reset()
    compiled = torch.compile(layer.train(), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x)[0], compiled(x)[0]) != bool(layer.cell_list[0].masks)  # a norm alone draws nothing


@pytest.mark.slow
def test_torch_compile_returns_the_trace():
    layer, x = Case("lstm").layer(), draw_inputs(Case("lstm"), STEPS, BATCH)
    torch._dynamo.reset()
    trace = torch.compile(layer, backend="aot_eager", fullgraph=True)(x, return_trace=True)[2]
    expected = layer(x, return_trace=True)[2]
    for name in expected:
        assert_close(trace[name], expected[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm", "mgu"])
def test_inductor_gives_the_same_numbers(name):
    check_compiled(Case(name).layer(bidirectional=True), draw_inputs(Case(name), STEPS, BATCH), "inductor", 1e-11)


def test_a_layer_runs_on_tensors_without_data():
    """Shapes alone, as memory planners ask for; lengths on a device that cannot be read are not read."""
    layer = rc.LSTM(3, 4, 2, bidirectional=True, device="meta")
    x, lengths = torch.empty(STEPS, BATCH, 3, device="meta"), torch.empty(BATCH, dtype=torch.int64, device="meta")
    resets = torch.empty(STEPS, BATCH, dtype=torch.bool, device="meta")
    y, (h, c) = layer(x, lengths=lengths, resets=resets)
    assert y.shape == (STEPS, BATCH, 8)
    assert h.shape == c.shape == (4, BATCH, 4)
    assert {y.device.type, h.device.type, c.device.type} == {"meta"}
