"""Commands on files as people have them: what once was a traceback or a silent misreading."""

import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recurra.cli.app import app

FILES = Path(__file__).parent / "files"
CELLS = '''
from torch import tanh
import recurra as rc

@rc.register("reading_rnn")
class ReadingRNN(rc.Cell):
    """A plain cell in a file of the user's own."""
    states = ("h",)

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")

    def step(self, x, h):
        return tanh(self.a(x, h))
'''


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*words: object, code: int = 0) -> str:
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == code, result.output
        return " ".join(result.output.split())

    return call


SMALL = ("--epochs", 1, "--hidden-size", 2, "--cell", "gru")


def test_the_version(run):
    from recurra import __version__

    assert run("--version") == f"recurra {__version__}"


def test_the_table_of_columns_is_shown_before_training(run):
    said = run("fit", FILES / "wide_static.csv", *SMALL, "-o", "m")
    assert "t0 … t5 number input steps 1 to 6 of 6" in said
    assert "sex text static text with 2 different values, one-hot" in said
    assert said.index("Change a role with --id") < said.index("Training gru")
    ignored = run("fit", FILES / "sensors_pandas.csv", *SMALL, "-o", "n")
    assert "Unnamed: 0 integer ignored counts the rows of the file: an index that was written without a name" in ignored


def test_noise_sorted_by_label_is_not_learned(run):
    """The index without a name is no input: with it, a model scores 1.0 on noise."""
    said = run("fit", FILES / "noise_sorted_by_label.csv", *SMALL, "-o", "m", "--json")
    assert '"features": 1' in said or "1 feature per step: x" in said


def test_predict_with_a_missing_column(run, tmp_path):
    run("fit", FILES / "sensors.csv", *SMALL, "-o", "m")
    rows = [line.split(",") for line in (FILES / "sensors.csv").read_text().splitlines()]
    (tmp_path / "bare.csv").write_text("\n".join(",".join((*row[:3], row[4])) for row in rows))
    assert "bare.csv has no column 'y'." in run("predict", "m", "bare.csv", code=2)


def test_options_of_a_forecast_are_refused_elsewhere(run):
    said = run("fit", FILES / "sensors.csv", *SMALL, "--horizon", 3, code=2)
    assert "--horizon: got 3, expected a task to forecast, not to classify." in said
    assert "--season: got 7" in run("fit", FILES / "prose.txt", *SMALL, "--season", 7, code=2)


def test_future_dates_follow_the_series(run, tmp_path):
    run("fit", FILES / "shops_weather.csv", "--inputs", "weather", *SMALL, "-o", "m")
    wrong, right = tmp_path / "wrong.csv", tmp_path / "right.csv"
    for path, day in ((wrong, "05"), (right, "01")):
        path.write_text("shop,date,weather\n" + "".join(f"{shop},2012-03-{day},snow\n" for shop in ("north", "south")))
    words = ("predict", "m", FILES / "shops_weather.csv", "--horizon", 1, "--future")
    said = run(*words, wrong, code=2)
    assert "rows of 'north' from 2012-03-05" in said
    assert "1 rows from 2012-03-01" in said
    assert "north,2012-03-01," in run(*words, right)  # an unseen category is unknown, not an error


def test_unseen_characters_never_stop_a_language_model(run, tmp_path):
    run("fit", FILES / "prose.txt", *SMALL, "-o", "m")
    (tmp_path / "new.txt").write_text("über die Straße\n", encoding="utf-8")
    assert "bits per character" in run("evaluate", "m", "new.txt")
    assert run("generate", "m", "ß", "-n", 5).startswith("ß")
    assert "über die Straße," in run("predict", "m", "new.txt")


def test_cells_from_a_file_are_kept_for_the_user_who_imported_them(run, tmp_path, monkeypatch):
    from recurra.cell import REGISTRY

    (tmp_path / "reading_cells.py").write_text(CELLS, encoding="utf-8")
    monkeypatch.setenv("RECURRA_CACHE", str(tmp_path / "cache"))
    words = ("--import", "reading_cells.py")
    small = ("--epochs", 1, "--hidden-size", 2)
    assert "Unknown cell 'reading_rnn'." in run("fit", FILES / "sensors.csv", "-c", "reading_rnn", *small, code=2)
    run("fit", FILES / "sensors.csv", "-c", "reading_rnn", *small, "-o", "m", *words)
    assert (tmp_path / "m" / "reading_cells.py").read_text(encoding="utf-8") == CELLS

    def forget() -> None:  # as a new process does
        monkeypatch.delitem(REGISTRY, "reading_rnn")
        monkeypatch.delitem(sys.modules, "reading_cells")

    forget()
    (tmp_path / "reading_cells.py").unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert run("predict", "../m", FILES / "sensors.csv").startswith("id,prediction")
    forget()
    monkeypatch.setenv("RECURRA_CACHE", str(tmp_path / "cache of another user"))
    said = run("predict", "../m", FILES / "sensors.csv", code=2)
    assert "the cell 'reading_rnn', which recurra does not have" in said
    assert "if you trust it: --import ../m/reading_cells.py." in said
    assert "reading_cells" not in sys.modules  # a folder never imports code by itself
    words = ("--import", "../m/reading_cells.py")
    assert run("predict", "../m", FILES / "sensors.csv", *words).startswith("id,prediction")
    assert "no such file 'absent.py'" in run("cells", "--import", "absent.py", code=2)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_file_name_that_is_not_utf8(run, tmp_path):
    path = os.fsencode(tmp_path) + b"/caf\xe9.csv"
    with open(path, "wb") as file:
        file.write((FILES / "sensors.csv").read_bytes())
    assert "a file name that is not UTF-8" in run("fit", os.fsdecode(path), *SMALL, code=2)


def test_dates_and_encodings_by_flag(run):
    assert "Use --dates day-first or --dates month-first." in run("fit", FILES / "ambiguous.csv", *SMALL, code=2)
    assert "48 steps, monthly" in run("fit", FILES / "ambiguous.csv", "--dates", "month-first", *SMALL, "-o", "m")
    assert "Use --encoding utf-16." in run("fit", FILES / "utf16.csv", *SMALL, code=2)
    run("fit", FILES / "utf16.csv", "--encoding", "utf-16", *SMALL, "-o", "n")
    assert "été" in run("predict", "n", FILES / "latin1.csv", "--encoding", "latin-1", "--proba")


def test_several_targets_of_a_forecast_by_command(run):
    """Predictions have columns for each target, embeddings a row; also of a network that adds nothing to its base."""
    run("fit", FILES / "two_targets.csv", "--target", "sold,returned", *SMALL, "-o", "m")
    said = run("predict", "m", FILES / "two_targets.csv", "--horizon", 1)
    assert "shop,date,sold,sold lower 90%,sold upper 90%,returned,returned lower 90%,returned upper 90%" in said
    assert "north,2012-03-01," in said
    embedded = run("embed", "m", FILES / "two_targets.csv")
    for name in ("north sold,", "north returned,", "south sold,", "south returned,"):
        assert name in embedded
