"""Diagrams are drawn from what a cell computes: every cell, user cells, networks; and equations as MathML."""

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
import torch
from cases import Case, every_case, sampled_case
from torch import Tensor, nn, sigmoid, tanh

import recurra as rc
from recurra.errors import InputError
from recurra.inspect.cell_graph import diagram_nodes
from recurra.inspect.graph_layout import assign_positions
from recurra.inspect.latex_parser import parse
from recurra.inspect.mathml import cell_mathml, mathml
from recurra.inspect.wiring import links_of, network_of

SVG = "{http://www.w3.org/2000/svg}"


def drawn(svg: str) -> ET.Element:
    return ET.fromstring(svg)


def labels(svg: str) -> list[str]:
    return ["".join(text.itertext()).replace("\u200b", "") for text in drawn(svg).iter(f"{SVG}text")]


def count(svg: str, kind: str) -> int:
    return sum(kind in (one.get("class") or "").split() for one in drawn(svg).iter())


# ---------------------------------------------------------------------------------------------------- cells


@sampled_case
def test_every_cell_is_drawn_whole(case: Case):
    cell = case.cell()
    found = labels(str(rc.diagram(cell)))
    for state in cell.states:
        assert any(label.startswith(state) and "t" in label for label in found), f"{state} is missing in {found}"
    assert "xt" in found


@sampled_case
def test_nothing_stands_on_top_of_another(case: Case):
    parts = diagram_nodes(case.cell())
    assign_positions(parts)
    assert len({(part.layer, round(part.row, 3)) for part in parts}) == len(parts)
    for column in {part.layer for part in parts}:
        rows = sorted(part.row for part in parts if part.layer == column)
        assert all(b - a > 0.6 for a, b in pairwise(rows))
    for part in parts:
        assert all(source.layer < part.layer for source in part.sources), "a line runs backwards"


def test_the_lstm_has_four_gates_and_one_belt():
    svg = str(rc.diagram("lstm"))
    found = labels(svg)
    assert [found.count(gate) for gate in ("ft", "it", "gt", "ot")] == [1, 1, 1, 1]
    assert found.count("σ") == 3
    parts = diagram_nodes(rc.registry()["lstm"](3, 4))
    belt = [part for part in parts if part.belt]
    assert {part.label for part in belt} == {"c_{t-1}", r"\odot", "+", "c_{t}"}
    assert count(svg, "belt") == 3  # from the old memory over two operations to the new one


def test_the_grus_belt_is_its_state():
    belt = [part.label for part in diagram_nodes(rc.registry()["gru"](3, 4)) if part.belt]
    assert {"h_{t-1}", "h_{t}"} <= set(belt)


def test_boxes_say_their_equations():
    titles = [title.text for title in drawn(str(rc.diagram("lstm"))).iter(f"{SVG}title")]
    assert any(title and title.startswith("f_{t} = ") and "W_{f}" in title for title in titles)


def test_operations_are_labelled_by_terms_of_the_field():
    drawn = rc.diagram("rwkv7").svg
    assert "norm<" in drawn
    assert not re.search("linalg|clampmin|bmm", drawn)


def test_steps_side_by_side():
    found = labels(str(rc.diagram("lstm", unfold=3)))
    assert {"xt−1", "xt", "xt+1", "ft−1", "ft", "ft+1"} <= set(found)


class Leaky(rc.Cell):
    """A user's own."""

    states = ("h", "memory")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.gate, self.new = self.affine("x", "h"), self.affine("x", "h")

    def step(self, x: Tensor, h: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        openness = sigmoid(self.gate(x, h))
        memory = memory + openness * tanh(self.new(x, h))
        return tanh(memory), memory


def test_a_users_cell_is_drawn_with_the_users_names():
    found = labels(str(rc.diagram(Leaky(3, 4))))
    assert {"opennesst", "memoryt"} <= set(found)
    belt = {part.label for part in diagram_nodes(Leaky(3, 4)) if part.belt}
    assert r"\mathrm{memory}_{t}" in belt


# ---------------------------------------------------------------------------------------------------- networks


def test_a_folded_network_has_a_loop_and_an_unfolded_one_a_box_a_step():
    folded, unfolded = (
        str(rc.diagram(rc.layer("rnn", 3, 4), unfold=0)),
        str(rc.diagram(rc.layer("rnn", 3, 4), unfold=4)),
    )
    assert labels(folded).count("RNN 4") == 1
    assert "−1" in labels(folded)
    assert labels(unfolded).count("RNN 4") == 4
    assert "−1" not in labels(unfolded)


def test_long_delays_reach_over_steps():
    layer = rc.layer("delay_rnn", 3, 4, delays=(1, 3))
    unfolded = str(rc.diagram(layer))
    assert "W3" in labels(unfolded)
    assert labels(unfolded).count("DelayRNN 4") == 4  # one step more than the delay, so that it can be seen
    assert count(unfolded, "delayed") == 1
    assert {"−1", "−3"} <= set(labels(str(rc.diagram(layer, unfold=0))))


def arcs(svg: str) -> list[tuple[float, float]]:
    """Where each dotted arc starts and where it ends, from left to right."""
    found = re.findall(r'class="line delayed" d="M ([-.\d]+) \S+ C [^"]*, ([-.\d]+) \S+"', svg)
    return [(float(start), float(end)) for start, end in found]


def test_a_dilated_layer_continues_the_state_of_some_steps_before():
    unfolded = str(rc.diagram(rc.GRU(3, 4, num_layers=2, dilation=[1, 2])))
    assert len(arcs(unfolded)) == 1  # of three steps, the last continues the first
    assert "−2" in labels(str(rc.diagram(rc.GRU(3, 4, dilation=2), unfold=0)))
    far = str(rc.diagram(rc.GRU(3, 4, dilation=16)))  # no two steps of the drawing are so far apart
    assert "16 steps before" in labels(far)
    assert count(far, "delayed") == labels(far).count("GRU 4") == 3


def test_a_backward_row_runs_against_time_over_delays_too():
    layer = rc.layer("delay_rnn", 3, 4, delays=(1, 3), bidirectional=True)
    (forward, backward) = arcs(str(rc.diagram(layer)))
    assert forward[0] < forward[1]
    assert backward[0] > backward[1]
    assert {"−1", "−3", "+1", "+3"} <= set(labels(str(rc.diagram(layer, unfold=0))))


@pytest.mark.parametrize("bidirectional", [True, "separate"])
def test_both_directions_of_every_layer_are_there(bidirectional):
    layer = rc.layer("lstm", 3, 4, num_layers=2, bidirectional=bidirectional)
    found = labels(str(rc.diagram(layer)))
    assert found.count("→ LSTM 4") == found.count("← LSTM 4") == 6


def test_networks_that_read_both_ways_outside_of_a_layer():
    found = labels(str(rc.diagram(rc.ELMo(projection_size=4, hidden_size=6, filters=((1, 4),)))))
    assert found.count("→ ProjectionLSTM") == found.count("← ProjectionLSTM") == 6
    assert found.count("CharacterEncoder") == found.count("ScalarMix") == 3
    assert labels(str(rc.diagram(rc.BaldiBRNN(3, 4, 2)))).count("← PerceptronCell") == 3


def test_a_model_is_drawn_with_what_stands_around_its_layers():
    model = nn.Sequential(nn.Embedding(9, 3), rc.layer("gru", 3, 4), nn.Linear(4, 2))
    found = labels(str(rc.diagram(model, unfold=2)))
    assert [found.count(name) for name in ("Embedding", "GRU 4", "Linear")] == [2, 2, 2]


# ------------------------------------------------------------------------------------------ links that run


def parts(*sources: int) -> tuple[frozenset[int], ...]:
    return tuple(frozenset([n]) for n in sources)


@pytest.mark.parametrize("bidirectional", [False, True, "separate"])
def test_links_of_a_stack_are_those_that_run(bidirectional):
    layers = {
        d: rc.GRU(3, 4, 3, bidirectional=bidirectional, depth=d, dropout=0.5) for d in ("stack", "residual", "graves")
    }
    plain, residual, graves = (links_of(layer) for layer in layers.values())
    assert plain.reads == (parts(-1), parts(0), parts(1))
    assert plain.output == parts(2)
    assert graves.reads == (parts(-1), parts(-1, 0), parts(-1, 1))
    assert graves.output == parts(0, 1, 2)
    assert residual.reads == (parts(-1), parts(0), (frozenset([0, 1]),))
    assert residual.output == (frozenset([0, 1, 2]),)
    assert [residual.residual(n) for n in range(3)] == [False, True, True]
    assert not any(links.residual(n) for links in (plain, graves) for n in range(3))
    assert all(layer.training for layer in layers.values())


def test_links_follow_the_code_and_not_the_option(monkeypatch):
    """Another way to connect the layers is drawn without a change of the drawing."""

    def first_layer_reaches_the_output(self, x, run_layer):
        first = run_layer(0, x)
        return torch.cat([run_layer(1, first), first], dim=-1)

    monkeypatch.setattr(rc.Recurrent, "_stack", first_layer_reaches_the_output)
    assert links_of(rc.RNN(3, 4, 2)).output == parts(1, 0)
    assert count(str(rc.diagram(rc.RNN(3, 4, 2))), "skip") == 3


def test_skips_and_residuals_are_drawn():
    drawings = {d: str(rc.diagram(rc.LSTM(3, 4, num_layers=3, depth=d))) for d in ("stack", "graves", "residual")}
    assert {d: count(svg, "skip") for d, svg in drawings.items()} == {"stack": 0, "graves": 12, "residual": 6}
    assert {d: labels(svg).count("+") for d, svg in drawings.items()} == {"stack": 0, "graves": 0, "residual": 6}


def test_every_layer_of_elmo_reaches_its_mix():
    elmo = rc.ELMo(projection_size=4, hidden_size=6, num_layers=2, filters=((1, 4),))
    network = network_of(elmo)
    assert [level.reads for level in network.levels] == [(-1,), (0,), (1,), (0, 1, 2)]
    assert [level.residual for level in network.levels] == [False, False, True, False]
    found = labels(str(rc.diagram(elmo)))
    assert [found.count(f"s{k}") for k in range(3)] == [3, 3, 3]
    without = rc.ELMo(projection_size=4, hidden_size=6, filters=((1, 4),), residual=False)
    assert not any(level.residual for level in network_of(without).levels)


def test_levels_of_a_hierarchy_are_drawn_when_they_update():
    svg = str(rc.diagram(rc.HierarchicalRNN(3, [4, 3], [1, 4])))
    assert labels(svg).count("RNN 4") == 5
    assert labels(svg).count("3, every 4") == 1
    assert count(svg, "frame") == 4  # held
    assert count(svg, "delayed") == 1 + 4  # into its one update, and down at every step after the first
    network = network_of(rc.HierarchicalRNN(3, [4, 3], [1, 4], same_step=True))
    assert [(level.reads, level.delayed) for level in network.levels] == [((-1,), (1,)), ((-1, 0), ())]
    assert "−4" in labels(str(rc.diagram(rc.HierarchicalRNN(3, [4, 3], [1, 4]), unfold=0)))


def test_dynamical_systems_folded_and_unfolded():
    free, driven = rc.DynamicalSystem(lambda h: h), rc.DynamicalSystem(lambda h, x: h + x)
    assert {"ht−1", "ht", "ht+1", "f"} == set(labels(str(rc.diagram(free))))
    assert {"xt−1", "xt", "xt+1"} <= set(labels(str(rc.diagram(driven))))
    assert {"ht", "f", "−1"} == set(labels(str(rc.diagram(free, unfold=0))))
    assert "xt" in labels(str(rc.diagram(driven, unfold=0)))


def test_a_narx_network_shows_both_delays():
    found = labels(str(rc.diagram(rc.NARX(2, 1, 8, input_delays=(0, 2), output_delays=(1, 3)))))
    assert "W3" in found
    assert "0,2" in found


def test_an_echo_state_network_tells_fixed_from_learned():
    svg = str(rc.diagram(rc.EchoStateNetwork(units=50, feedback=0.3)))
    assert {"xt", "yt", "U", "V", "F"} <= set(labels(svg))
    assert count(svg, "fixed") > 10
    texts = re.findall(r'<text[^>]* y="([-0-9.]+)"[^>]*>(.*?)</text>', svg)
    heights = {re.sub("<[^>]*>", "", text): float(y) for y, text in texts}
    (caption,) = (y for text, y in heights.items() if text.startswith("dashed"))
    assert heights["F"] + 16 < caption  # one below the other


def test_names_from_outside_stay_text():
    strange = type("</text><script>alert(1)</script>", (Leaky,), {})
    svg = str(rc.diagram(strange(3, 4)))
    assert "<script" not in svg
    assert any("<script>" in label for label in labels(svg))


def test_it_is_saved_and_shown(tmp_path):
    figure_block = rc.diagram("gru")
    assert figure_block._repr_svg_() == figure_block.save(tmp_path / "gru.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(("what", "unfold"), [(nn.Linear(2, 2), 3), ("lstm", -1), ("lstm", 2.5), (7, 3)])
def test_what_it_refuses(what, unfold):
    with pytest.raises(InputError):
        rc.diagram(what, unfold)


# ---------------------------------------------------------------------------------------------------- MathML


@every_case
def test_every_cells_equations_become_mathml(case: Case):
    cell = case.cell()
    table = ET.fromstring(cell_mathml(cell))
    rows = list(table.iter("mtr"))
    assert len(rows) == cell.equations().count("&=")
    allowed = {"math", "mtable", "mtr", "mtd", "mi", "mn", "mo", "mrow", "msub", "msup", "msubsup", "mfrac", "msqrt", "mover", "mspace"}  # fmt: skip # noqa: E501
    assert {element.tag for element in table.iter()} <= allowed
    for element in table.iter():
        wanted = {"msub": 2, "msup": 2, "msubsup": 3, "mfrac": 2, "mover": 2}.get(element.tag)
        assert wanted is None or len(element) == wanted


def test_mathml_says_what_latex_says():
    text = mathml(r"\frac{1}{\tau} \odot \tanh\left(W\,h_{t-1}\right)")
    assert "".join(ET.fromstring(text).itertext()) == "1τ⊙tanh(Wht−1)"
    assert re.sub(r"<[^>]+>", " ", mathml("a_{b}^{2}")).split() == ["a", "b", "2"]


def test_latex_that_is_not_recurras_is_refused():
    for text in (r"\textbf{x}", "a}"):
        with pytest.raises(InputError):
            parse(text)


def test_a_layers_own_sizes_do_not_matter():
    torch.manual_seed(0)
    assert cell_mathml(rc.registry()["gru"](3, 4)) == cell_mathml(rc.registry()["gru"](30, 40))
