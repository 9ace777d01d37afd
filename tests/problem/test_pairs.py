"""Pairs of texts from files: which columns, literal texts, what is held out, and what is refused."""

from itertools import product

import pytest
from problem import files

import recurra as rc
from recurra.data.data_errors import FormatError, MissingColumnError, MissingValueError
from recurra.errors import InputError
from recurra.problem.edit_distance import edit_distance
from recurra.problem.pairs import read_pairs


def test_columns_and_split_of_a_file(tmp_path):
    problem = rc.infer_problem(files.numbers_in_words(tmp_path / "numbers.tsv"), task="translation", test=0.1)
    assert (problem.task, problem.metric, len(problem.train[0]), len(problem.test[0])) == (
        "translate",
        "accuracy",
        81,
        9,
    )
    pairs = dict(zip(*problem.train, strict=True)) | dict(zip(*problem.test, strict=True))
    assert len(pairs) == 90
    assert pairs["seven three"] == "73"  # as it is written, no number
    assert type(problem.estimator()).__name__ == "SequenceToSequence"
    assert "source 'words', target 'digits'" in repr(problem)


def test_texts_are_literal(tmp_path):
    """Dates, leading zeros and names such as NA are texts; quotes are those of CSV."""
    path = tmp_path / "a.csv"
    path.write_text('key,from,to\n1,NA,007\n2,"a, b",2024-01-02\n3,null,1.50\n', encoding="utf-8")
    found = rc.infer_problem(path, task="translate", inputs="from", target="to", test=0).train
    assert found == (["NA", "a, b", "null"], ["007", "2024-01-02", "1.50"])
    assert rc.infer_problem(path, task="translate", ignore="key", test=0).train == found


def test_other_tables_have_the_same_texts(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"from": "one", "to": "1"}\n{"from": "two", "to": "2"}\n', encoding="utf-8")
    assert rc.infer_problem(path, task="translate", test=0).train == (["one", "two"], ["1", "2"])


def test_an_empty_text_is_named_or_left_out(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("from\tto\none\t1\ntwo\t\n", encoding="utf-8")
    with pytest.raises(MissingValueError, match=r"line 3, column 'to'.*nothing"):
        rc.infer_problem(path, task="translate")
    assert rc.infer_problem(path, task="translate", test=0, missing="drop").train == (["one"], ["1"])


def test_a_test_file_and_sources_without_targets(tmp_path):
    train, test = files.numbers_in_words(tmp_path / "train.tsv"), tmp_path / "test.tsv"
    test.write_text("words\tdigits\none one\t11\n", encoding="utf-8")
    problem = rc.infer_problem(train, task="translate")
    assert problem.test == (["one one"], ["11"])
    (tmp_path / "new.tsv").write_text("words\nsix six\n", encoding="utf-8")
    found = read_pairs(tmp_path / "new.tsv", problem.schema)
    assert (found.X, found.y) == (["six six"], None)
    with pytest.raises(MissingColumnError, match="digits"):
        rc.infer_problem(train, task="translate", test=tmp_path / "new.tsv")


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"target": "digit"}, MissingColumnError, "digits"),
        ({"inputs": "words", "target": "words"}, FormatError, "a column of sources and one of targets"),
        ({"ignore": "digits"}, FormatError, "a column of sources and one of targets"),
        ({"inputs": "words,digits"}, InputError, "one column of texts"),
        ({"horizon": 3}, InputError, "a task to forecast, not to translate"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, given, error, said):
    path = files.numbers_in_words(tmp_path / "numbers.tsv")
    with pytest.raises(error, match=said):
        rc.infer_problem(path, task="translate", **given)


def test_a_text_alone_has_no_pairs(tmp_path):
    with pytest.raises(FormatError, match="a table with two columns of texts"):
        rc.infer_problem(files.poem(tmp_path / "poem.txt"), task="translate")


def test_edit_distance_is_the_shortest_path():
    """Against a search over all edits of texts of up to three letters."""
    texts = ["".join(letters) for size in range(4) for letters in product("ab", repeat=size)]

    def edits(text):
        yield from (text[:k] + text[k + 1 :] for k in range(len(text)))
        yield from (text[:k] + letter + text[k:] for k in range(len(text) + 1) for letter in "ab")
        yield from (text[:k] + letter + text[k + 1 :] for k in range(len(text)) for letter in "ab")

    for first in texts:
        distances, front = {first: 0}, [first]
        for step in range(1, 4):
            front = [new for old in front for new in edits(old) if len(new) <= 4 and new not in distances]
            distances |= dict.fromkeys(front, step)
        for second in texts:
            assert edit_distance(first, second) == distances[second], (first, second)
