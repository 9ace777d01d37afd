"""The plan of a comparison: cells, configuration, work items, default folder."""

import pytest
from compare.data import turns

from recurra.compare.plan import DEFAULT_CELLS, RunConfig, cell_families, default_folder, resolve_cells, work_items
from recurra.errors import InputError, OptionError, UnknownNameError


def test_cells_by_name_family_and_all():
    assert resolve_cells("lstm, gru,lstm") == ("lstm", "gru")
    assert resolve_cells(["mgu"]) == ("mgu",)
    assert set(resolve_cells("greff")) == set(cell_families()["greff"])
    assert "mut1" in resolve_cells("gru-family")
    assert {"lif", "izhikevich"} <= set(resolve_cells("spiking"))
    assert "mut1" not in resolve_cells("gru")
    everything = resolve_cells("all")
    assert "lstm" in everything
    assert "lstmp" not in everything  # a second name of the same cell
    assert set(DEFAULT_CELLS) <= set(everything)


def test_an_unknown_cell_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'lstm'"):
        resolve_cells("lsmt")
    with pytest.raises(InputError, match="cells"):
        resolve_cells(" , ")


@pytest.mark.parametrize(
    ("given", "error", "named"),
    [
        ({"budget": "money"}, UnknownNameError, "budget"),
        ({"hidden_size": 0}, InputError, "hidden_size"),
        ({"seconds": -1}, InputError, "seconds"),
        ({"tune": -1}, InputError, "tune"),
        ({"budget": "time", "epochs": 3}, OptionError, "epochs"),
    ],
)
def test_the_configuration_is_validated(given, error, named):
    with pytest.raises(error, match=named):
        RunConfig({"source": "x"}, **given)


def test_the_same_file_and_settings_have_the_same_folder(tmp_path):
    file = turns(tmp_path / "turns.csv")
    config = RunConfig({"source": str(file)}, epochs=3)
    copy = tmp_path / "elsewhere.csv"
    copy.write_bytes(file.read_bytes())
    assert config.digest() == RunConfig({"source": str(file)}, epochs=3).digest()
    assert config.digest() == RunConfig({"source": str(copy)}, epochs=3).digest()
    assert config.digest() != RunConfig({"source": str(file)}, epochs=4).digest()
    assert default_folder(config).name == f"compare-turns-{config.digest()}"
    file.write_text(file.read_text() + "s99,0,1,1,left\n")
    assert config.digest() != RunConfig({"source": str(copy)}, epochs=3).digest()


def test_items_are_ordered_by_seed():
    found = work_items(("lstm", "gru"), [("linear", False), ("ESN", True)], 2)
    assert [(e.name, e.seed) for e in found] == [
        *(("linear", 0), ("ESN", 0), ("ESN", 1)),
        *(("lstm", 0), ("gru", 0), ("lstm", 1), ("gru", 1)),
    ]
    assert len({e.key for e in found}) == len(found)
