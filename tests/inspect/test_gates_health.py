"""Gate activity on tokens and numbers; the health check on models with one known fault each."""

import re

import pytest
import torch
from torch import nn

import recurra as rc
from recurra.errors import UnknownNameError
from recurra.inspect import Monitor, gate_activity, health
from recurra.inspect.health import REMEDIES


class LanguageModel(nn.Module):
    def __init__(self, vocabulary: int):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 4)
        self.recurrent = rc.layer("lstm", 4, 5)
        self.head = nn.Linear(5, vocabulary)

    def forward(self, tokens, state=None, lengths=None):
        y, state = self.recurrent(self.embedding(tokens), state, lengths=lengths)
        return self.head(y), state


def letters(*texts: str) -> rc.data.SequenceSet:
    alphabet = sorted(set("".join(texts)))
    rows = [torch.tensor([alphabet.index(letter) for letter in text]) for text in texts]
    return rc.data.SequenceSet.one_step_ahead(
        rows, torch.tensor([len(row) for row in rows]), "language", vocabulary=tuple(alphabet)
    )


# ---------------------------------------------------------------------------------------------------- gates


def test_values_are_those_of_the_layers_trace():
    layer, x = rc.layer("lstm", 3, 4, bidirectional=True), torch.randn(7, 2, 3)
    lengths = torch.tensor([7, 5])
    found = gate_activity(layer, rc.data.Batch(x, torch.zeros(2, 1), lengths, torch.arange(2)))
    trace = layer(x, lengths=lengths, return_trace=True)[2]
    for direction, values_of_cell in zip(("forward", "backward"), trace.by_cell, strict=True):
        for name in ("h", "c", "i", "f", "g", "o"):
            values = found[f"LSTM · {direction} · {name}"].values
            assert values[5:, 1].isnan().all()
            torch.testing.assert_close(values.nan_to_num(), values_of_cell[name].double(), rtol=1e-5, atol=1e-6)


def test_hovering_shows_the_token():
    data = letters("a<b>a", "bab")
    found = gate_activity(LanguageModel(len(data.vocabulary)), data)
    heat = found.figure("f").data[0]
    assert [found.sample.label(0, t) for t in range(4)] == ["a", "<", "b", ">"]
    assert list(heat.customdata[0]) == ["step 1: a", "step 2: &lt;", "step 3: b", "step 4: &gt;"]
    assert "customdata" in heat.hovertemplate


def test_a_unit_that_follows_the_token_is_the_most_selective():
    model, data = LanguageModel(2), letters("abbabaabbaababab" * 3)
    with torch.no_grad():
        model.embedding.weight.zero_()
        model.embedding.weight[1, 0] = 3.0
        gate = model.recurrent.cell_list[0].i
        for parameter in gate.parameters():
            parameter.zero_()
        gate.U[2, 0] = 2.0  # unit 2 of the input gate reads the token, and nothing else
    found = gate_activity(model, data)["i"]
    assert found.ranking[0] == 2
    assert float(found.selectivity[2]) == pytest.approx(1.0, abs=1e-6)
    assert float(found.selectivity[0]) == pytest.approx(0.0, abs=1e-6)


def test_samples_are_named_by_their_features():
    sequences = rc.data.SequenceSet.from_arrays(
        [torch.randn(6, 2)], [torch.zeros(6, 1)], "transduction", features=("wind", "rain")
    )
    found = gate_activity(rc.layer("gru", 2, 3), sequences)
    assert found.sample.label(0, 0).startswith("wind ")
    assert ", rain " in found.sample.label(0, 0)
    with pytest.raises(UnknownNameError, match="GRU · z"):
        found["zz"]


# ---------------------------------------------------------------------------------------------------- health


def test_every_remedy_named_exists():
    for advice in REMEDIES.values():
        for path in re.findall(r"rc\.([\w.]+)", advice):
            found = rc
            for name in path.split("."):
                found = getattr(found, name)
            assert callable(found), path


def test_the_advice_for_gated_cells_can_be_followed():
    for name in ("lstm", "gru", "mgu"):
        rc.layer(name, 3, 4, init=rc.init.chrono(20))
        rc.layer(name, 3, 4, init=rc.init.forget_bias(2.0))


def kinds(result) -> dict[str, str]:
    return {finding.kind: str(finding) for finding in result.findings}


def scaled(name: str, factor: float, hidden: int = 16) -> rc.Recurrent:
    layer = rc.layer(name, 3, hidden)
    with torch.no_grad():
        layer.cell_list[0].a.W.mul_(factor)
    return layer


def test_a_sound_network_is_sound():
    found = health(rc.layer("lstm", 3, 8, init=rc.init.chrono(40)), torch.randn(30, 2, 3))
    assert found.ok
    assert found.summary() == "No problems found."


def test_a_gradient_that_vanishes():
    found = kinds(health(scaled("rnn", 0.3), torch.randn(40, 2, 3)))
    assert set(found) == {"vanishing"}
    assert "rc.LSTM" in found["vanishing"]
    assert "39 steps" in found["vanishing"]


def test_a_gradient_that_explodes():
    found = kinds(health(scaled("rnn", 1.6), 1e-9 * torch.randn(30, 2, 3)))
    assert "exploding" in found
    assert "clip" in found["exploding"]


def test_saturated_and_closed_gates():
    layer = rc.layer("lstm", 3, 8)
    with torch.no_grad():
        layer.cell_list[0].f.b.fill_(-9.0)
        layer.cell_list[0].o.b.fill_(9.0)
    found = health(layer, torch.randn(12, 2, 3))
    assert found.saturated["LSTM · f"] > 0.95
    assert found.saturated["LSTM · g"] < 0.1
    said = [str(finding) for finding in found.findings if finding.kind == "saturated"]
    assert any("LSTM · f" in text and "forget_bias" in text for text in said)
    assert any("LSTM · o" in text and "LayerNorm" in text for text in said)


def test_the_share_counts_preactivations_beyond_four():
    layer = rc.layer("rnn", 1, 1, dtype=torch.float64)
    with torch.no_grad():
        layer.cell_list[0].a.W.zero_()
        layer.cell_list[0].a.U.fill_(1.0)
    x = torch.tensor([-5.0, -3.9, 0.0, 3.9, 4.1], dtype=torch.float64).view(5, 1, 1)
    assert health(layer, x).saturated["RNN · h"] == pytest.approx(0.4)


def test_units_that_do_not_move():
    layer = rc.layer("irnn", 3, 8)
    with torch.no_grad():
        layer.cell_list[0].a.b.fill_(-50.0)
    assert "dead" in kinds(health(layer, torch.randn(12, 2, 3)))


@pytest.mark.parametrize("place", ["weights", "data", "step"])
def test_the_first_place_that_is_not_a_number(place):
    layer, x = rc.layer("irnn", 3, 4), torch.randn(9, 2, 3)
    with torch.no_grad():
        if place == "weights":
            layer.cell_list[0].a.U[1, 1] = float("nan")
        elif place == "data":
            x[4, 1, 0] = float("inf")
        else:  # 3, then 1.2e21, then beyond single precision
            layer.cell_list[0].a.W.fill_(1e20)
            layer.cell_list[0].a.U.fill_(1.0)
            x = torch.ones(9, 2, 3)
    (finding,) = health(layer, x).findings
    assert finding.kind == "not a number"
    expected = {"weights": "weights cells.0.a.U", "data": "the data", "step": "IRNN · h"}[place]
    assert expected in finding.place
    if place == "step":
        assert "first at step 3" in finding.what


def test_a_monitor_watches_the_training(capsys):
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.recurrent, self.head = scaled("rnn", 0.2, 6), nn.Linear(6, 1)

        def forward(self, x, lengths=None):
            return self.head(self.recurrent(x)[0][-1])

    data = rc.data.SequenceSet.from_arrays(torch.randn(12, 30, 3), torch.randn(12, 1), "regression")
    monitor = Monitor(data)
    rc.train.fit(Last(), data, epochs=3, batch_size=6, progress=False, callbacks=[monitor])
    assert [epoch for epoch, _ in monitor.history] == [0, 1, 2]
    said = capsys.readouterr().out.strip().splitlines()
    assert len(said) == 1, "what is known is not said again"
    assert "vanishing in recurrent · h" in said[0]
