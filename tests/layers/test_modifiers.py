"""Modifiers against loops written from their papers' equations, alone, together, and on every cell."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from cases import SPIKING, Case, draw_inputs, draw_states, randomise, sampled_case, sampled_name
from engines import either_engine, on_either_engine  # noqa: F401
from helpers import assert_close
from torch import Tensor

import recurra as rc
from recurra.cell import TIME
from recurra.engine.backend import set_backend
from recurra.errors import InputError, OptionError, UnknownNameError

STEPS, BATCH = 5, 3


def modified(name: str, *modifiers: Any, **arguments: Any) -> tuple[rc.Recurrent, Tensor]:
    """A layer with modifiers, all of its parameters random, and an input."""
    return Case(name).layer(modifiers=modifiers, **arguments), draw_inputs(Case(name), STEPS, BATCH)


def bare(layer: rc.Recurrent) -> rc.Cell:
    """The first cell's equations and weights without its modifiers."""
    cell = type(layer.cell_list[0])(layer.input_size, layer.hidden_sizes[0], **layer.options).double()
    known = {n.replace("_raw", ""): p for n, p in layer.cells[0].named_parameters() if not n.startswith("modifiers")}
    cell.load_state_dict(known)
    return cell


def drawn(layer: rc.Recurrent, x: Tensor, seed: int = 4) -> tuple[Tensor, dict[str, Tensor]]:
    """One training run, and the masks it drew."""
    torch.manual_seed(seed)
    y, _ = layer(x)
    torch.manual_seed(seed)
    return y, layer.cell_list[0].draw_masks(STEPS, BATCH, x)


def zeros() -> Tensor:
    return torch.zeros(BATCH, 4, dtype=torch.float64)


# ---------------------------------------------------------------------------------------------------- layer norm


def sigmoid(a: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-a))


def norm(parts: list[np.ndarray], gains: list[np.ndarray], shifts: list[np.ndarray], eps: float) -> list[np.ndarray]:
    """LN(a) = g ⊙ (a - mean a) / √(var a + ε) + β over one stacked vector, returned in its parts."""
    a, g, beta = (np.concatenate(v, -1) for v in (parts, gains, shifts))
    normal = g * (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + eps) + beta
    return np.split(normal, len(parts), -1)


class Norms:
    """The normalisation of named products, with the gains and shifts a layer holds for them."""

    def __init__(self, layer: rc.Recurrent, eps: float):
        self.w = {n.removeprefix("cells.0."): p.detach().numpy() for n, p in layer.named_parameters()}
        self.eps = eps

    def __call__(self, labels: list[str], values: list[np.ndarray]) -> list[np.ndarray]:
        gains, shifts = ([self.w[f"modifiers.0.{kind}.{label}"] for label in labels] for kind in ("gains", "shifts"))
        return norm(values, gains, shifts, self.eps)

    def products(self, gates: str, weight: str, value: np.ndarray) -> list[np.ndarray]:
        return self([f"{g}_{weight}" for g in gates], [value @ self.w[f"{g}.{weight}"].T for g in gates])


def layer_norm_lstm(x: np.ndarray, ln: Norms) -> np.ndarray:
    h, c, outputs = np.zeros((BATCH, 4)), np.zeros((BATCH, 4)), []
    for x_t in x:
        recurrent, direct = ln.products("ifog", "W", h), ln.products("ifog", "U", x_t)
        i, f, o, g = (r + u + ln.w[f"{n}.b"] for r, u, n in zip(recurrent, direct, "ifog", strict=True))
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        (read,) = ln(["memory"], [c])
        h = sigmoid(o) * np.tanh(read)
        outputs.append(h)
    return np.stack(outputs)


def layer_norm_gru(x: np.ndarray, ln: Norms, reset_after: bool) -> np.ndarray:
    h, outputs = np.zeros((BATCH, 4)), []
    for x_t in x:
        pairs = zip(ln.products("zr", "W", h), ln.products("zr", "U", x_t), "zr", strict=True)
        z, r = (sigmoid(a + u + ln.w[f"{n}.b"]) for a, u, n in pairs)
        (direct,) = ln.products("c", "U", x_t)
        if reset_after:
            recurrent = r * (ln.products("m", "W", h)[0] + ln.w["m.b"])
        else:
            (recurrent,) = ln.products("c", "W", r * h)
        h = (1 - z) * h + z * np.tanh(direct + recurrent + ln.w["c.b"])
        outputs.append(h)
    return np.stack(outputs)


@on_either_engine
@pytest.mark.parametrize("eps", [1e-5, 0.1])
def test_layer_norm_lstm_takes_joint_statistics_and_normalises_the_memory_it_reads(eps):
    layer, x = modified("lstm", rc.LayerNorm(eps))
    y, (_, c) = layer(x)
    assert_close(y, torch.from_numpy(layer_norm_lstm(x.numpy(), Norms(layer, eps))))
    _, _, trace = layer(x, return_trace=True)
    assert_close(c[0], (trace["f"] * torch.cat([zeros()[None], trace["c"][:-1]]) + trace["i"] * trace["g"])[-1])


@on_either_engine
@pytest.mark.parametrize("reset_after", [False, True])
def test_layer_norm_gru(reset_after):
    layer, x = modified("gru", rc.LayerNorm(), reset_after=reset_after)
    assert_close(layer(x)[0], torch.from_numpy(layer_norm_gru(x.numpy(), Norms(layer, 1e-5), reset_after)))


@on_either_engine
@pytest.mark.parametrize("name", ["lstm", "gru", "rnn", "delay_rnn", "min_gru"])
def test_layer_norm_does_not_see_the_scale_of_a_matrix(name):
    layer, x = modified(name, rc.LayerNorm(eps=0.0))
    start = tuple(value[None] for value in draw_states(layer.cell_list[0], BATCH))  # W 0 has no variance to divide by
    start = start if len(start) > 1 else start[0]
    y = layer(x, start)[0].detach()
    with torch.no_grad():
        for parameter_name, parameter in layer.named_parameters():
            if "modifiers" not in parameter_name and parameter.dim() == 2:
                parameter *= 0.3 if parameter_name.endswith("U") else 7.0
    assert_close(layer(x, start)[0], y, 1e-11)


def test_layer_norm_starts_with_gain_one_and_shift_zero():
    cell = rc.LSTM(3, 4, modifiers=[rc.LayerNorm()]).cell_list[0]
    (norm,) = cell.modifiers
    assert set(norm.gains) == {f"{g}_{w}" for g in "ifgo" for w in "UW"} | {"memory"}
    assert all(torch.equal(g, torch.ones(4)) for g in norm.gains.values())
    assert not any(s.any() for s in norm.shifts.values())


# ---------------------------------------------------------------------------------------------------- zoneout


def zoned_lstm(cell: rc.Cell, x: Tensor, keep_h: Any, keep_c: Any) -> Tensor:
    """c = m ⊙ c_{t-1} + (1 - m) ⊙ c^new, and the same for h, whose proposal reads the proposed c."""
    h, c, outputs = zeros(), zeros(), []
    for x_t, m_h, m_c in zip(x, keep_h, keep_c, strict=True):
        new_h, new_c = cell.step(x_t, h, c)
        h, c = m_h * h + (1 - m_h) * new_h, m_c * c + (1 - m_c) * new_c
        outputs.append(h)
    return torch.stack(outputs)


def test_zoneout_keeps_units_by_the_masks_it_drew():
    layer, x = modified("lstm", rc.Zoneout(h=0.25, c=0.5))
    y, masks = drawn(layer, x)
    keep = {"h": 1 - 0.75 * masks["zoneout_h"], "c": 1 - 0.5 * masks["zoneout_c"]}
    assert all(set(k.unique().tolist()) == {0.0, 1.0} for k in keep.values())
    assert keep["h"].shape == (STEPS, BATCH, 4)
    assert_close(y, zoned_lstm(bare(layer), x, keep["h"], keep["c"]))


def test_zoneout_in_evaluation_takes_the_mean():
    layer, x = modified("lstm", rc.Zoneout(h=0.25, c=0.5))
    assert_close(layer.eval()(x)[0], zoned_lstm(bare(layer), x, [0.25] * STEPS, [0.5] * STEPS))


def test_zoneout_keeps_as_often_as_asked():
    kept = (
        1
        - 0.7
        * rc.RNN(3, 500, modifiers=[rc.Zoneout(0.3)]).cell_list[0].draw_masks(20, 10, torch.zeros(()))["zoneout_h"]
    )
    assert kept.mean() == pytest.approx(0.3, abs=0.01)  # 100 000 draws: seven standard deviations


@sampled_case
def test_zoneout_of_zero_is_the_cell_and_of_one_freezes_it(case: Case):
    x = draw_inputs(case, STEPS, BATCH)
    if case.options.get("delays") == (2,):
        with pytest.raises(OptionError, match="Zoneout: got h, expected a state read one step back"):
            case.layer(modifiers=[rc.Zoneout(1.0)])
        return
    assert_close(case.layer(modifiers=[rc.Zoneout(0.0)])(x)[0], case.layer()(x)[0])
    frozen = case.layer(modifiers=[rc.Zoneout(1.0)])
    for layer in (frozen.train(), frozen.eval()):
        trace = layer(x, return_trace=True)[2]
        for state, start in zip(layer.cell_list[0].carried, layer.cell_list[0].initial_state(BATCH, x), strict=True):
            if state.name == TIME:
                continue
            first = start if state.delays is None else start[:, 0]
            assert_close(trace[state.name], state.with_axes(first.expand(STEPS, -1, -1)))


def test_an_output_made_of_states_shows_them_after_zoneout():
    layer, x = modified("scrn", rc.Zoneout(0.5))
    y, _, trace = layer(x, return_trace=True)
    assert_close(y, torch.cat([trace["h"], trace["s"]], -1))


# ---------------------------------------------------------------------------------------------------- dropout


def test_variational_dropout_uses_one_mask_for_all_gates_and_steps():
    layer, x = modified("lstm", rc.VariationalDropout(inputs=0.25, states=0.5))
    y, masks = drawn(layer, x)
    assert {name: tuple(mask.shape) for name, mask in masks.items()} == {
        "dropout_x": (BATCH, 3),
        "dropout_h": (BATCH, 4),
    }
    assert set(masks["dropout_h"].unique().tolist()) == {0.0, 2.0}
    cell, h, c = bare(layer), zeros(), zeros()
    for t in range(STEPS):
        h, c = cell.step(masks["dropout_x"] * x[t], masks["dropout_h"] * h, c)
        assert_close(y[t], h)


def test_variational_dropout_of_a_gru_drops_what_its_products_read_and_not_the_state():
    layer, x = modified("gru", rc.VariationalDropout(0.5))
    y, masks = drawn(layer, x)
    (inner,) = set(masks) - {"dropout_x", "dropout_h"}
    cell, h = bare(layer), zeros()
    for t in range(STEPS):
        x_t, h_t = masks["dropout_x"] * x[t], masks["dropout_h"] * h
        r, z = torch.sigmoid(cell.r(x_t, h_t)), torch.sigmoid(cell.z(x_t, h_t))
        h = (1 - z) * h + z * torch.tanh(cell.c(x_t, masks[inner] * (r * h)))
        assert_close(y[t], h)


class Spelled(rc.Cell):
    """`x Wᵀ + h Uᵀ`, in one of the ways people write it."""

    states = ("h",)

    def __init__(self, input_size: int, hidden_size: int, way: str):
        super().__init__(input_size, hidden_size)
        self.way = way
        self.W = torch.nn.Parameter(torch.randn(hidden_size, input_size))
        self.U = torch.nn.Parameter(torch.randn(hidden_size, hidden_size))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        W, U = self.W, self.U
        if self.way == "weights in front":
            return torch.tanh((W @ x.T).T + torch.mm(U, h.t()).t())
        if self.way == "weights turned":
            return torch.tanh(x @ W.T + torch.matmul(h, U.transpose(0, 1)))
        if self.way == "weights as they are":
            return torch.tanh(torch.addmm(h @ U.contiguous().T.clone(), x, W.T.clone()))
        return torch.tanh(torch.einsum("bi,oi->bo", x, W) + torch.einsum("bi,oi->bo", h, U))


SPELLINGS = ["weights in front", "weights turned", "weights as they are"]


@on_either_engine
@pytest.mark.parametrize("way", SPELLINGS)
def test_variational_dropout_drops_the_rows_of_products_however_they_are_written(way: str):
    layer = rc.Recurrent(Spelled, 3, 4, modifiers=[rc.VariationalDropout(0.5)], dtype=torch.float64, way=way)
    x = torch.randn(STEPS, BATCH, 3, dtype=torch.float64)
    y, masks = drawn(layer, x)
    assert {name: tuple(mask.shape) for name, mask in masks.items()} == {
        "dropout_x": (BATCH, 3),
        "dropout_h": (BATCH, 4),
    }
    cell, h = layer.cell_list[0], zeros()
    for t in range(STEPS):
        h = torch.tanh((masks["dropout_x"] * x[t]) @ cell.W.T + (masks["dropout_h"] * h) @ cell.U.T)
        assert_close(y[t], h)


def test_weights_that_cannot_be_dropped_are_an_error():
    with pytest.raises(OptionError, match=r"WeightDrop.*Spelled.*affine"):
        rc.Recurrent(Spelled, 3, 4, modifiers=[rc.WeightDrop(0.5)], way="weights turned")


@pytest.mark.parametrize("modifier", [rc.VariationalDropout(0.5), rc.LayerNorm()], ids=lambda m: type(m).__name__)
def test_a_product_that_cannot_be_modified_is_an_error(modifier: Any):
    with pytest.raises(OptionError, match=f"{type(modifier).__name__}.*bmm.*x @ W"):
        rc.Recurrent(Spelled, 3, 4, modifiers=[modifier], way="einsum")


def test_recurrent_dropout_drops_the_candidate_alone():
    layer, x = modified("lstm", rc.RecurrentDropout(0.5))
    y, masks = drawn(layer, x)
    assert masks["dropout_candidate"].shape == (STEPS, BATCH, 4)
    cell, h, c = bare(layer), zeros(), zeros()
    for t in range(STEPS):
        i, f, o = (torch.sigmoid(gate(x[t], h)) for gate in (cell.i, cell.f, cell.o))
        c = f * c + i * (masks["dropout_candidate"][t] * torch.tanh(cell.g(x[t], h)))
        h = o * torch.tanh(c)
        assert_close(y[t], h)


@on_either_engine
def test_weight_drop_draws_one_mask_a_call_and_scales_what_is_left():
    """A dropped entry gets no gradient: that shows the mask, and one mask must explain all steps."""
    layer, x = modified("lstm", rc.WeightDrop(0.5))
    y, _ = layer(x)
    y.square().sum().backward()
    cell, kept = bare(layer), []
    with torch.no_grad():
        for gate in "ifgo":
            kept.append(getattr(layer.cell_list[0], gate).W_raw.grad != 0)
            getattr(cell, gate).W.mul_(kept[-1] / 0.5)
    assert 0.3 < torch.stack(kept).double().mean() < 0.7
    assert all(layer.get_parameter(f"cells.0.{gate}.U").grad.all() for gate in "ifgo")
    h, c = zeros(), zeros()
    for t in range(STEPS):
        h, c = cell.step(x[t], h, c)
        assert_close(y[t], h)


@on_either_engine
def test_weight_drop_draws_the_same_mask_for_the_same_seed_in_the_first_call_and_later():
    layer, x = modified("gru", rc.WeightDrop(0.5))
    outputs = []
    for _ in range(3):
        torch.manual_seed(4)
        outputs.append(layer(x)[0])
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[1], outputs[2])


def test_weight_drop_comes_after_a_weights_own_derivation():
    layer, x = modified("orthogonal_rnn", rc.WeightDrop(0.5))
    torch.manual_seed(4)
    W = layer.cell_list[0].a.W
    whole = layer.eval().cell_list[0].a.W
    assert bool(((W == 0) | torch.isclose(W, 2 * whole, rtol=1e-12)).all())
    y, a, h = layer(x)[0], layer.cell_list[0].a, x.new_zeros(BATCH, whole.shape[0])
    for t in range(STEPS):
        h = torch.tanh(x[t] @ a.U.T + h @ whole.T + a.b)
        assert_close(y[t], h)


@on_either_engine
def test_a_seed_gives_the_same_masks_on_the_first_call_and_later():
    layer, x = modified("lstm", rc.WeightDrop(0.5), rc.Zoneout(0.3), rc.VariationalDropout(0.4))
    runs = []
    for _ in range(3):
        torch.manual_seed(9)
        runs.append(layer(x)[0].detach())
    assert torch.equal(runs[0], runs[1])
    assert torch.equal(runs[1], runs[2])


DROPOUTS = [rc.VariationalDropout(0.5), rc.WeightDrop(0.5), rc.RecurrentDropout(0.5)]


@on_either_engine
@pytest.mark.parametrize("modifier", DROPOUTS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("name", ["lstm", "gru", "min_lstm"])
def test_dropout_in_evaluation_and_at_rate_zero_is_the_cell_itself(name, modifier):
    layer, x = modified(name, modifier)
    base = rc.Recurrent(type(layer.cell_list[0]), 3, 4, dtype=torch.float64)
    base.cells[0].load_state_dict(bare(layer).state_dict())
    expected = base(x)[0]
    alters = not (name == "min_lstm" and isinstance(modifier, rc.WeightDrop))  # which has no recurrent matrix to drop
    assert torch.allclose(layer(x)[0], expected) != alters
    assert_close(layer.eval()(x)[0], expected)
    none = rc.Recurrent(type(layer.cell_list[0]), 3, 4, dtype=torch.float64, modifiers=[type(modifier)(0.0)])
    for cell in none.cell_list:
        with torch.no_grad():
            for parameter_name, parameter in cell.named_parameters():
                parameter.copy_(bare(layer).get_parameter(parameter_name.replace("_raw", "")))
    assert_close(none(x)[0], expected)


def test_layer_norm_of_a_product_with_a_matrix_computed_in_the_step_is_an_error_that_says_so():
    class Scaled(rc.Cell):
        def __init__(self, input_size: int, hidden_size: int):
            super().__init__(input_size, hidden_size)
            self.a = self.affine("x", "h")

        def step(self, x: Tensor, h: Tensor) -> Tensor:
            return torch.tanh(torch.nn.functional.linear(h, 0.5 * self.a.W) + self.a(x, h))

    with pytest.raises(OptionError, match="a matrix computed in step"):
        rc.Recurrent(Scaled, 3, 4, modifiers=rc.LayerNorm())


# ---------------------------------------------------------------------------------------------------- together


@on_either_engine
def test_all_of_them_together_on_an_lstm():
    """Weight drop, variational and recurrent dropout, layer norm and zoneout, written out in one loop."""
    layer, x = modified(
        "lstm",
        rc.LayerNorm(),
        rc.VariationalDropout(0.3),
        rc.RecurrentDropout(0.2),
        rc.Zoneout(0.4),
        rc.WeightDrop(0.5),
    )
    y, masks = drawn(layer, x)
    cell = layer.cell_list[0]
    raw = {gate: getattr(cell, gate).W_raw for gate in "ifgo"}
    seen = torch.autograd.grad(y.square().sum(), [*raw.values()], retain_graph=True)
    W = {
        gate: 2 * raw[gate] * (gradient != 0) for gate, gradient in zip(raw, seen, strict=True)
    }  # what was not dropped
    gains, shifts = cell.modifiers[0].gains, cell.modifiers[0].shifts

    def normal(values: list[Tensor], labels: list[str]) -> list[Tensor]:
        a = torch.cat(values, -1)
        a = (a - a.mean(-1, keepdim=True)) / torch.sqrt(a.var(-1, keepdim=True, correction=0) + 1e-5)
        parts = a.chunk(len(values), -1)
        return [gains[label] * part + shifts[label] for part, label in zip(parts, labels, strict=True)]

    h, c = zeros(), zeros()
    for t in range(STEPS):
        x_t, h_t = masks["dropout_x"] * x[t], masks["dropout_h"] * h
        recurrent = normal([h_t @ W[g].T for g in "ifgo"], [f"{g}_W" for g in "ifgo"])
        direct = normal([x_t @ getattr(cell, g).U.T for g in "ifgo"], [f"{g}_U" for g in "ifgo"])
        a = [r + u + getattr(cell, g).b for r, u, g in zip(recurrent, direct, "ifgo", strict=True)]
        i, f, g, o = torch.sigmoid(a[0]), torch.sigmoid(a[1]), torch.tanh(a[2]), torch.sigmoid(a[3])
        new_c = f * c + i * (masks["dropout_candidate"][t] * g)
        new_h = o * torch.tanh(normal([new_c], ["memory"])[0])
        h = h + 0.6 * masks["zoneout_h"][t] * (new_h - h)
        c = c + 0.6 * masks["zoneout_c"][t] * (new_c - c)
        assert_close(y[t], h)


@pytest.mark.parametrize("name", ["lstm", "projection_lstm"])
def test_zoneout_and_layer_norm_mean_the_same_in_either_order(name):
    one, x = modified(name, rc.LayerNorm(), rc.Zoneout(0.05, c=0.5))
    other, _ = modified(name, rc.Zoneout(0.05, c=0.5), rc.LayerNorm())
    with torch.no_grad():
        for name, parameter in other.named_parameters():
            parameter.copy_(one.get_parameter(name.replace("modifiers.1", "modifiers.0")))
    assert_close(one.eval()(x)[0], other.eval()(x)[0])


def test_layer_norm_reaches_a_product_that_is_itself_a_state():
    layer, x = modified("projection_lstm", rc.LayerNorm())
    r = layer(x)[1][0]
    gains, shifts = (getattr(layer.cell_list[0].modifiers[0], kind)["R_W"] for kind in ("gains", "shifts"))
    normal = (r - shifts) / gains
    assert_close(normal.mean(-1), torch.zeros(1, BATCH, dtype=torch.float64))


@sampled_name
def test_every_cell_takes_every_modifier(case: Case):
    check_all_modifiers(case)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm", "gru", "delay_rnn", "scrn"])
def test_cells_with_every_modifier_on_the_engine_recurra_chooses(name):
    with set_backend("auto"):
        check_all_modifiers(Case(name))


def check_gradients(loss: Callable[[], Tensor], leaves: dict[str, Tensor], step: float = 1e-6) -> None:
    """The gradient of every leaf against a central difference in a random direction, with the same masks drawn."""

    def drawn_loss() -> Tensor:
        torch.manual_seed(11)
        return loss()

    gradients = torch.autograd.grad(drawn_loss(), [*leaves.values()])
    for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
        direction = torch.randn_like(leaf)
        with torch.no_grad():
            start = leaf.clone()
            above, below = (float((leaf.copy_(start + sign * step * direction), drawn_loss())[1]) for sign in (1, -1))
            leaf.copy_(start)
        difference = torch.tensor((above - below) / (2 * step), dtype=leaf.dtype)
        torch.testing.assert_close((gradient * direction).sum(), difference, rtol=1e-5, atol=1e-6, msg=name)


def check_all_modifiers(case: Case) -> None:
    modifiers = [rc.LayerNorm(), rc.Zoneout(0.2), rc.VariationalDropout(0.2), rc.WeightDrop(0.2)]
    if rc.registry()[case.name].candidate:
        modifiers.append(rc.RecurrentDropout(0.2))
    layer = case.layer(modifiers=modifiers)
    x = draw_inputs(case, STEPS, BATCH).requires_grad_()
    leaves = {"x": x} | {name: p for name, p in layer.named_parameters() if p.requires_grad}
    if case.name not in SPIKING:  # differences of spikes are zero or infinite
        check_gradients(lambda: layer(x, lengths=[5, 2, 4])[0].square().sum(), leaves)
        assert not torch.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])
    lengths = torch.tensor([5, 2, 4])
    rubbish = x.detach().masked_fill((torch.arange(STEPS)[:, None] >= lengths)[..., None], float("nan"))
    assert_close(layer(rubbish, lengths=lengths)[0], layer(x, lengths=lengths)[0])


def test_every_cell_of_a_layer_has_its_own_copy():
    norm = rc.LayerNorm()
    layer = rc.LSTM(3, 4, 2, bidirectional=True, modifiers=[norm])
    gains = [cell.modifiers[0].gains["i_W"] for cell in layer.cell_list]
    assert len({id(g) for g in gains}) == 4
    assert not norm.gains
    rc.GRU(3, 4, modifiers=norm)  # a single one need not stand in a list, and serves any number of layers


def test_masks_are_drawn_anew_for_every_sequence_and_call():
    layer, x = modified("rnn", rc.VariationalDropout(states=0.5, inputs=0.0), hidden_size=32)
    masks = layer.cell_list[0].draw_masks(STEPS, BATCH, x)["dropout_h"]
    assert len(masks.unique(dim=0)) == BATCH
    assert not torch.equal(masks, layer.cell_list[0].draw_masks(STEPS, BATCH, x)["dropout_h"])


def test_a_modified_cell_called_by_itself_is_the_modified_step():
    layer, x = modified("lstm", rc.LayerNorm())
    cell = layer.cell_list[0]
    y, h, c = cell(x[0], zeros(), zeros())
    assert_close(y, layer(x[:1])[0][0])
    assert_close(h, y)
    assert_close(c, layer(x[:1])[1][1][0])


def test_chunks_and_steps_with_modifiers_in_evaluation():
    layer, x = modified("gru", rc.LayerNorm(), rc.Zoneout(0.3))
    layer.eval()
    y, state = layer(x)
    first, now = layer(x[:2])
    outputs = [first]
    for x_t in x[2:]:
        y_t, now = layer.step(x_t, now)
        outputs.append(y_t[None])
    assert_close(torch.cat(outputs), y)
    assert_close(now, state)


def test_changing_a_copy_leaves_the_original_alone():
    layer, x = modified("lstm", rc.LayerNorm())
    before = layer(x)[0].detach()
    randomise(copy.deepcopy(layer))
    assert_close(layer(x)[0], before)


# ---------------------------------------------------------------------------------------------------- errors


def test_recurrent_dropout_needs_a_candidate():
    with pytest.raises(OptionError, match="RecurrentDropout: got RNN, expected a cell whose class names its candidate"):
        rc.RNN(3, 4, modifiers=[rc.RecurrentDropout(0.1)])


def test_zoneout_needs_states_the_cell_has():
    with pytest.raises(UnknownNameError, match=r"Zoneout: got 'q', expected .*one of c, h"):
        rc.LSTM(3, 4, modifiers=[rc.Zoneout(q=0.1)])


@pytest.mark.parametrize(
    ("build", "argument"),
    [
        (lambda: rc.Zoneout(1.5), "rate"),
        (lambda: rc.Zoneout(c=-0.1), "c"),
        (lambda: rc.VariationalDropout(inputs=2.0), "inputs"),
        (lambda: rc.VariationalDropout(float("nan")), "inputs"),
        (lambda: rc.RecurrentDropout("0.5"), "rate"),
        (lambda: rc.WeightDrop(None), "rate"),
    ],
)
def test_rates_are_probabilities(build, argument):
    with pytest.raises(InputError, match=f"^{argument}: got .*, expected a probability between 0 and 1"):
        build()


def test_modifiers_must_be_modifiers():
    with pytest.raises(InputError, match=r"modifiers: got 0.5, expected modifiers, such as rc.Zoneout"):
        rc.LSTM(3, 4, modifiers=[0.5])


def test_the_same_masks_cannot_be_asked_for_twice():
    with pytest.raises(OptionError, match="mask: got zoneout_h, expected a name not used before"):
        rc.LSTM(3, 4, modifiers=[rc.Zoneout(0.1), rc.Zoneout(0.2)])


def test_layer_norm_needs_products():
    class Sum(rc.Cell):
        def step(self, x, h):
            return h + x

    with pytest.raises(OptionError, match="LayerNorm: got Sum, expected a cell with products"):
        rc.Recurrent(Sum, 3, 3, modifiers=[rc.LayerNorm()])
