"""The commands cells, info and bench, and all help pages."""

import json
import xml.etree.ElementTree as ET

import pytest

import recurra as rc
from recurra.cells import canonical_names
from recurra.cli.cell_traits import is_gated, is_scan, is_spiking
from recurra.cli.equations import plain_equations

COMMANDS = (
    *("compare", "fit", "online", "demo", "predict", "evaluate", "generate"),
    *("embed", "inspect", "export", "cells", "survey", "bench", "info"),
)


class TestSurvey:
    def test_a_section_with_its_errata(self, recurra):
        shown = " ".join(recurra.good("survey", "3.3").stdout.split())
        assert "rc.LeakyRNN(3, 4, tau=10.0)" in shown
        assert "τ = 1 keeps, τ ≫ 1 forgets → τ = 1 forgets, τ ≫ 1 keeps" in shown
        found = json.loads(recurra.good("survey", "eq. 27", "--json").stdout)
        assert [(one["where"], one["errata"]) for one in found] == [("eq. 27", ["E19"])]

    def test_a_page(self, recurra):
        assert "wrote survey.html" in recurra.good("survey", "fig. 2", "--html", "survey.html").stdout
        assert (recurra.folder / "survey.html").read_text(encoding="utf-8").count("<svg") == 2

    def test_an_unknown_place(self, recurra):
        result = recurra("survey", "9.9")
        assert result.exit_code != 0
        assert "9.9" in result.output


class TestCells:
    def test_the_list_has_every_cell_once(self, recurra):
        found = json.loads(recurra.good("cells", "--json").stdout)
        assert {name for about in found for name in (about["name"], *about["also"])} == set(rc.registry())
        assert len(found) == len(set(rc.registry().values()))
        shown = recurra.good("cells").stdout
        assert "the output is [h; s]." in shown
        for about in found:
            assert about["name"] in shown

    @pytest.mark.parametrize(
        ("options", "among", "not_among"),
        [
            (("--family", "spiking"), {"lif", "izhikevich"}, {"lstm"}),
            (("--year", "2016"), {"sgu", "t_gru", "rhn"}, {"gru", "atr"}),
            (("--year", "2017-2018"), {"ran", "atr"}, {"sgu"}),
            (("--search", "oscillat"), {"cornn", "unicornn"}, {"lstm"}),
        ],
    )
    def test_filters(self, recurra, options, among, not_among):
        found = {about["name"] for about in json.loads(recurra.good("cells", *options, "--json").stdout)}
        assert among <= found
        assert not not_among & found

    def test_bad_filters(self, recurra):
        assert "a year such as 2016" in recurra("cells", "--year", "long ago").stderr
        assert "spiking" in recurra("cells", "--family", "spikin").stderr
        assert "No cell matches" in recurra.good("cells", "--search", "qqqq").stdout

    @pytest.mark.parametrize(
        ("trait", "having", "lacking"),
        [
            (is_gated, ("lstm", "gru", "atr", "fast_grnn", "sgu"), ("rnn", "scrn", "fast_rnn", "cornn")),
            (is_spiking, ("lif", "srm"), ("lstm",)),
            (is_scan, ("min_gru", "min_lstm", "t_gru"), ("indrnn", "gru", "lstm", "atr", "delay_rnn", "lif", "plrnn")),
        ],
    )
    def test_traits(self, trait, having, lacking):
        for names, expected in ((having, True), (lacking, False)):
            assert {name: trait(rc.registry()[name]) for name in names} == dict.fromkeys(names, expected)

    def test_one_cell(self, recurra):
        shown = recurra.good("cells", "lstm").stdout
        assert "fₜ = σ(W_f hₜ₋₁ + U_f xₜ + b_f)" in shown
        assert "cₜ = fₜ ⊙ cₜ₋₁ + iₜ ⊙ gₜ" in shown
        assert "Learning to Forget" in shown
        found = json.loads(recurra.good("cells", "lstm", "--json", "--input-size", 3, "--hidden-size", 4).stdout)
        assert found["parameters"] == 4 * (4 * 3 + 4 * 4 + 4)
        assert found["states"] == ["h", "c"]
        assert recurra.good("cells", "lstm", "--latex").stdout.strip() == rc.cells.LSTM.equations()

    def test_a_diagram(self, recurra):
        recurra.good("cells", "gru", "--diagram", "gru.svg")
        assert ET.parse(recurra.folder / "gru.svg").getroot().tag.endswith("svg")
        wrong = recurra("cells", "gru", "--diagram", "gru.png")
        assert wrong.exit_code == 2
        assert "a name that ends in .svg" in wrong.stderr

    def test_a_typo(self, recurra):
        result = recurra("cells", "gruu")
        assert result.exit_code == 2
        assert "Unknown cell 'gruu'. Did you mean 'gru'?" in result.stderr

    @pytest.mark.parametrize("name", sorted(canonical_names()))
    def test_every_cell_has_plain_equations(self, name):
        for line in plain_equations(rc.registry()[name].equations()):
            assert " = " in line
            assert not set(line) & set("\\{}$"), line
            for opening, closing in ("()", "[]"):
                assert line.count(opening) == line.count(closing), line


def test_info(recurra):
    import torch

    found = json.loads(recurra.good("info", "--json").stdout)
    assert found["recurra"] == rc.__version__
    assert found["packages"]["torch"] == torch.__version__
    assert found["cache"]["bytes"] >= 0
    shown = " ".join(recurra.good("info").stdout.split())
    assert f"torch {torch.__version__}" in shown
    assert "compiler" in shown


def test_bench(recurra):
    words = "bench", "gru", "--steps", 3, "--batch", 2, "--input-size", 2, "--hidden-size", 3, "--seconds", 0.1
    found = json.loads(recurra.good(*words, "--json").stdout)["milliseconds"]
    assert list(found) == ["recurra gru", "torch.nn.LSTM", "torch.nn.GRU", "gru, plain loop"]
    assert all(times["forward"] > 0 and times["training"] > 0 for times in found.values())
    assert "torch.nn.LSTM" in recurra.good(*words).stdout
    assert recurra("bench", "gru", "--device", "tpu").exit_code == 2


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_into_80_columns(recurra, command):
    result = recurra.good(*command.split(), "--help")
    assert max(map(len, result.output.splitlines())) <= 80
    if not command:
        for name in COMMANDS:
            assert f" {name} " in result.output
