"""`infer_problem`: task, columns, split and summary of a file."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from problem import files

import recurra as rc
from recurra.data.data_errors import DataError, FormatError, MissingColumnError
from recurra.errors import InputError, UnknownNameError
from recurra.problem import infer_problem, read_like_training


def summary(problem) -> dict[str, str]:
    return dict(problem.summary)


def test_one_text_label_per_id_is_classification(tmp_path):
    problem = infer_problem(files.recordings(tmp_path / "moves.csv"))
    assert problem.task == "classify"
    assert problem.metric == "accuracy"
    assert problem.higher_is_better
    X, y = problem.train
    assert len(X) == len(y) == 16
    assert len(problem.test[0]) == 4
    assert X[0].shape[1] == 2
    assert set(y) == {"walk", "run"}
    assert sorted(np.unique(problem.test[1], return_counts=True)[1].tolist()) == [2, 2]
    assert "'activity' has one text label per 'recording'" in summary(problem)["task"]
    assert summary(problem)["columns"] == "id 'recording', time 't', target 'activity'"


def test_contiguous_integers_identify_sequences(tmp_path):
    rows = [[p, 10 + t, 0.1 * p * t, ("walk", "run", "sit")[p % 3]] for p in range(30) for t in range(4 + p % 3)]
    path = files.write_rows(tmp_path / "walks.csv", ["person", "second", "ax", "activity"], rows)
    for problem in (infer_problem(path), infer_problem(path, target="activity")):
        assert problem.task == "classify"
        assert summary(problem)["columns"] == "id 'person', time 'second', target 'activity'"
        assert len(problem.train[0]) + len(problem.test[0]) == 30
        assert problem.train[0][0].shape[1] == 1


def test_contiguous_integers_of_one_series_are_no_id(tmp_path):
    rows = [[2000 + k // 12, float(k % 12) + 0.5] for k in range(96)]
    problem = infer_problem(files.write_rows(tmp_path / "rain.csv", ["era", "rain"], rows), target="rain")
    assert problem.task == "forecast"
    assert "'era'" not in summary(problem)["columns"]


def test_values_are_float64_in_file_order(tmp_path):
    rows = [[k, 0.1 * k + 1e-9 * t, "ab"[k % 2]] for k in range(10) for t in range(3)]
    problem = infer_problem(files.write_rows(tmp_path / "x.csv", ["id", "x", "label"], rows), test=0)
    assert problem.test is None
    assert [x[2, 0] for x in problem.train[0]] == [0.1 * k + 2e-9 for k in range(10)]
    assert problem.train[1].tolist() == ["a", "b"] * 5


def test_one_decimal_number_per_id_is_regression(tmp_path):
    problem = infer_problem(files.amounts(tmp_path / "size.csv"))
    assert (problem.task, problem.metric, problem.higher_is_better) == ("regress", "mae", False)
    assert problem.train[1].dtype == np.float64
    assert problem.train[1].ndim == 1


def test_frequent_integers_are_classes(tmp_path):
    few = [[k, t, k % 3] for k in range(30) for t in range(2)]
    assert (
        infer_problem(files.write_rows(tmp_path / "few.csv", ["id", "x", "kind"], few), target="kind").task
        == "classify"
    )
    many = [[k, t, k] for k in range(30) for t in range(2)]
    problem = infer_problem(files.write_rows(tmp_path / "many.csv", ["case", "x", "kind"], many), target="kind")
    assert problem.task == "regress"
    assert "too many distinct values for classes" in summary(problem)["task"]


def test_numbers_over_time_are_forecast_with_the_end_held_out(tmp_path):
    problem = infer_problem(files.shops(tmp_path / "sales.csv"), target="sold", inputs="price")
    assert (problem.task, problem.metric) == ("forecast", "mase")
    assert problem.options["horizon"] == problem.options["season"] == 7
    assert problem.options["known"] == ("price",)
    train, test = problem.train[0], problem.test[0]
    assert train.column_names == ["unique_id", "ds", "y", "price"]
    assert test.num_rows == 2 * 7
    for shop in ("north", "south"):
        past = [d for d, s in zip(train["ds"].to_pylist(), train["unique_id"].to_pylist(), strict=True) if s == shop]
        ahead = [d for d, s in zip(test["ds"].to_pylist(), test["unique_id"].to_pylist(), strict=True) if s == shop]
        assert max(past) < min(ahead)
    assert summary(problem)["series"] == "2, 60 steps each, daily"


def test_a_single_series_needs_no_id(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("value\n" + "\n".join(str(k % 4) for k in range(40)), encoding="utf-8")
    problem = infer_problem(path, horizon=3)
    assert problem.task == "forecast"
    assert problem.options["horizon"] == 3
    assert problem.train[0]["y"].to_pylist() == [k % 4 for k in range(40 - 6)]


def test_a_constant_input_of_a_forecast_is_static(tmp_path):
    rows = [[s, t, 10 * k, float(t % 5)] for k, s in enumerate("ab") for t in range(40)]
    path = files.write_rows(tmp_path / "s.csv", ["series", "t", "size", "y"], rows)
    problem = infer_problem(path, inputs=["size"])
    assert problem.options["static"] == ("size",)
    assert problem.options["known"] == ()


def test_tagged_sentences_and_plain_text(tmp_path):
    tags = infer_problem(files.sentences(tmp_path / "x.conll"))
    assert (tags.task, tags.metric) == ("tag", "accuracy")
    assert tags.train[0][0] in (["the", "cat", "sat"], ["a", "dog", "ran", "fast"])
    text = infer_problem(files.poem(tmp_path / "x.txt"))
    assert (text.task, text.metric) == ("language", "bits per character")
    assert text.train[0] + text.test[0] == (tmp_path / "x.txt").read_text()


def test_json_sentences_are_a_text(tmp_path):
    (tmp_path / "x.json").write_text('["one two three", "four five"]', encoding="utf-8")
    problem = infer_problem(tmp_path / "x.json", test=0)
    assert problem.task == "language"
    assert problem.train[0] == "one two three\nfour five"


def test_entities_are_scored_by_f1(tmp_path):
    path = tmp_path / "x.conll"
    path.write_text("Ann B-PER\nLee I-PER\nruns O\n\n" * 10, encoding="utf-8")
    assert infer_problem(path).metric == "f1"


def test_words_in_rows_and_in_lists_give_the_same_problem(tmp_path):
    words, tags = ["the", "cat", "sat"], ["D", "N", "V"]
    rows = [[k, word, tag] for k in range(10) for word, tag in zip(words, tags, strict=True)]
    long = infer_problem(
        files.write_rows(tmp_path / "long.csv", ["sentence_id", "word", "pos"], rows), target="pos", test=0
    )
    lists = infer_problem(files.json_lines(tmp_path / "x.jsonl", [{"tokens": words, "tags": tags}] * 10), test=0)
    for problem in (long, lists):
        assert problem.task == "tag"
        assert problem.train == ([words] * 10, [tags] * 10)


def test_parquet_and_json_lines_give_the_same_problem_as_csv(tmp_path):
    from pyarrow import csv

    table = csv.read_csv(files.recordings(tmp_path / "x.csv"))
    pq.write_table(table, tmp_path / "x.parquet")
    files.json_lines(tmp_path / "x.jsonl", table.to_pylist())
    first = infer_problem(tmp_path / "x.csv")
    for name in ("x.parquet", "x.jsonl"):
        other = infer_problem(tmp_path / name)
        assert (other.task, other.options) == (first.task, first.options)
        for one, same in zip(first.train[0], other.train[0], strict=True):
            np.testing.assert_array_equal(one, same)
        assert first.train[1].tolist() == other.train[1].tolist()


def test_nested_sequences(tmp_path):
    records = [{"inputs": [[float(k % 2), 1.0]] * (2 + k % 3), "label": "ab"[k % 2]} for k in range(10)]
    problem = infer_problem(files.json_lines(tmp_path / "x.jsonl", records), test=0)
    assert problem.task == "classify"
    assert [len(x) for x in problem.train[0]] == [2 + k % 3 for k in range(10)]
    assert problem.train[1].tolist() == ["a", "b"] * 5


def test_the_summary_lists_ignored_columns(tmp_path):
    rows = [[k // 4, k, "yes" if k % 3 else "no", "ab"[k // 4 % 2]] for k in range(48)]
    problem = infer_problem(files.write_rows(tmp_path / "x.csv", ["id", "a", "remark", "label"], rows))
    assert summary(problem)["steps"] == "4 per sequence, 3 features per step: a, remark=no, remark=yes"
    problem = infer_problem(tmp_path / "x.csv", ignore="remark")
    assert summary(problem)["columns"] == "id 'id', target 'label'; ignored: remark"
    assert summary(problem)["steps"] == "4 per sequence, 1 feature per step: a"
    assert [column.role for column in problem.columns] == ["id", "input", "ignored", "target"]


def test_wide_table(tmp_path):
    rows = [["ab"[k % 2], *(k + t for t in range(5))] for k in range(10)]
    path = files.write_rows(tmp_path / "wide.csv", ["label", *(f"t{t}" for t in range(5))], rows)
    problem = infer_problem(path, test=0)
    assert problem.task == "classify"
    np.testing.assert_array_equal(problem.train[0][3], np.arange(3.0, 8.0)[:, None])


def test_characters_are_one_hot(tmp_path):
    for name, lines in (("Greek", "alpha\nbeta\n" * 5), ("Latin", "rosa\namo\n" * 5)):
        (tmp_path / f"{name}.txt").write_text(lines, encoding="utf-8")
    problem = infer_problem(tmp_path, test=0)
    assert problem.task == "classify"
    first = problem.train[0][0]
    assert first.shape == (5, 1 + len(set("alphabetarosaamo")))  # and one for unknown characters
    assert first.sum(axis=1).tolist() == [1.0] * 5


def test_matching_test_file(tmp_path):
    files.recordings(tmp_path / "a_TRAIN.csv")
    files.recordings(tmp_path / "a_TEST.csv", count=6)
    problem = infer_problem(tmp_path / "a_TRAIN.csv")
    assert (len(problem.train[0]), len(problem.test[0])) == (20, 6)
    assert "from a_TEST.csv" in summary(problem)["sequences"]
    named = infer_problem(tmp_path / "a_TRAIN.csv", test=files.recordings(tmp_path / "other.csv", count=8))
    assert len(named.test[0]) == 8
    drawn = infer_problem(tmp_path / "a_TRAIN.csv", test=0.5)
    assert (len(drawn.train[0]), len(drawn.test[0])) == (10, 10)


def test_the_same_arguments_give_the_same_problem(tmp_path):
    path = files.recordings(tmp_path / "x.csv")
    one, same, other = infer_problem(path, seed=3), infer_problem(path, seed=3), infer_problem(path, seed=4)
    assert [x.tobytes() for x in one.train[0]] == [x.tobytes() for x in same.train[0]]
    assert [x.tobytes() for x in one.test[0]] != [x.tobytes() for x in other.test[0]]
    assert one.estimator("gru").random_state == 3


def test_missing_values_raise_with_their_place_unless_filled(tmp_path):
    rows = [[k, t, "" if (k, t) == (3, 1) else float(t), "ab"[k % 2]] for k in range(10) for t in range(3)]
    path = files.write_rows(tmp_path / "gaps.csv", ["id", "x", "v", "label"], rows)
    with pytest.raises(DataError, match=r"gaps.csv, line 12, column 'v'"):
        infer_problem(path)
    filled = infer_problem(path, missing="fill", test=0)
    assert filled.train[0][3][:, 1].tolist() == [0.0, 0.0, 2.0]


class TestErrors:
    def test_a_typo_names_the_file_and_the_columns(self, tmp_path):
        path = files.recordings(tmp_path / "moves.csv")
        with pytest.raises(MissingColumnError, match=r"moves.csv.*recording.*did you mean 'activity'"):
            infer_problem(path, target="activty")

    def test_several_possible_targets(self, tmp_path):
        path = files.write_rows(
            tmp_path / "x.csv", ["date", "a", "b"], [["2024-01-0" + str(k), k, k] for k in range(1, 9)]
        )
        with pytest.raises(FormatError, match=r"several possible targets \(a, b\)"):
            infer_problem(path)

    def test_a_class_that_changes_within_a_sequence(self, tmp_path):
        rows = [[k, t, "ab"[t % 2]] for k in range(4) for t in range(4)]
        path = files.write_rows(tmp_path / "x.csv", ["id", "x", "label"], rows)
        assert infer_problem(path).task == "classify_steps"
        with pytest.raises(FormatError, match="values that change within a sequence"):
            infer_problem(path, task="classify")

    def test_one_class_only(self, tmp_path):
        path = files.write_rows(tmp_path / "x.csv", ["id", "x", "label"], [[k, k, "a"] for k in range(9) for _ in "ab"])
        with pytest.raises(FormatError, match="one class only, 'a'"):
            infer_problem(path)

    def test_a_text_target_cannot_be_forecast(self, tmp_path):
        path = files.recordings(tmp_path / "x.csv")
        for task in ("forecast", "regress"):
            with pytest.raises(
                FormatError, match=f"column 'activity': got values of type text, expected numbers to {task}"
            ):
                infer_problem(path, task=task, target="activity")

    def test_an_unknown_task(self, tmp_path):
        with pytest.raises(UnknownNameError, match="did you mean 'classify'"):
            infer_problem(files.recordings(tmp_path / "x.csv"), task="clasify")

    def test_missing_file_and_invalid_fraction(self, tmp_path):
        with pytest.raises(DataError, match="no such file"):
            infer_problem(tmp_path / "nothing.csv")
        with pytest.raises(InputError, match="a fraction from 0 to below 1, or a file"):
            infer_problem(files.recordings(tmp_path / "x.csv"), test=1.5)

    def test_a_series_too_short_to_test_on(self, tmp_path):
        with pytest.raises(FormatError, match="a series of 60 steps"):
            infer_problem(files.shops(tmp_path / "x.csv"), target="sold", horizon=40)

    def test_an_unseen_class_in_the_test_file(self, tmp_path):
        two = [{"inputs": [[1.0]], "label": label} for label in "ab" * 4]
        files.json_lines(tmp_path / "train.jsonl", two)
        files.json_lines(tmp_path / "test.jsonl", [{"inputs": [[1.0]], "label": "c"}])
        with pytest.raises(DataError, match=r"test.jsonl, line 1.*unseen label 'c'"):
            infer_problem(tmp_path / "train.jsonl")


class TestEstimators:
    def test_an_unknown_setting(self, tmp_path):
        with pytest.raises(InputError, match="did you mean 'hidden_size'"):
            infer_problem(files.recordings(tmp_path / "x.csv")).estimator("gru", hiden_size=3)

    def test_classes(self, tmp_path):
        problem = infer_problem(files.recordings(tmp_path / "x.csv"))
        model = problem.estimator("gru", hidden_size=4, epochs=8).fit(*problem.train)
        right = np.mean(model.predict(problem.test[0]) == problem.test[1])
        assert problem.score(model) == right
        assert problem.score(model, problem.train) == model.score(*problem.train)

    def test_amounts(self, tmp_path):
        problem = infer_problem(files.amounts(tmp_path / "x.csv"))
        model = problem.estimator("gru", hidden_size=4, epochs=3).fit(*problem.train)
        X, y = problem.test
        assert problem.score(model) == pytest.approx(np.abs(model.predict(X) - y).mean(), rel=1e-12)

    def test_forecasts_are_scored_on_the_steps_that_follow(self, tmp_path):
        problem = infer_problem(files.shops(tmp_path / "x.csv"), target="sold", test=0.4)
        assert problem.test[0].num_rows == 2 * 21
        model = problem.estimator("gru", hidden_size=4, epochs=1).fit(*problem.train)
        whole = pa.concat_tables(
            [
                t.filter(pa.compute.equal(t["unique_id"], s))
                for s in ("north", "south")
                for t in (problem.train[0], problem.test[0])
            ]
        )
        expected = model.backtest(whole, windows=3).scores
        measures = problem.evaluate(model, problem.test)
        assert measures["mase"] == expected["model"]["MASE"]
        assert measures["mase of seasonal naive"] == expected["seasonal naive"]["MASE"]

    def test_tags_and_texts(self, tmp_path):
        tags = infer_problem(files.sentences(tmp_path / "x.conll"))
        model = tags.estimator("gru", hidden_size=4, epochs=1).fit(*tags.train)
        assert tags.score(model) == model.score(*tags.test)
        text = infer_problem(files.poem(tmp_path / "x.txt"))
        model = text.estimator("gru", hidden_size=4, epochs=1, batch_size=2).fit(*text.train)
        assert text.score(model) == model.measure(text.test[0])["bits_per_character"]

    def test_another_file_is_read_alike_with_or_without_targets(self, tmp_path):
        problem = infer_problem(files.recordings(tmp_path / "x.csv"), test=0)
        again = read_like_training(tmp_path / "x.csv", problem.schema)
        assert again.names[:2] == ["r0", "r1"]
        assert again.y.tolist() == problem.train[1].tolist()
        bare = [row[:4] for row in _rows(tmp_path / "x.csv")]
        found = read_like_training(files.write_rows(tmp_path / "bare.csv", bare[0], bare[1:]), problem.schema)
        assert found.y is None
        for one, same in zip(found.X, again.X, strict=True):
            np.testing.assert_array_equal(one, same)

    def test_a_model_is_saved_with_its_schema(self, tmp_path):
        from recurra.problem import load_problem, save_problem

        problem = infer_problem(files.recordings(tmp_path / "x.csv"))
        model = problem.estimator("gru", hidden_size=2, epochs=1).fit(*problem.train)
        save_problem(problem, model, tmp_path / "m", {"accuracy": 0.5})
        assert load_problem(tmp_path / "m", "classify") == (problem.schema, "accuracy")
        with pytest.raises(InputError, match="no schema for this model"):
            load_problem(tmp_path / "m", "forecast")
        model.save(tmp_path / "alone")
        assert load_problem(tmp_path / "alone", "classify") == ({}, None)

    def test_lines_of_text_for_a_character_model(self, tmp_path):
        folder = tmp_path / "names"
        folder.mkdir()
        for name, text in (("Greek", "alpha\nbeta\n" * 5), ("Latin", "rosa\namo\n" * 5)):
            (folder / f"{name}.txt").write_text(text, encoding="utf-8")
        reading = infer_problem(folder, test=0).schema
        (tmp_path / "who.txt").write_text("beta\n\nroma\n", encoding="utf-8")
        found = read_like_training(tmp_path / "who.txt", reading)
        assert found.names == ["beta", "roma"]
        np.testing.assert_array_equal(found.X[0], read_like_training(folder, reading).X[1])
        (tmp_path / "who.txt").write_text("beta\nroma!\n", encoding="utf-8")
        unseen = read_like_training(tmp_path / "who.txt", reading).X[1][-1]
        assert unseen.argmax() == reading["vocabulary"].index("<unk>")

    def test_a_file_of_another_format(self, tmp_path):
        reading = infer_problem(files.recordings(tmp_path / "x.csv")).schema
        with pytest.raises(
            FormatError, match=r"poem.txt: got the format text, expected one of csv, .* like the training file"
        ):
            read_like_training(files.poem(tmp_path / "poem.txt"), reading)

    def test_metrics_when_a_class_is_missing(self, tmp_path):
        from sklearn.metrics import balanced_accuracy_score

        problem = infer_problem(files.recordings(tmp_path / "x.csv"))
        model = problem.estimator("gru", hidden_size=2, epochs=1).fit(*problem.train)
        X, y = problem.train
        some = ([X[k] for k in range(16) if y[k] == "run"], y[y == "run"])
        assert problem.evaluate(model, some)["balanced accuracy"] == np.mean(model.predict(some[0]) == "run")
        expected = balanced_accuracy_score(y, model.predict(X))
        assert problem.evaluate(model, (X, y))["balanced accuracy"] == pytest.approx(expected, rel=1e-12)


def _rows(path) -> list[list[str]]:
    return [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("file", "options", "task", "said"),
    [
        ("uea/BasicMotions", {}, "classify", "40 for training, 40 for testing (from BasicMotions_TEST.ts)"),
        ("uea/ItalyPowerDemand/ItalyPowerDemand_TRAIN.ts", {}, "classify", "67 for training, 1,029 for testing"),
        ("ett/ETTh1.csv", {"target": "OT"}, "forecast", "1, 17,420 steps, hourly"),
        ("sunspots/sunspots.csv", {}, "forecast", "time 'YEAR', target 'SUNACTIVITY'"),
        ("sunspots/sunspots_monthly.dat", {}, "forecast", "steps, monthly"),
        ("conll2000/test.txt", {}, "tag", "the tags mark entities"),
        ("ud_english_ewt/en_ewt-ud-dev.conllu.gz", {}, "tag", "17: ADJ"),
        ("tiny_shakespeare/input.txt", {}, "language", "1,003,855 for training, 65 distinct"),
    ],
)
def test_public_files(shared_data, file, options, task, said):
    problem = infer_problem(shared_data / file, **options)
    assert problem.task == task
    assert any(said in text for _, text in problem.summary), problem.summary


def test_the_builtin_data_has_its_published_split():
    problem = rc.infer_problem("japanese_vowels")
    assert (len(problem.train[0]), len(problem.test[0])) == (270, 370)
    with pytest.raises(InputError, match="classify for japanese_vowels"):
        rc.infer_problem("japanese_vowels", task="forecast")
