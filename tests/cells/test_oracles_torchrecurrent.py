"""torchrecurrent's cells, where they are what their papers print; and the differences where they are not."""

import pytest
import torch
import torchrecurrent
from cases import Case, draw_inputs, draw_states
from helpers import compare, put, run, runs
from torch import Tensor, nn

import recurra as rc

# recurra's name, torchrecurrent's, and our affines in the order of its stacked rows, of x and of the state.
TABLE = [
    ("cfn", "CFN", ("theta", "eta", "c"), ("theta", "eta")),
    ("ran", "RAN", ("c", "i", "f"), ("i", "f")),
    ("li_gru", "LiGRU", ("z", "c"), ("z", "c")),
    ("atr", "ATR", ("p",), ("q",)),
    ("sgrn", "SGRN", ("p",), ("q",)),
    ("star", "STAR", ("phi", "k"), ("k",)),
    ("light_ru", "LightRU", ("c", "f"), ("f",)),
    ("fast_rnn", "FastRNN", ("a",), ("a",)),
    ("miru1", "MiRU1", ("r", "c"), ("r", "c")),
    ("miru2", "MiRU2", ("c",), ("c",)),
    ("t_rnn", "TRNN", ("c", "f"), ()),
    ("t_gru", "TGRU", ("c", "f", "o"), ("c", "f", "o")),
    ("t_lstm", "TLSTM", ("c", "f", "o"), ("c", "f", "o")),
    ("nbrc", "NBR", ("a", "c", "g"), ("a", "c")),
    ("memory_controller_lstm", "MCLSTM", ("f", "i", "o", "m", "g"), ("f", "i", "o", "m", "g")),
    ("mc_lstm_working_memory", "WMCLSTM", ("i", "f", "g", "o"), ("i", "f", "g", "o")),
    ("residual_lstm", "ResLSTM", ("i", "f", "g", "o"), ("i", "f", "g", "o")),
    ("intersection_rnn", "IntersectionRNN", ("u", "g", "p", "k"), ("u", "g", "p", "k")),
    ("unicornn", "UnICORNN", ("a",), ()),
]


def filled(name: str, size: int, **options: object) -> nn.Module:
    """A cell of torchrecurrent with random parameters; biases that ours lacks are zero."""
    oracle = getattr(torchrecurrent, f"{name}Cell")(size, 4, **options).double()
    with torch.no_grad():
        for parameter in oracle.parameters():
            parameter.uniform_(-0.9, 0.9)
    return oracle


def copied(cell: rc.Cell, oracle: nn.Module, of_x: tuple[str, ...], of_h: tuple[str, ...]) -> rc.Cell:
    """Our cell with the oracle's stacked matrices; a bias that we lack is zero in the oracle."""
    weights, biases = dict(cell.named_parameters()), dict[str, Tensor]()
    for kind, names, leaf in (("ih", of_x, "U"), ("hh", of_h, "W")):
        for number, name in enumerate(names):
            put(cell, **{f"{name}__{leaf}": getattr(oracle, f"weight_{kind}")[number * 4 : number * 4 + 4]})
        bias = getattr(oracle, f"bias_{kind}", None)
        parts = [] if bias is None else bias.detach().split(4)
        for name, part in zip(names[::-1], parts[::-1], strict=False):  # RAN's first product has no bias
            biases[name] = biases.get(name, 0) + part
    for name, bias in biases.items():
        if f"{name}.b" in weights:
            put(cell, **{f"{name}__b": bias})
    return cell


def without_missing_biases(oracle: nn.Module, name: str) -> None:
    """Zero the biases of the oracle that the paper does not have."""
    rows = {"CFN": ("bias_ih", 8, 12), "TRNN": ("bias_ih", 0, 4), "SGRN": ("bias_hh", 0, 4)}.get(name)
    with torch.no_grad():
        if rows:
            getattr(oracle, rows[0])[rows[1] : rows[2]] = 0
        if name == "UnICORNN" and getattr(oracle, "bias_hh", None) is not None:
            oracle.bias_hh.zero_()


def looped(oracle: nn.Module, decoupled: bool):
    """The oracle over a sequence: outputs and final states."""

    def function(x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        outputs = []
        for x_t in x:
            made = oracle(x_t, states if len(states) > 1 else states[0])
            if decoupled:
                y, states = made
                states = states if isinstance(states, tuple) else (states,)
            else:
                states = made if isinstance(made, tuple) else (made,)
                y = states[0]
            outputs.append(y)
        return torch.stack(outputs), *states

    return function


@pytest.mark.parametrize(("name", "theirs", "of_x", "of_h"), TABLE, ids=[row[0] for row in TABLE])
def test_the_cell_is_torchrecurrents(name: str, theirs: str, of_x: tuple[str, ...], of_h: tuple[str, ...]):
    size = 4 if name == "intersection_rnn" else 3
    options = {"dt": 0.1, "alpha": 1.0} if name == "unicornn" else {}
    oracle = filled(theirs, size, **options)
    without_missing_biases(oracle, theirs)
    cell = copied(Case(name, input_size=size).cell(), oracle, of_x, of_h)
    if name == "fast_rnn":
        put(cell, alpha=oracle.alpha, beta=oracle.beta)
    if name in ("miru1", "miru2"):
        cell.update = float(oracle.update_coefficient)
    if name == "miru2":
        cell.beta.fill_(float(oracle.reset_coefficient))
    if name == "mc_lstm_working_memory":
        for number, gate in enumerate("ifo"):
            rows = slice(number * 4, number * 4 + 4)
            put(cell, **{f"m_{gate}__W": oracle.weight_mh[rows], f"m_{gate}__b": oracle.bias_mh[rows]})
    if name == "residual_lstm":
        put(cell, p_i=oracle.weight_ph[:4], p_f=oracle.weight_ph[4:8], p_o=oracle.weight_ph[8:])
        put(cell, P__W=oracle.weight_proj, E__U=oracle.weight_res)
    if name == "unicornn":
        put(cell, w=oracle.weight_hh, c=oracle.weight_ch)
    decoupled = name in ("memory_controller_lstm", "intersection_rnn", "t_lstm")
    x = draw_inputs(Case(name, input_size=size))
    compare(runs(cell), looped(oracle, decoupled), x, *draw_states(cell, 2))


class TheanosHardSigmoid(nn.Module):
    def forward(self, a: Tensor) -> Tensor:
        return (0.2 * a + 0.5).clamp(0, 1)


def test_the_simple_gated_unit_is_torchrecurrents_with_theanos_hard_sigmoid():
    """torch's hard sigmoid has slope 1/6, Theano's 1/5: with the latter the two are one."""
    for name, theirs in (("sgu", "SGU"), ("dsgu", "DSGU")):
        oracle, cell, x = filled(theirs, 3), Case(name).cell(), draw_inputs(Case(name))
        oracle.gate_act = TheanosHardSigmoid()
        with torch.no_grad():
            oracle.bias_hh[:4] = 0
        put(cell, p__U=oracle.weight_ih[:4], p__b=oracle.bias_ih[:4], m__W=oracle.weight_hh[:4])
        put(cell, z__U=oracle.weight_ih[4:], z__W=oracle.weight_hh[4:], z__b=oracle.bias_ih[4:] + oracle.bias_hh[4:])
        if name == "dsgu":
            put(cell, c__W=oracle.weight_ho)
        compare(runs(cell), looped(oracle, False), x, *draw_states(cell, 2))
        oracle.gate_act = nn.Hardsigmoid()
        theirs_as_it_is = looped(oracle, False)(x, x.new_zeros(2, 4))[0]
        assert (run(cell, x)[0] - theirs_as_it_is).abs().max() > 1e-3


def test_torchrecurrents_nas_cell_adds_where_the_paper_multiplies():
    oracle, cell = filled("NAS", 3), Case("nas").cell()
    leaves = {f"a_{k}": k - 1 for k in (1, 2, 3, 5, 6, 7, 8)}
    for name, place in leaves.items():
        rows = slice(place * 4, place * 4 + 4)
        put(cell, **{f"{name}__U": oracle.weight_ih[rows], f"{name}__W": oracle.weight_hh[rows]})
        put(cell, **{f"{name}__b": oracle.bias_ih[rows] + oracle.bias_hh[rows]})
    with torch.no_grad():  # the fourth leaf shut in both
        for parameter in oracle.parameters():
            parameter[12:16] = 0
    put(cell, p__U=0, p__b=0)
    compare(runs(cell), looped(oracle, False), draw_inputs(Case("nas")), *draw_states(cell, 2))
