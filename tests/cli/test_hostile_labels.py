"""Labels and names from data neither run in a spreadsheet nor reach a terminal as escape sequences."""

import csv
import io
import json
import re
import sys
import warnings

import pytest
from rich.text import Text

from recurra.cli import control_characters, error_handling, printing, tables

FORMULA = "=cmd|' /C calc'!A0"
CLEAR = "\x1b[2J\x1b]0;title\x07red\x9b31m"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_formulas_in_labels_are_text_in_csv(tmp_path, suffix):
    labels = [FORMULA, "+1+1", "-2+3", "@SUM(A1)", "\tx", "-", "up", "-5", "+1e3", "a=b"]
    path = tmp_path / f"out{suffix}"
    tables.write_table({"=id": list(range(len(labels))), "prediction": labels, "p": [-0.5] * len(labels)}, path)
    with path.open(newline="") as file:
        header, *rows = csv.reader(file, delimiter="\t" if suffix == ".tsv" else ",")
    assert header == ["'=id", "prediction", "p"]
    expected = [f"'{label}" for label in labels[:6]] + labels[6:]
    assert [row[1] for row in rows] == expected
    assert {row[2] for row in rows} == {"-0.5"}


def test_other_formats_keep_labels_as_they_are(tmp_path):
    tables.write_table({"prediction": [FORMULA]}, tmp_path / "out.jsonl")
    assert json.loads((tmp_path / "out.jsonl").read_text()) == {"prediction": FORMULA}


def test_escape_sequences_are_shown_on_a_terminal_and_kept_in_a_pipe(monkeypatch):
    screen, pipe = Terminal(), io.StringIO()
    for stream in (screen, pipe):
        monkeypatch.setattr(sys, "stdout", stream)
        tables.write_table({"prediction": [CLEAR]}, None)
    assert "\\x1b[2J\\x1b]0;title\\x07red\\x9b31m" in screen.getvalue()
    assert not control_characters.CONTROL.search(screen.getvalue())
    assert CLEAR in pipe.getvalue()


def test_json_has_no_control_characters(capsys):
    printing.print_json({"label": CLEAR})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"label": CLEAR}
    assert not control_characters.CONTROL.search(printed)


def test_tables_and_scores_show_escape_sequences_and_keep_their_own_colours():
    screen = Terminal()
    made = control_characters.console(file=screen, force_terminal=True, width=100, color_system="standard")
    printing.print_pairs([(f"[b]{CLEAR}", CLEAR)], made)
    printing.print_scores([(CLEAR, 0.5, 0.5, 0.5, 3)], made)
    made.print(Text(CLEAR, style="red"), CLEAR, soft_wrap=True, markup=False)
    sequences = set(re.findall("\x1b.", screen.getvalue()))
    assert sequences == {"\x1b["}
    assert "\x1b[2J" not in screen.getvalue()
    assert "\x07" not in screen.getvalue()
    assert screen.getvalue().count("\\x1b[2J") >= 4


def test_errors_and_notes_show_escape_sequences(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(error_handling, "error_stream", lambda: screen)
    error_handling._print_error(f"{CLEAR}: no such file")
    assert "\x1b[2J" not in screen.getvalue()
    assert "\\x1b[2J" in screen.getvalue()
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    error_handling.install_warning_format()
    assert "\x1b" not in warnings.formatwarning(CLEAR, UserWarning, "a.py", 3)
