"""What a person reads on the command line: plain sentences, no garbled pieces, no type noise."""

import pytest
import typer
from typer.testing import CliRunner

from recurra.cli.app import PANELS, app
from recurra.cli.error_handling import format_error
from recurra.data.data_errors import FormatError
from recurra.errors import InputError, UnknownNameError


@pytest.mark.parametrize(
    ("error", "options", "said"),
    [
        (UnknownNameError("cell", "'lsmt'", ["lstm", "gru"]), set(), "Did you mean 'lstm'?"),
        (UnknownNameError("cell", "'qq'", "a class that is registered"), set(), "Unknown cell 'qq': Expected a class"),
        (
            UnknownNameError("cell", "'brnn'", "the name of a cell; bidirectional=True makes a BRNN of any cell"),
            {"--bidirectional"},
            "Unknown cell 'brnn': --bidirectional makes a BRNN of any cell.",
        ),
        (
            FormatError("a.csv", "rows for 'rain' that are not contiguous", "contiguous rows; use sort=True", 4, "id"),
            {"--sort"},
            "a.csv, line 4: rows for 'rain' are not contiguous; use --sort.",
        ),
        (
            FormatError("a.csv", "rows for 'rain' that are not contiguous", "contiguous rows; use sort=True", 4, "id"),
            set(),
            "a.csv, line 4: rows for 'rain' are not contiguous.",
        ),
        (InputError("season", 0, "a number"), {"--season"}, "--season: got 0, expected a number."),
    ],
)
def test_errors_are_plain_sentences(error, options, said):
    assert said in format_error(error, options)


@pytest.mark.parametrize("command", [name for commands in PANELS.values() for name in commands])
def test_help_pages_have_no_type_noise(command):
    page = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "100"}).output
    usage = next(line for line in page.splitlines() if "Usage:" in line)
    assert "{" not in usage
    for noise in ("<bool>", "<class", "INTEGER", "<int", "BOOLEAN"):
        assert noise not in page


def test_a_flag_has_one_spelling_in_every_command():
    """`-c` is `--cell` wherever there is one; units are `--hidden-size`; no help ends in a half-sentence."""
    group = typer.main.get_command(app)
    spellings: dict[str, set[tuple[str, ...]]] = {}
    for command in group.commands.values():
        for option in command.params:
            if option.param_type_name == "option":
                spellings.setdefault(option.name, set()).add(tuple(option.opts))
    assert "hidden" not in spellings
    assert spellings["cell"] == {("--cell", "-c")}
    twice = {name: found for name, found in spellings.items() if len(found) > 1}
    assert set(twice) <= {"out"}, twice
