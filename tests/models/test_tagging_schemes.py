"""Schemes of tags and the scores of entities, against seqeval and the rules of the shared tasks' own scorer."""

import random

import pytest
import torch

from recurra.errors import InputError, UnknownNameError
from recurra.models import accuracy, entity_scores
from recurra.models.tagging.schemes import (
    Entity,
    SchemeError,
    allowed_transitions,
    convert,
    detect,
    entities,
    entities_to_tags,
    looks_chunked,
    violation,
)

KINDS = ("NP", "VP", "PP")


def random_tags(letters: str, count: int = 300) -> list[list[str]]:
    """Tags in any order, most of which keep to no scheme at all."""
    names = ["O", *(f"{letter}-{kind}" for letter in letters for kind in KINDS)]
    return [random.choices(names, k=random.randint(1, 12)) for _ in range(count)]


def random_entities(length: int) -> list[Entity]:
    found, at = [], 0
    while at < length:
        last = min(length - 1, at + random.randint(0, 3))
        if random.random() < 0.6:
            found.append(Entity(random.choice(KINDS), at, last))
        at = last + 1
    return found


@pytest.mark.parametrize("letters", ["BI", "I", "BIES", "IE"])
def test_scores_are_seqeval(letters: str):
    seqeval = pytest.importorskip("seqeval.metrics")
    truth, found = random_tags(letters), []
    for tags in truth:  # half right, so that some entities agree
        other = random_tags(letters, 1)[0]
        found.append([a if random.random() < 0.7 else random.choice(other) for a in tags])
    scores = entity_scores(truth, found)
    assert 0.05 < scores.f1 < 0.95
    assert scores.f1 == pytest.approx(seqeval.f1_score(truth, found), abs=1e-12)
    assert scores.precision == pytest.approx(seqeval.precision_score(truth, found), abs=1e-12)
    assert scores.recall == pytest.approx(seqeval.recall_score(truth, found), abs=1e-12)
    assert scores.accuracy == pytest.approx(seqeval.accuracy_score(truth, found), abs=1e-12)
    table = seqeval.classification_report(truth, found, output_dict=True)
    for kind, counts in scores.kinds.items():
        assert counts.f1 == pytest.approx(table[kind]["f1-score"], abs=1e-12)
        assert counts.there == table[kind]["support"]


def conlleval(truth: list[list[str]], found: list[list[str]]) -> tuple[int, int, int]:
    """Entities there, found and right, counted word by word as the shared tasks' script does it."""

    def apart(tag: str) -> tuple[str, str]:
        return ("O", "") if tag == "O" else (tag[0], tag[2:])

    def ended(before: tuple[str, str], now: tuple[str, str]) -> bool:
        pairs = {"BB", "BO", "IB", "IO", "EE", "EI", "EO", "BS", "IS", "EB", "ES", "SB", "SI", "SE", "SS", "SO"}
        return before[0] + now[0] in pairs or (before[0] != "O" and before[1] != now[1])

    def started(before: tuple[str, str], now: tuple[str, str]) -> bool:
        pairs = {"BB", "IB", "OB", "OI", "EE", "EI", "OE", "OS", "BS", "IS", "ES", "EB", "SB", "SI", "SE", "SS"}
        return before[0] + now[0] in pairs or (now[0] != "O" and before[1] != now[1])

    there = claimed = right = 0
    for expected, predicted in zip(truth, found, strict=True):
        inside, old, guess = False, ("O", ""), ("O", "")
        for a, b in [*zip(map(apart, expected), map(apart, predicted), strict=True), (("O", ""), ("O", ""))]:
            if inside and ended(old, a) and ended(guess, b):
                right, inside = right + 1, False
            elif inside and (ended(old, a) != ended(guess, b) or a[1] != b[1]):
                inside = False
            if started(old, a) and started(guess, b) and a[1] == b[1]:
                inside = True
            there, claimed = there + started(old, a), claimed + started(guess, b)
            old, guess = a, b
    return there, claimed, right


@pytest.mark.parametrize("letters", ["BI", "I", "BIES"])
def test_scores_are_conlleval(letters: str):
    truth, found = random_tags(letters), []
    for tags in truth:
        other = random_tags(letters, 1)[0]
        found.append([a if random.random() < 0.7 else random.choice(other) for a in tags])
    scores = entity_scores(truth, found)
    assert (scores.there, scores.found, scores.right) == conlleval(truth, found)
    assert scores.right > 50


@pytest.mark.parametrize("scheme", ["bio", "iob1", "bioes"])
def test_writing_and_reading_are_inverse(scheme: str):
    for _ in range(200):
        length = random.randint(1, 15)
        found = random_entities(length)
        tags = entities_to_tags(found, length, scheme)
        assert entities(tags) == found
        assert violation([tags], scheme) is None
        for other in ("bio", "iob1", "bioes"):
            assert convert(convert(tags, other), scheme) == tags


@pytest.mark.parametrize("scheme", ["bio", "iob1", "bioes"])
def test_rules_allow_what_the_scheme_writes_and_nothing_else(scheme: str):
    letters = "BIES" if scheme == "bioes" else "BI"
    names = ["O", *(f"{letter}-{kind}" for letter in letters for kind in KINDS)]
    allowed = allowed_transitions(names, scheme)
    number = {name: k for k, name in enumerate(names)}
    seen = torch.zeros_like(allowed.transitions)
    for tags in (entities_to_tags(random_entities(n := random.randint(1, 15)), n, scheme) for _ in range(3000)):
        path = torch.tensor([number[tag] for tag in tags])
        seen[path[:-1], path[1:]] = True
        assert allowed.start[path[0]]
        assert allowed.end[path[-1]]
    assert torch.equal(seen, allowed.transitions)


def test_the_scheme_is_seen():
    sentences = [random_entities(12) for _ in range(50)]
    for scheme in ("bio", "iob1", "bioes"):
        assert detect([entities_to_tags(found, 12, scheme) for found in sentences]) == scheme
    assert looks_chunked(["O", "B-NP", "I-NP"])
    assert not looks_chunked(["NOUN", "VERB", "O"])
    assert not looks_chunked(["O"])


def test_mixed_schemes_are_an_error_with_a_place():
    with pytest.raises(SchemeError, match=r"tags of sentence 1, word 1: got 'B-NP O'.*it was 'bioes'"):
        detect([["B-NP", "E-NP", "S-NP"], ["B-NP", "O"]])
    with pytest.raises(SchemeError, match="tags of sentence 1, word 1"):
        detect([["B-NP", "I-NP"], ["O", "I-NP"], ["I-NP", "B-NP"]])
    with pytest.raises(SchemeError, match="tag: got 'X-NP'"):
        detect([["B-NP", "X-NP"]])
    with pytest.raises(SchemeError, match="classes: got 'E-NP'"):
        allowed_transitions(["O", "B-NP", "E-NP"], "bio")
    with pytest.raises(UnknownNameError, match="scheme"):
        convert(["O"], "bilou")


def test_scores_need_sentences_of_one_shape():
    with pytest.raises(InputError, match="found: got 1 sentences, expected 2"):
        entity_scores([["O"], ["O"]], [["O"]])
    with pytest.raises(InputError, match="found, sentence 1: got 1 tags, expected 2"):
        accuracy([["O"], ["O", "O"]], [["O"], ["O"]])
    assert entity_scores([["O"]], [["O"]]).f1 == 0.0
    assert "NP" in str(entity_scores([["B-NP"]], [["B-NP"]]))
