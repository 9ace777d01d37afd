"""Generated pages: results of a GPU as the benchmarks write them, where recurra is behind, lines of tables."""

import importlib
import json
from pathlib import Path

import pytest

import recurra as rc
from recurra.cli.app import PANELS

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {"processor": "AMD EPYC", "cores": 16, "device": "NVIDIA H200", "torch": "2.11.0", "triton": "3.6.0"}
PASSES = {"forward": {"recurra": 1.0, "fla": 2.0}, "training": {"recurra": 3.0, "fla": 2.0}}
TIMES = ("forward_ms", "train_ms", "lstm_forward_ms", "lstm_train_ms")
RESERVOIR = {
    "units": 10000,
    "density": 0.01,
    "greatest_difference": 1e-13,
    **{f"microseconds_a_step_{where}_batch_{batch}": 9.5 for where in ("device", "cpu_sparse") for batch in (1, 16)},
    **{f"mackey_glass_{where}": {"nrmse": 0.01, "seconds": 2.5} for where in ("device", "cpu_sparse")},
}
MEASURED = {
    "h200": {"rows": []},
    "h200_calls": ENVIRONMENT
    | {"rows": [{"what": "dropout", "T": 5, "B": 4, "D": 3, "H": 2, "met": met} for met in (True, False)]},
    "matrix_states_gpu": {
        "environment": ENVIRONMENT,
        "command": "python -m benchmarks.matrix_states --device cuda",
        "device": "cuda",
        "times": {"gla": {"(512, 32, 8, 64)": PASSES}},
    },
    "spiking_h200": ENVIRONMENT
    | {
        "rows": [
            {"layer": "lif", "kind": "forward", "milliseconds": 2.0},
            {"layer": "snntorch Leaky", "kind": "forward", "milliseconds": 1.0},
        ]
    },
    "reservoir_gpu": {"environment": ENVIRONMENT, "results": RESERVOIR},
    "cell_speed": {"size": [60, 16, 32, 64], "cells": {}},
    "cell_speed_h200": ENVIRONMENT
    | {
        "when": "2026-11-19T22:00:00+00:00",
        "size": [256, 64, 256, 256],
        "cells": {
            "lstm": {"dtype": "bf16", **dict.fromkeys(TIMES, 2.0)},
            "s4d": {"dtype": "bf16", **dict(zip(TIMES, (1.5, 50.0, 1.0, 2.0), strict=True))},
            "mgu": {"dtype": "bf16", **dict(zip(TIMES, (1.5, 3.0, 1.0, 2.0), strict=True))},
            "unitary_rnn": {"dtype": "fp32", **dict.fromkeys(TIMES, 2.0), "note": "plain loop: `fft`"},
            "lem": {"error": "bf16: RuntimeError: out of | resources"},
        },
    },
}


@pytest.fixture
def generate(tmp_path: Path, monkeypatch):
    """Modules of docs/generate by name, with the results above in place of the committed ones."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    for name, content in MEASURED.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")

    def find(name: str):
        module = importlib.import_module(f"generate.{name}")
        if hasattr(module, "RESULTS"):
            monkeypatch.setattr(module, "RESULTS", tmp_path)
        return module

    results = find("speed_results")
    read = [each for each in vars(results).values() if hasattr(each, "cache_clear")]
    for each in read:
        each.cache_clear()
    yield find
    for each in read:
        each.cache_clear()


def test_what_is_faster_on_a_card_is_named(generate):
    calls, matrix, spiking, cells = generate("worse_on_the_card").lines()
    assert "miss the goal set for them in 1 of 2 cases" in calls
    assert calls.endswith("\n  - dropout: (5, 4, 3, 2)")
    assert matrix.endswith("\n  - `gla` beside `fla`: 1.50 ×")  # its forward pass is faster
    assert "snntorch Leaky, forward" in spiking
    assert cells.endswith("on an H200: [s4d](../cells/s4d.md) 25 × ([table](cell_speed_h200.md)).")


def test_a_result_of_a_card_tells_its_command_hardware_and_versions(generate):
    found = generate("evidence_facts").facts("matrix_states_gpu", "")
    assert found.command == "python -m benchmarks.matrix_states --device cuda"
    assert (found.hardware, found.versions) == ("H200", "torch 2.11.0, triton 3.6.0")


def test_a_result_without_a_text_of_its_own_becomes_a_table(generate):
    text = generate("evidence_tables").from_json(set())["reservoir_gpu"]
    assert text.startswith("# A reservoir of 10,000 units")
    assert "| GPU | 9.5 | 9.5 | 2.5 | 0.01 |" in text


def test_the_page_of_a_matrix_cell_shows_the_kernels_beside_it(generate, monkeypatch):
    results = generate("speed_results")
    monkeypatch.setattr(results, "_on_the_card", lambda: {"rows": []})
    assert "| (512, 32, 8, 64) | training | 3.00 | fla 2.00 |" in results._card("gla")
    assert results._card("janet") == "On an H200 this cell has not been measured."


def test_the_page_of_a_cell_shows_its_speed_on_a_card_or_what_it_said(generate, monkeypatch):
    results, pages = generate("speed_results"), generate("cell_pages")
    monkeypatch.setattr(results, "_on_the_card", lambda: {"rows": []})
    assert "**1.50 ×** the time of an LSTM: 1.50 ms forward and 3.00 ms" in results._card("mgu")
    assert "ms forward and 2.00 ms for a training step. (T, B, D, H) = (256, 64, 256, 256)" in results._card("lstm")
    assert results._card("unitary_rnn").endswith("The engine said: `plain loop: 'fft'`")
    assert "could not be measured at (T, B, D, H) = (256, 64, 256, 256): `bf16: Runtime" in results._card("lem")
    table = pages._table([("mgu", rc.registry()["mgu"]), ("lem", rc.registry()["lem"])])
    assert "| H200, LSTM = 1 |" in table
    assert "| 1.50 |" in table
    assert len({line.count("|") for line in table.splitlines() if line.startswith("|")}) == 1


def test_a_table_of_every_cell_on_a_card_lists_what_was_refused(generate):
    text = generate("evidence_tables").from_json(set())["cell_speed_h200"]
    assert "| mgu | bf16 | 1.50 | 3.00 | 1.50 | 1.50 |" in text
    assert "- `lem`: bf16: RuntimeError: out of | resources" in text


def test_without_a_card_the_table_of_cells_has_no_column_for_it(generate, monkeypatch):
    results = generate("speed_results")
    monkeypatch.setattr(results, "every_cell_on_the_card", lambda: {"cells": {}})
    assert "H200" not in generate("cell_pages")._table([("mgu", rc.registry()["mgu"])])


def test_a_table_shows_the_whole_first_paragraph_of_a_docstring(generate):
    summary = importlib.import_module("generate.docstrings").summary
    assert summary(rc.train.EProp).count("*") == 2  # the title of the paper goes on in the second line
    assert "\n" not in summary(rc.train.EProp)


def test_the_page_of_the_command_line_has_every_command(generate):
    text = generate("command_page").pages()["reference/command_line.md"]
    for command in (name for commands in PANELS.values() for name in commands):
        assert f"### recurra {command}\n" in text
    assert "[dim]" not in text
    assert "| `--target` | Column to predict." in text
