"""Gradient flow: the product formula against autograd, the bound, every kind of loss and layer, and the cost."""

import pytest
import torch
from cases import Case, sampled_name
from torch import Tensor, nn

import recurra as rc
from recurra.errors import InputError
from recurra.inspect import gradient_flow
from recurra.inspect.gradients import fitted_rate
from recurra.inspect.lipschitz import bound_curve, step_bound

STEPS, BATCH = 7, 2


def inputs(steps: int = STEPS, size: int = 3) -> Tensor:
    return torch.randn(steps, BATCH, size, dtype=torch.float64)


def by_hand(cell: rc.Cell, x: Tensor) -> tuple[list[Tensor], list[list[Tensor]]]:
    """Outputs and states after every step, each a tensor of the graph, by calling `step` and nothing else."""
    states, outputs, kept = list(cell.initial_state(x.shape[1], x)), [], []
    for x_t in x:
        returned = cell.step(x_t, *states)
        returned = list(returned) if isinstance(returned, tuple) else [returned]
        y, states = returned[0], returned[-len(states) :]
        outputs.append(y)
        kept.append(states)
    return outputs, kept


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru", "leaky_rnn", "scrn"])
def test_norms_are_those_autograd_gives_for_one_loss_at_a_time(name):
    layer = rc.layer(name, 3, 4, dtype=torch.float64)
    x, target = inputs(), torch.randn(STEPS, BATCH, layer.output_size, dtype=torch.float64)
    flow = gradient_flow(layer, (x, target))
    outputs, states = by_hand(layer.cell_list[0], x)
    for t in range(STEPS):
        loss = 0.5 * (outputs[t] - target[t]).square().sum()
        for k, state in enumerate(layer.cell_list[0].states):
            handles = [kept[k] for kept in states]
            found = torch.autograd.grad(loss, handles, retain_graph=True, materialize_grads=True, allow_unused=True)
            expected = torch.stack([gradient.norm(dim=-1).mean() for gradient in found])
            torch.testing.assert_close(flow[state].norms[t], expected, rtol=1e-9, atol=1e-14)


def test_the_product_formula_is_what_autograd_gives():
    """∂L_T/∂h_t = ∂L_T/∂h_T · J_T … J_{t+1}, with J_k = diag(1 - h_k²) W (survey section 3, corrected)."""
    layer = rc.layer("rnn", 3, 4, dtype=torch.float64)
    x, target = inputs(), torch.randn(STEPS, BATCH, 4, dtype=torch.float64)
    flow = gradient_flow(layer, (x, target))
    h = layer(x)[0].detach()
    W = layer.cell_list[0].a.W.detach()
    rows = h[-1] - target[-1]  # (B, p): ∂L_T/∂h_T of half the squared error
    for t in range(STEPS - 1, -1, -1):
        torch.testing.assert_close(flow["h"].norms[-1, t], rows.norm(dim=-1).mean(), rtol=1e-10, atol=0)
        rows = torch.stack([row @ torch.diag(1 - state**2) @ W for row, state in zip(rows, h[t], strict=True)])


BOUNDED = [
    *(Case("rnn", {"nonlinearity": name}) for name in ("tanh", "sigmoid", "relu")),
    *(Case(name) for name in ("leaky_rnn", "identity_rnn", "residual_rnn", "orthogonal_rnn", "indrnn", "focused_rnn")),
    Case("delay_rnn", {"delays": (2, 3)}),
]


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("case", BOUNDED, ids=str)
def test_the_bound_is_never_violated(case, scale):
    layer = case.layer()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(scale)
    flow = gradient_flow(layer, inputs(30)).flows[0]
    assert flow.bound is not None
    assert (flow.largest <= flow.bound[: len(flow.largest)] * (1 + 1e-9)).all()


def test_the_bound_is_the_surveys():
    tanh, logistic = rc.layer("rnn", 3, 5), rc.layer("rnn", 3, 5, nonlinearity="sigmoid")
    for layer, slope in ((tanh, 1.0), (logistic, 0.25)):
        torch.nn.init.normal_(layer.cell_list[0].a.W)
        sigma = float(torch.linalg.matrix_norm(layer.cell_list[0].a.W.detach(), 2))
        assert step_bound(layer.cell_list[0]) == pytest.approx({1: slope * sigma}, rel=1e-5)
    assert bound_curve({1: 0.5}, 3).tolist() == [1.0, 0.5, 0.25, 0.125]
    assert bound_curve({2: 0.5}, 4).tolist() == [1.0, 0.0, 0.5, 0.0, 0.25]  # through edges of length two alone


def test_the_bound_of_a_linear_network_is_reached():
    layer = rc.layer("rnn", 2, 3, nonlinearity="identity", dtype=torch.float64)
    with torch.no_grad():
        layer.cell_list[0].a.W.copy_(0.8 * torch.eye(3, dtype=torch.float64))
    flow = gradient_flow(layer, inputs(40, 2))["h"]
    torch.testing.assert_close(flow.profile, 0.8 ** torch.arange(40, dtype=torch.float64), rtol=1e-10, atol=0)
    torch.testing.assert_close(flow.bound, flow.largest, rtol=1e-10, atol=0)
    assert flow.rate == pytest.approx(0.8, abs=1e-10)
    assert flow.half_life == pytest.approx(3.106, abs=1e-3)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_a_gate_times_a_state_has_no_bound(name):
    assert step_bound(rc.layer(name, 3, 4).cell_list[0]) is None
    assert gradient_flow(rc.layer(name, 3, 4), inputs()).flows[0].bound is None


@sampled_name
def test_every_cell_has_a_flow(case):
    flow = gradient_flow(case.layer(), inputs(6))
    assert [one.state for one in flow.flows] == list(case.cell().states)
    for one in flow.flows:
        assert one.norms.shape == (6, 6)
        assert one.norms.isfinite().all()
        assert not one.norms.triu(1).any(), "a loss reached a state after it"
    assert any(one.norms.gt(0).any() for one in flow.flows)


# ---------------------------------------------------------------------------------------------------- models and losses


class Tagger(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.embedding = nn.Embedding(6, 3)
        self.recurrent = rc.layer("lstm", 3, 4, **options)
        self.head = nn.Linear(self.recurrent.output_size, 5)

    def forward(self, tokens, lengths=None):
        return self.head(self.recurrent(self.embedding(tokens), lengths=lengths)[0])


def test_stacks_and_directions_have_a_flow_each():
    model = Tagger(num_layers=2, bidirectional=True)
    flow = gradient_flow(model, (torch.randint(6, (8, 3)), torch.randint(5, (8, 3))))
    assert [one.label for one in flow.flows] == [
        f"recurrent · layer {layer} · {direction} · {state}"
        for layer in (1, 2)
        for direction in ("forward", "backward")
        for state in ("h", "c")
    ]
    top_forward, top_backward = flow.flows[4], flow.flows[6]
    assert not top_forward.norms.triu(1).any()
    assert not top_backward.norms.tril(-1).any(), "what reads backwards knows the future alone"
    assert flow.flows[0].norms.triu(1).any(), "below another bidirectional layer, a loss reaches both ways"
    assert flow.loss == "the cross-entropy"


def test_padding_changes_nothing():
    model, tokens, tags = Tagger(bidirectional=True), torch.randint(6, (9, 1)), torch.randint(5, (9, 1))
    data = rc.data.Batch(tokens, tags, torch.tensor([6]), torch.tensor([0]))
    short = rc.data.Batch(tokens[:6], tags[:6], torch.tensor([6]), torch.tensor([0]))
    for padded, plain in zip(gradient_flow(model, data).flows, gradient_flow(model, short).flows, strict=True):
        torch.testing.assert_close(padded.norms[:6, :6], plain.norms, rtol=1e-9, atol=1e-15)
        torch.testing.assert_close(padded.profile, plain.profile, rtol=1e-9, atol=1e-15)


def test_one_loss_a_sequence_stands_at_its_end():
    layer = rc.layer("gru", 3, 4)

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = layer, nn.Linear(4, 3)

        def forward(self, x, lengths=None):
            return self.head(self.layer(x, lengths=lengths)[1][-1])

    sequences = rc.data.SequenceSet.from_arrays([torch.randn(n, 3) for n in (9, 4, 6)], [0, 1, 2], "classification")
    flow = gradient_flow(Classifier(), sequences)
    assert flow.times == (8,)
    assert len(flow["h"].profile) == 9
    assert flow["h"].profile[0] == pytest.approx(1.0)
    assert flow["h"].norms[0].isfinite().all()


def test_a_loss_of_ones_own():
    layer, x = rc.layer("rnn", 3, 4), inputs().float()
    own = gradient_flow(layer, (x, torch.zeros(STEPS, BATCH, 4)), loss=nn.functional.mse_loss)
    default = gradient_flow(layer, (x, torch.zeros(STEPS, BATCH, 4)))
    assert own.loss == "mse_loss"
    torch.testing.assert_close(own["h"].norms, default["h"].norms / 2, rtol=1e-9, atol=0)  # mean over 4 outputs, no ½


def test_two_networks_that_read_towards_each_other():
    flow = gradient_flow(rc.BaldiBRNN(3, 4, 2), torch.randn(9, 2, 3))
    past, future = flow.flows
    assert (past.name, future.name) == ("past", "future")
    assert not past.norms.triu(1).any()
    assert past.norms.diagonal(-1).gt(0).all()
    assert not future.norms.tril(-1).any()
    assert future.norms.diagonal(1).gt(0).all()


def test_cells_with_steps_of_their_own_count_their_own_lags():
    slow = gradient_flow(rc.HierarchicalRNN(3, [4, 4], [1, 3]), torch.randn(12, 2, 3)).flows[1]
    assert slow.norms.shape == (12, 4)  # four ticks in twelve steps
    assert len(slow.profile) == 4
    assert float(slow.profile[0]) == 1.0
    model = rc.ELMo(projection_size=4, hidden_size=6, filters=((1, 4), (2, 4)))
    spelled = model.encode(["the", "cat", "sat", "down"])[:, None]
    flows = {flow.label: flow for flow in gradient_flow(model, spelled).flows}
    assert len(flows) == 8  # two ways, two layers, two states
    assert all(flow.norms.shape == (4, 6) for flow in flows.values())  # a sentence and its two boundaries
    top = flows["ways.1.layers.1 · c"]
    assert not top.norms[:, 0].any(), "what reads backwards reached behind the first word"


def test_torchs_own_layers_are_looked_at_too():
    module = nn.LSTM(3, 4)
    same = rc.from_torch(module)
    x = torch.randn(6, 2, 3)
    torch.testing.assert_close(gradient_flow(module, x)["c"].norms, gradient_flow(same, x)["c"].norms)


def test_looking_changes_nothing():
    layer = rc.layer("lstm", 3, 4, dropout=0.0).train()
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    random = torch.get_rng_state()
    gradient_flow(layer, torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(0)))
    assert layer.training
    assert all(parameter.grad is None for parameter in layer.parameters())
    assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())
    assert torch.equal(random, torch.get_rng_state())


def test_parts_of_the_backward_pass_add_up_to_the_whole(monkeypatch):
    layer, x = rc.layer("lstm", 3, 4), torch.randn(12, 2, 3)
    whole = gradient_flow(layer, x)
    monkeypatch.setattr("recurra.inspect.gradients.BUDGET", 1)
    torch.testing.assert_close(gradient_flow(layer, x)["c"].norms, whole["c"].norms, rtol=1e-12, atol=0)


def test_the_fitted_rate_of_a_geometric_profile_is_its_ratio():
    assert fitted_rate(0.7 ** torch.arange(20.0, dtype=torch.float64)) == pytest.approx(0.7, abs=1e-12)
    assert fitted_rate(torch.tensor([1.0, 0.0, 0.0])) == 0.0


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        (nn.Linear(3, 3), torch.randn(5, 2, 3), "model: got Linear, expected a model with a recurrent layer"),
        (rc.layer("rnn", 3, 4), "text", "data: got str"),
        (rc.layer("rnn", 3, 4), torch.randn(5, 2, 3, 1), "data: got shape"),
        (3, torch.randn(5, 2, 3), "model: got int"),
    ],
)
def test_what_it_refuses(model, data, message):
    with pytest.raises(InputError, match=message):
        gradient_flow(model, data)


def test_the_figures_hold_the_numbers():
    flow = gradient_flow(rc.layer("lstm", 3, 4), torch.randn(20, 2, 3))
    curves = {trace.name.partition(":")[0]: trace for trace in flow.figure().data}
    assert set(curves) == {"LSTM · h", "LSTM · c"}
    assert curves["LSTM · c"].y[5] == pytest.approx(float(flow["c"].profile[5]), rel=1e-3)
    heat = flow.heatmap().data[1]
    assert heat.z[10][3] == pytest.approx(float(flow["c"].norms[10, 3].log10()), rel=1e-3)
    assert "factor per step" in flow.summary()


def test_a_long_sequence_is_measured_at_64_losses():
    """A loss at each of a thousand steps would cost a thousand backward passes."""
    flow = gradient_flow(rc.layer("lstm", 3, 4), torch.randn(1000, 1, 3))
    assert flow["c"].norms.shape == (64, 1000)
