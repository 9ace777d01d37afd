"""Pictures of answers: numbers against scikit-learn, marks against sentences written by hand, escaping."""

import numpy as np
import pytest
from sklearn import metrics

from recurra.inspect.answers import (
    class_blocks,
    class_scores,
    forecast_blocks,
    number_blocks,
    tag_blocks,
    tag_scores,
    text_blocks,
)
from recurra.inspect.answers.classes import confusion_matrix
from recurra.inspect.answers.tags import marked
from recurra.inspect.figures import log_axis
from recurra.inspect.health import overfitting_finding
from recurra.inspect.page import Section, render
from recurra.models.tagging.schemes import Entity


@pytest.fixture
def labels():
    rng = np.random.default_rng(3)
    return rng.choice(["a", "b", "c"], 60), rng.choice(["a", "b", "c", "d"], 60)


def test_scores_per_class_are_those_of_sklearn(labels):
    truth, found = labels
    expected = metrics.precision_recall_fscore_support(truth, found, labels=["a", "b", "c", "d"], zero_division=0)
    got = class_scores(truth, found)
    assert [one.name for one in got] == ["a", "b", "c", "d"]
    for position, name in enumerate(("precision", "recall", "f1", "count")):
        assert [getattr(one, name) for one in got] == pytest.approx(expected[position].tolist())
    assert (confusion_matrix(truth, found, ["a", "b", "c", "d"]) == metrics.confusion_matrix(truth, found)).all()


def test_the_most_confident_mistakes_come_first():
    truth, found = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    probabilities = np.array([[0.9, 0.1], [0.4, 0.6], [0.95, 0.05], [0.2, 0.8]])
    X = [np.arange(5.0)[:, None] + k for k in range(4)]
    grid = class_blocks(truth, found, probabilities, [0, 1], X)[-1]
    assert grid.text == "The 2 most confident mistakes of 2 in 4 predictions."
    markup = str(grid.markup)
    assert markup.index("sequence 3, 5 steps, 95% sure") < markup.index("sequence 2, 5 steps, 60% sure")
    good = class_blocks(truth, truth, probabilities, [0, 1], X)[-1]
    assert (good.title, good.good) == ("No mistakes.", True)


def test_entities_are_marked_right_wrong_and_missed():
    words = ["Ann", "Lee", "saw", "<Rome>", "."]
    truth, found = [Entity("PER", 0, 1), Entity("LOC", 3, 3)], [Entity("PER", 0, 1), Entity("PER", 3, 3)]
    assert marked(words, truth, found) == (
        '<mark class="right">Ann</mark> <mark class="right">Lee<sub>PER</sub></mark> saw '
        '<mark class="wrong"><mark class="missed">&lt;Rome&gt;<sub>LOC</sub></mark><sub>PER</sub></mark> .'
    )
    assert marked(words, truth, truth).count('class="right"') == 3


def test_tags_without_entities_mark_the_wrong_words():
    blocks = tag_blocks([["the", "run"]], [["DET", "NOUN"]], [["DET", "VERB"]])
    assert blocks[0].text.startswith("1 of 1 sentences have a mistake")
    assert "run" in str(blocks[0].markup)
    assert "<mark" not in str(blocks[0].markup).split("run")[0].split("the")[0]
    assert [row[0] for row in tag_scores([["DET", "NOUN"]], [["DET", "VERB"]], chunked=False)] == [
        "DET",
        "NOUN",
        "VERB",
    ]


def test_forecasts_show_coverage_and_errors_by_step():
    rng = np.random.default_rng(0)
    actual = rng.normal(size=(40, 6))
    levels = (0.05, 0.5, 0.95)
    quantiles = np.broadcast_to(np.array([-1.0, 0.0, 1.0]), (40, 6, 3))
    blocks = forecast_blocks(["s"] * 40, [rng.normal(size=30)] * 40, actual, quantiles, levels, actual * 0)
    inside = np.abs(actual) <= 1
    assert f"{inside.mean():.0%}" in blocks[2].text
    assert blocks[2].figure is not None
    assert list(blocks[2].figure.data[0].y) == pytest.approx(inside.mean(axis=0), rel=1e-3)
    assert blocks[1].figure is not None
    assert list(blocks[1].figure.data[0].y) == pytest.approx(np.abs(actual).mean(axis=0), rel=1e-3)


def test_the_page_escapes_text_from_the_data():
    evil = "<script>alert(1)</script>"
    sentences = tag_blocks([[evil]], [[evil]], [["O"]])
    quotes = text_blocks([("a sample", evil)], [evil], [9.0])
    classes = class_blocks(np.array([evil, "b"]), np.array(["b", "b"]), None, [evil, "b"], [np.zeros((3, 1))] * 2)
    numbers = number_blocks([1.0, 2.0], [1.5, 2.0], [np.zeros((3, 2))] * 2, names=(evil, "x"))
    page = render("t", "l", [Section("s", [*sentences, *quotes, *classes, *numbers])], verdict=evil)
    assert evil not in page
    assert '<p class="verdict">&lt;script&gt;' in page


@pytest.mark.parametrize("values", [[0.3, 1.5], [1e-9, 1.0], [2.0, 2.0], [0.01, 0.5], [1.0, 3e4], []])
def test_ticks_of_log_axes_are_whole_numbers(values):
    axis = log_axis(values)
    assert 1 <= len(axis["tickvals"]) <= 12
    low, high = axis["range"]
    for value, text in zip(axis["tickvals"], axis["ticktext"], strict=True):
        assert low <= np.log10(value) <= high
        shown = text.replace("10<sup>", "1e").removesuffix("</sup>")
        assert float(shown) == pytest.approx(value)


def test_a_rising_validation_loss_is_a_finding():
    falling = [{"loss": 1 / (k + 1), "valid_loss": 1 / (k + 1)} for k in range(5)]
    assert overfitting_finding(falling) is None
    doubled = [{"loss": 1 / (k + 1), "valid_loss": loss} for k, loss in enumerate((1.0, 0.5, 0.6, 1.0))]
    found = overfitting_finding(doubled)
    assert found is not None
    assert "rose from 0.5 in epoch 2 to 1 in epoch 4" in found.what
    assert overfitting_finding([{"loss": 1.0}] * 5) is None


def test_mistakes_are_called_by_the_id_of_their_sequence():
    X = [np.full((3, 1), float(k)) for k in range(3)]
    blocks = class_blocks(["a", "a", "b"], ["a", "b", "a"], None, ["a", "b"], X, ids=["n07", "n12", "n31"])
    markup = str(blocks[-1].markup)
    assert "sequence n12, 3 steps" in markup
    assert "sequence 2" not in markup
