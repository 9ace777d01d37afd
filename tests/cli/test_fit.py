"""`recurra fit`: models, settings, error messages."""

import json

import pytest
from problem import files

import recurra as rc


def test_a_model_is_saved_and_the_summary_printed(recurra):
    files.recordings(recurra.folder / "moves.csv")
    result = recurra.good("fit", "moves.csv", "--epochs", 2, "--hidden-size", 4)
    assert "classify: 'activity' has one text label per 'recording'" in result.stderr
    assert "16 for training, 4 for testing" in result.stderr
    assert "accuracy" in result.stderr
    assert "recurra predict moves-lstm moves.csv" in result.stderr
    assert result.stdout == ""
    folder = recurra.folder / "moves-lstm"
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    model = rc.SequenceClassifier.load(folder)
    assert model.classes_.tolist() == ["run", "walk"]
    assert model.hidden_size == 4


def test_stdout_is_json_only(recurra):
    files.amounts(recurra.folder / "size.csv")
    result = recurra.good("fit", "size.csv", "--epochs", 1, "--hidden-size", 3, "--cell", "mgu", "--json")
    found = json.loads(result.stdout)
    assert found["task"] == "regress"
    assert found["cell"] == "mgu"
    assert found["metric"] == "mae"
    assert found["score"] == found["measures"]["mae"] > 0
    assert found["epochs"] == 1
    model = rc.SequenceRegressor.load(recurra.folder / found["model"])
    assert found["weights"] == sum(p.numel() for p in model.network_.parameters())


def test_flags_override_the_settings_file(recurra):
    files.recordings(recurra.folder / "moves.csv")
    (recurra.folder / "s.toml").write_text(
        'cell = "mgu"\nepochs = 3\nhidden_size = 5\ntarget = "activity"\nout = "m"\n'
        '[options]\npool = "last"\nclip = 0.5\n',
        encoding="utf-8",
    )
    recurra.good("fit", "moves.csv", "--settings", "s.toml", "--epochs", 2, "--set", "clip=0.25")
    model = rc.SequenceClassifier.load(recurra.folder / "m")
    assert (model.cell, model.epochs, model.hidden_size, model.pool, model.clip) == ("mgu", 2, 5, "last", 0.25)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hiden_size = 3", "s.toml: unknown setting 'hiden_size'. Did you mean 'hidden_size'?"),
        ('epochs = "many"', "s.toml, epochs: got 'many', expected a valid integer"),
        ("epochs = -1", "s.toml, epochs: got -1, expected a number greater than 0"),
        ("epochs = x", "s.toml: got invalid TOML (Invalid value (at line 1, column 10)), expected a settings file"),
        ("options = 3", "s.toml, options: got 3, expected a table, [options]."),
    ],
)
def test_an_invalid_settings_file(recurra, text, said):
    files.recordings(recurra.folder / "moves.csv")
    (recurra.folder / "s.toml").write_text(text, encoding="utf-8")
    result = recurra("fit", "moves.csv", "--settings", "s.toml")
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


def test_an_existing_model_is_replaced_only_with_force(recurra):
    files.recordings(recurra.folder / "moves.csv")
    words = "fit", "moves.csv", "--epochs", 1, "--hidden-size", 3, "-o", "m"
    recurra.good(*words)
    before = (recurra.folder / "m" / "model.safetensors").read_bytes()
    refused = recurra(*words, "--seed", 1)
    assert refused.exit_code == 2
    assert "--out m: got a folder that contains a model" in refused.stderr
    assert (recurra.folder / "m" / "model.safetensors").read_bytes() == before
    recurra.good(*words, "--seed", 1, "--force")
    assert (recurra.folder / "m" / "model.safetensors").read_bytes() != before


def test_the_same_command_gives_the_same_model(recurra):
    files.recordings(recurra.folder / "moves.csv")
    for name in "ab":
        recurra.good("fit", "moves.csv", "--epochs", 1, "--hidden-size", 3, "--seed", 5, "-o", name)
    one, same = ((recurra.folder / name / "model.safetensors").read_bytes() for name in "ab")
    assert one == same


def test_the_suggested_next_steps_run(recurra):
    files.poem(recurra.folder / "poem.txt")
    said = recurra.good("fit", "poem.txt", "--epochs", 1, "--hidden-size", 3, "--set", "batch_size=2", "-o", "m").stderr
    proposed = [line.split()[1:] for line in said.splitlines() if line.startswith("  recurra ")]
    assert [words[0] for words in proposed] == ["generate", "inspect"]
    assert recurra.good(*proposed[0], "-n", 5).stdout.startswith("the")


def test_a_failed_start_leaves_no_folder(recurra):
    files.recordings(recurra.folder / "moves.csv")
    result = recurra("fit", "moves.csv", "--set", "pool=lastt", "-o", "m")
    assert result.exit_code == 2
    assert "Unknown pool 'lastt'. Did you mean 'last'? Choose from last, max, mean." in result.stderr
    assert not (recurra.folder / "m").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fit", "none.csv"), "none.csv: no such file."),
        (("fit", "moves.csv", "--target", "activty"), "moves.csv has no column 'activty'. Did you mean 'activity'?"),
        (("fit", "moves.csv", "--target", "activty"), "Columns: activity, ax, ay, recording, t."),
        (("fit", "moves.csv", "--cell", "lstmm"), "Unknown cell 'lstmm'. Did you mean 'lstm'?"),
        (("fit", "moves.csv", "--task", "clasify"), "Unknown task 'clasify'. Did you mean 'classify'?"),
        (
            ("fit", "moves.csv", "--set", "poool=last"),
            "Unknown SequenceClassifier option 'poool'. Did you mean 'pool'?",
        ),
        (("fit", "moves.csv", "--set", "pool"), "--set: got 'pool', expected NAME=VALUE."),
        (("fit", "moves.csv", "--lr", "0"), "--lr: got 0.0, expected a number greater than 0."),
        (
            ("fit", "bad.csv", "--target", "y"),
            "bad.csv, line 4, column 'x': got 'oops' in sequence '2', expected a number, as in most rows.",
        ),
        (
            ("fit", "two.csv"),
            "got several possible targets (a, b), expected one. Choose it with --target.",
        ),
        (
            ("fit", "mixed.csv"),
            "rows for '0' are not contiguous; use --sort.",
        ),
        (("fit", "gap.csv"), "column 'x': got nothing, expected a value. Use --missing drop or --fill forward."),
        (("fit", "moves.csv", "--test", "2"), "--test: got 2, expected a fraction from 0 to below 1, or a file."),
        (("fit", "moves.csv", "--out", "two.csv"), "--out two.csv: got a file, expected a new or empty folder."),
        (("fit", "moves.csv", "--settings", "none.toml"), "none.toml: no such file or directory."),
    ],
)
def test_errors_are_one_paragraph(recurra, words, said):
    files.recordings(recurra.folder / "moves.csv")
    files.write_rows(
        recurra.folder / "bad.csv", ["id", "x", "y"], [[1, 1.0, 2], [1, 2.0, 2], [2, "oops", 3], [2, 1.0, 3]]
    )
    files.write_rows(recurra.folder / "two.csv", ["t", "a", "b"], [[k, k, k] for k in range(9)])
    rows = [[k % 4, k, "ab"[k % 2]] for k in range(12)]
    files.write_rows(recurra.folder / "mixed.csv", ["id", "x", "label"], rows)
    files.write_rows(recurra.folder / "gap.csv", ["id", "x", "label"], [*sorted(rows), [3, "", "b"]])
    result = recurra(*words)
    assert result.exit_code == 2
    text = " ".join(result.stderr.split())
    assert said in text
    assert text.count("Error: ") == 1
    assert "Traceback" not in text


def test_debug_mode_raises(recurra, monkeypatch):
    monkeypatch.setenv("RECURRA_DEBUG", "1")
    result = recurra("fit", "none.csv")
    assert isinstance(result.exception, rc.RecurraError)


def test_usage_errors(recurra):
    for words in (("fit",), ("fit", "x.csv", "--epochs", "0"), ("fit", "x.csv", "--nonsense"), ("frobnicate",)):
        result = recurra(*words)
        assert result.exit_code == 2
        assert "Usage: recurra" in result.stderr
