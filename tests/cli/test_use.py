"""Commands that use a model: predict, evaluate, generate, embed, inspect, export."""

import csv
import io
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from problem import files

import recurra as rc
from recurra.problem import read_like_training


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


class TestPredict:
    def test_classes(self, recurra, models):
        found = rows_of(recurra.good("predict", models / "classify", models / "moves.csv").stdout)
        model = rc.SequenceClassifier.load(models / "classify")
        X = read_like_training(models / "moves.csv", _reading(models / "classify")).X
        assert [row["recording"] for row in found] == [f"r{k}" for k in range(20)]
        assert [row["prediction"] for row in found] == model.predict(X).tolist()
        best = model.predict_proba(X).max(axis=1)
        np.testing.assert_allclose([float(row["probability"]) for row in found], best, rtol=1e-9)

    def test_probabilities_as_json(self, recurra, models):
        words = "predict", models / "classify", models / "moves.csv", "--proba", "--json"
        for row in json.loads(recurra.good(*words).stdout):
            assert row["p(run)"] + row["p(walk)"] == pytest.approx(1.0, abs=1e-12)
            assert row["probability"] == row[f"p({row['prediction']})"]

    @pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "json", "parquet", "arrow"])
    def test_files_by_their_suffix(self, recurra, models, suffix):
        out = recurra.folder / f"answers.{suffix}"
        result = recurra.good("predict", models / "regress", models / "size.csv", "-o", out)
        assert result.stdout == ""
        assert "Wrote 20 rows to" in result.stderr
        found = _column(out, suffix)
        model = rc.SequenceRegressor.load(models / "regress")
        expected = model.predict(read_like_training(models / "size.csv", _reading(models / "regress")).X)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        assert [path.name for path in recurra.folder.iterdir()] == [out.name]  # no draft is left

    def test_a_file_without_the_target(self, recurra, models):
        bare = [line.rsplit(",", 1)[0].split(",") for line in (models / "moves.csv").read_text().splitlines()]
        files.write_rows(recurra.folder / "bare.csv", bare[0], bare[1:])
        whole = recurra.good("predict", models / "classify", models / "moves.csv").stdout
        assert recurra.good("predict", models / "classify", "bare.csv").stdout == whole
        refused = recurra("evaluate", models / "classify", "bare.csv")
        assert refused.exit_code == 2
        assert "got no targets, expected the column 'activity'." in " ".join(refused.stderr.split())

    def test_forecasts(self, recurra, models):
        dates = [np.datetime64("2024-03-01") + k for k in range(3)]
        rows = [[shop, str(day), 1.0] for shop in ("north", "south") for day in dates]
        files.write_rows(recurra.folder / "future.csv", ["shop", "date", "price"], rows)
        words = "predict", models / "forecast", models / "sales.csv", "--horizon", 3, "--future", "future.csv"
        found = rows_of(recurra.good(*words, "--interval", 0.8).stdout)
        assert [row["shop"] for row in found] == ["north"] * 3 + ["south"] * 3
        assert [row["date"] for row in found] == ["2024-03-01", "2024-03-02", "2024-03-03"] * 2
        for row in found:
            assert float(row["lower 80%"]) <= float(row["prediction"]) <= float(row["upper 80%"])
        missing = recurra("predict", models / "forecast", models / "sales.csv")
        assert missing.exit_code == 2
        assert "--future: got no file, expected a file with price for the next 7 steps." in " ".join(
            missing.stderr.split()
        )

    def test_tags_of_tagged_and_of_plain_text(self, recurra, models):
        (recurra.folder / "plain.txt").write_text("the dog sat\na cat ran fast away\n", encoding="utf-8")
        found = rows_of(recurra.good("predict", models / "tag", "plain.txt").stdout)
        model = rc.SequenceTagger.load(models / "tag")
        expected = model.predict([["the", "dog", "sat"], ["a", "cat", "ran", "fast", "away"]])
        assert [row["tag"] for row in found] == [tag for sentence in expected for tag in sentence]
        assert [row["sentence"] for row in found] == ["0"] * 3 + ["1"] * 5

    def test_next_tokens(self, recurra, models):
        found = rows_of(recurra.good("predict", models / "language", models / "poem.txt").stdout)
        model = rc.LanguageModelEstimator.load(models / "language")
        assert found[0]["text"] == "the cat sat on the mat"
        assert found[0]["next"] == model.predict(["the cat sat on the mat"])[0]

    def test_translations_of_a_table_and_of_plain_text(self, recurra, models):
        (recurra.folder / "plain.txt").write_text("two one\n\nnine zero\n", encoding="utf-8")
        (recurra.folder / "new.csv").write_text("words\ntwo one\nnine zero\n", encoding="utf-8")
        model = rc.SequenceToSequence.load(models / "translate")
        expected = model.predict(["two one", "nine zero"])
        for name in ("plain.txt", "new.csv"):
            found = rows_of(recurra.good("predict", models / "translate", name).stdout)
            assert [row["words"] for row in found] == ["two one", "nine zero"]
            assert [row["prediction"] for row in found] == expected

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (
                ("translate", "numbers.tsv", "--proba"),
                "--proba: got a model that writes texts, expected a model of classes or tags.",
            ),
            (("translate", "moves.csv"), "moves.csv has no column 'words'."),
            (("classify", "moves.csv", "-o", "x.xls"), "--out: got 'x.xls', expected a file name ending in .csv"),
            (("classify", "moves.csv", "-o", "no/x.csv"), "no: no such folder."),
            (("classify", "size.csv"), "size.csv has no column 'recording'."),
            (
                ("classify", "moves.csv", "--horizon", 3),
                "--horizon: got a model to classify, expected a model to forecast.",
            ),
            (
                ("regress", "size.csv", "--proba"),
                "--proba: got a model that predicts numbers, expected a model of classes or tags.",
            ),
            (("moves.csv", "classify"), "moves.csv: got a file, expected a model folder written by `recurra fit`."),
            (("classify", "moves.csv", "-o", "folder.csv"), "folder.csv: is a directory."),
            (("nothing", "moves.csv"), "nothing: no such folder. Expected a model folder written by `recurra fit`."),
        ],
    )
    def test_errors(self, recurra, models, words, said):
        model, data, *rest = words
        (recurra.folder / "folder.csv").mkdir()
        result = recurra("predict", models / model, models / data, *rest)
        assert result.exit_code == 2
        assert said in " ".join(result.stderr.split())


def _reading(folder) -> dict:
    return json.loads((folder / "config.json").read_text())["problem"]["schema"]


def _arrays(path) -> dict[str, np.ndarray]:
    with np.load(path) as found:
        return dict(found)


def _column(path, suffix: str) -> list[float]:
    match suffix:
        case "parquet":
            return pq.read_table(path)["prediction"].to_pylist()
        case "arrow":
            from pyarrow import feather

            return feather.read_table(path)["prediction"].to_pylist()
        case "json":
            return [row["prediction"] for row in json.loads(path.read_text())]
        case "jsonl":
            return [json.loads(line)["prediction"] for line in path.read_text().splitlines()]
    rows = csv.DictReader(path.read_text().splitlines(), delimiter="\t" if suffix == "tsv" else ",")
    return [float(row["prediction"]) for row in rows]


class TestEvaluate:
    @pytest.mark.parametrize(
        ("task", "data", "metric"),
        [
            ("classify", "moves.csv", "accuracy"),
            ("regress", "size.csv", "mae"),
            ("forecast", "sales.csv", "mase"),
            ("tag", "tags.conll", "accuracy"),
            ("language", "poem.txt", "bits per character"),
            ("translate", "numbers.tsv", "accuracy"),
        ],
    )
    def test_every_task(self, recurra, models, task, data, metric):
        found = json.loads(recurra.good("evaluate", models / task, models / data, "--json").stdout)
        assert found["metric"] == metric
        assert found["score"] == found["measures"][metric]
        shown = recurra.good("evaluate", models / task, models / data).stdout
        assert shown.split()[0] == metric.split()[0]
        assert f"{found['score']:.4g}" in shown

    def test_coverage_of_forecasts_is_counted_by_steps_ahead(self, recurra, models):
        words = ("evaluate", models / "forecast", models / "sales.csv", "--windows", 3)
        found = json.loads(recurra.good(*words, "--json").stdout)
        data = read_like_training(models / "sales.csv", _reading(models / "forecast"))
        model = rc.Forecaster.load(models / "forecast")
        made = model.backtest(data.X, windows=3)
        low, high = made.levels.index(0.1), made.levels.index(0.9)
        inside = (made.quantiles[..., low] <= made.actual) & (made.actual <= made.quantiles[..., high])
        first, *groups = found["coverage"]
        assert first["steps"] == "all"
        assert first["80%"] == pytest.approx(inside.mean())
        assert first["80%"] == pytest.approx(found["measures"]["inside 80%"])
        spans = [[int(step) for step in group["steps"].split("–")] for group in groups]
        assert (spans[0][0], spans[-1][-1]) == (1, model.horizon)
        for span, group in zip(spans, groups, strict=True):
            assert group["80%"] == pytest.approx(inside[:, span[0] - 1 : span[-1]].mean())
        shown = recurra.good(*words).stdout
        assert "steps ahead" in shown
        assert f"{100 * first['80%']:.1f} %" in shown

    def test_accuracy_equals_that_of_the_estimator(self, recurra, models):
        other = recurra.folder / "other.csv"
        other.write_text((models / "moves.csv").read_text().replace("r0", "first"))
        found = json.loads(recurra.good("evaluate", models / "classify", other, "--json").stdout)
        data = read_like_training(other, _reading(models / "classify"))
        assert found["score"] == rc.SequenceClassifier.load(models / "classify").score(data.X, data.y)
        assert found["count"] == 20

    @pytest.mark.parametrize(
        ("task", "data"),
        [
            ("classify", "moves.csv"),
            ("regress", "size.csv"),
            ("forecast", "sales.csv"),
            ("tag", "tags.conll"),
            ("language", "poem.txt"),
            ("translate", "numbers.tsv"),
        ],
    )
    def test_the_training_file_scores_as_in_the_fit(self, recurra, models, task, data):
        """What the model was trained on counted, too: a score that said nothing about other data."""
        saved = json.loads((models / task / "config.json").read_text())["problem"]["measures"]
        result = recurra.good("evaluate", models / task, models / data, "--json")
        found = json.loads(result.stdout)
        assert found["measures"] == pytest.approx(saved, rel=1e-9)
        assert ("held out" in found.get("note", "")) == (task != "forecast")

    def test_the_page_about_the_training_file_shows_what_was_held_out(self, recurra, models):
        page = recurra.folder / "page.html"
        shown = recurra.good("inspect", models / "classify", models / "moves.csv", "-o", page).stderr
        assert "on 4 predictions. moves.csv has the training data" in " ".join(shown.split())
        assert "the score is that of the 20% held out." in page.read_text()

    def test_a_model_trained_on_all_of_a_file_says_so(self, recurra, models):
        recurra.good("fit", models / "size.csv", "--test", 0, "--epochs", 1, "--hidden-size", 2, "-o", "all")
        result = recurra.good("evaluate", "all", models / "size.csv")
        assert "size.csv is what the model was trained on" in result.stderr


class TestGenerate:
    def test_a_seed_repeats_the_text(self, recurra, models):
        words = "generate", models / "language", "the ", "-n", 20, "--seed", 3
        one, same = recurra.good(*words).stdout, recurra.good(*words).stdout
        assert one == same
        assert one.startswith("the ")
        assert len(one) == len("the ") + 20 + 1

    def test_generate_needs_a_language_model(self, recurra, models):
        result = recurra("generate", models / "classify")
        assert result.exit_code == 2
        assert "got a model to classify, expected a language model" in " ".join(result.stderr.split())


class TestEmbed:
    @pytest.mark.parametrize(("task", "data", "count", "width"), [
        ("classify", "moves.csv", 20, 4),
        ("regress", "size.csv", 20, 4),
        ("forecast", "sales.csv", 2, 4),
        ("tag", "tags.conll", 20, 8),
        ("language", "poem.txt", 30, 4),
        ("translate", "numbers.tsv", 90, 8),
    ])  # fmt: skip
    def test_one_vector_per_sequence(self, recurra, models, task, data, count, width):
        for pool in ("final", "mean"):
            recurra.good("embed", models / task, models / data, "--pool", pool, "-o", f"{pool}.npz")
        final, mean = (_arrays(recurra.folder / f"{pool}.npz") for pool in ("final", "mean"))
        assert final["hidden"].shape == mean["hidden"].shape == (count, width)
        assert len(final["names"]) == count
        assert np.isfinite(final["hidden"]).all()
        assert not np.allclose(final["hidden"], mean["hidden"])

    def test_vectors_are_hidden_states(self, recurra, models):
        import torch

        found = rows_of(recurra.good("embed", models / "classify", models / "moves.csv").stdout)
        model = rc.SequenceClassifier.load(models / "classify")
        x = read_like_training(models / "moves.csv", _reading(models / "classify")).X[3]
        layer = model.network_.recurrent.double()
        y, _ = layer(torch.tensor(model.input_scaling_.apply(x))[:, None])
        expected = y[-1, 0].detach().numpy()
        np.testing.assert_allclose([float(found[3][f"h{k}"]) for k in range(4)], expected, rtol=1e-8)

    def test_an_unknown_pool(self, recurra, models):
        result = recurra("embed", models / "classify", models / "moves.csv", "--pool", "men")
        assert result.exit_code == 2
        assert "Did you mean 'mean'? Choose from final, max, mean." in result.stderr


class TestInspect:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("task", "data"),
        [
            ("regress", "size.csv"),
            ("forecast", "sales.csv"),
            ("tag", "tags.conll"),
            ("language", "poem.txt"),
            ("translate", "numbers.tsv"),
        ],
    )
    def test_a_report_for_every_task(self, recurra, models, task, data):
        recurra.good("inspect", models / task, models / data, "-o", "page.html")
        text = (recurra.folder / "page.html").read_text(encoding="utf-8")
        assert "Gradient flow" in text
        assert "Not measured here" not in text

    def test_a_report_of_a_classifier(self, recurra, models):
        result = recurra.good("inspect", models / "classify", models / "moves.csv", "-o", "page.html")
        assert "page.html" in result.stderr
        text = (recurra.folder / "page.html").read_text(encoding="utf-8")
        assert "classify: gru, to classify" in text
        assert "Gradient flow" in text


class TestExport:
    @pytest.mark.slow
    def test_an_encoder_decoder_becomes_two_files(self, recurra, models):
        pytest.importorskip("onnxruntime")
        refused = recurra("export", models / "translate", "one.onnx")
        assert refused.exit_code == 2
        assert "expected a folder" in " ".join(refused.stderr.split())
        recurra.good("export", models / "translate", "both")
        assert sorted(path.name for path in (recurra.folder / "both").iterdir()) == ["decoder.onnx", "encoder.onnx"]

    def test_the_onnx_file_agrees_with_the_model(self, recurra, models):
        onnxruntime = pytest.importorskip("onnxruntime")
        result = recurra.good("export", models / "classify", "model.onnx")
        assert "checked in onnxruntime" in result.stderr
        session = onnxruntime.InferenceSession(recurra.folder / "model.onnx")
        x = read_like_training(models / "moves.csv", _reading(models / "classify")).X[5]
        names = [given.name for given in session.get_inputs()]
        found = session.run(None, {names[0]: x[:, None].astype(np.float32), names[1]: np.array([len(x)])})[0]
        expected = rc.SequenceClassifier.load(models / "classify").predict_proba([x])
        np.testing.assert_allclose(found, expected, atol=1e-5)

    def test_another_suffix(self, recurra, models):
        result = recurra("export", models / "classify", "model.txt")
        assert result.exit_code == 2
        assert "a name that ends in .onnx" in result.stderr


def test_a_model_saved_in_python_can_be_used(recurra, models):
    rng = np.random.default_rng(0)
    model = rc.SequenceRegressor("gru", 3, epochs=1, random_state=0).fit(
        [rng.normal(size=(4, 1)) for _ in range(6)], np.arange(6.0)
    )
    model.save(recurra.folder / "own")
    found = json.loads(recurra.good("evaluate", "own", models / "size.csv", "--json").stdout)
    assert found["metric"] == "mae"


def test_a_damaged_folder(recurra, models):
    import shutil

    shutil.copytree(models / "classify", recurra.folder / "m")
    (recurra.folder / "m" / "model.safetensors").write_bytes(b"nothing")
    result = recurra("predict", "m", models / "moves.csv")
    assert result.exit_code in (1, 2)
    assert "model.safetensors" in result.stderr
    assert "Traceback" not in result.output


def test_sort_works_where_it_is_suggested(recurra, models):
    rows = [line.split(",") for line in (models / "moves.csv").read_text().splitlines()]
    files.write_rows(recurra.folder / "mixed.csv", rows[0], sorted(rows[1:], key=lambda row: int(row[1])))
    for command in ("predict", "evaluate", "embed", "inspect"):
        text = " ".join(recurra(command, models / "classify", "mixed.csv").stderr.split())
        assert "rows for 'r0' are not contiguous; use --sort." in text
    sorted_rows = recurra.good("predict", models / "classify", "mixed.csv", "--sort").stdout
    assert sorted_rows == recurra.good("predict", models / "classify", models / "moves.csv").stdout


def test_flags_have_no_type_in_help(recurra):
    for command in ("fit", "compare", "cells", "predict"):
        shown = recurra.good(command, "--help").output
        assert "<bool>" not in shown
        assert "<int" not in shown
