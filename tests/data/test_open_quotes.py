"""The built-in data set of open strings: its labels against the rule of quotation marks, its splits, its symbols."""

import pytest
import torch

from recurra.data.open_quotes import SYMBOLS, open_quotes, symbol
from recurra.errors import UnknownNameError
from recurra.problem import infer_problem


def is_open(line: str) -> bool:
    """The rule by hand: a mark opens a string, the same mark closes it, and a backslash hides what follows."""
    mark, hidden = "", False
    for letter in line:
        if hidden:
            hidden = False
        elif mark and letter == "\\":
            hidden = True
        elif mark and letter == mark:
            mark = ""
        elif not mark and letter in "\"'":
            mark = letter
    return bool(mark)


@pytest.mark.parametrize(("split", "count"), [("train", 1500), ("test", 1000)])
def test_labels_follow_from_the_quotation_marks(split, count):
    sequences, labels, lines = open_quotes(split)
    assert len(sequences) == len(labels) == len(lines) == count
    assert [is_open(line) for line in lines] == labels.bool().tolist()
    assert 0.45 < labels.double().mean() < 0.55
    assert all(
        x.shape == (len(line), len(SYMBOLS)) and x.sum() == len(line) for x, line in zip(sequences, lines, strict=True)
    )


def test_no_line_is_in_both_splits():
    assert not set(open_quotes("train").lines) & set(open_quotes("test").lines)


def test_symbols_hide_words_and_keep_marks():
    assert "".join(map(symbol, 'Ab_1 = "x9\\n')) == 'Aa_0 = "a0\\a'
    sequences, _, lines = open_quotes("test")
    decoded = "".join(SYMBOLS[k] for k in sequences[0].argmax(dim=1))
    assert decoded == "".join(map(symbol, lines[0]))
    assert sequences[0].dtype == torch.float32
    with pytest.raises(UnknownNameError, match="split"):
        open_quotes("all")  # pyrefly: ignore


def test_as_a_problem():
    problem = infer_problem("open_quotes")
    assert set(problem.train[1]) == {"open", "closed"}
    assert (problem.metric, len(problem.test[0])) == ("accuracy", 1000)
