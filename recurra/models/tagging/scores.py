"""Entity-level precision, recall and F1, as the scorer of the CoNLL shared tasks computes them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...errors import InputError
from .schemes import entities


@dataclass(frozen=True)
class Counts:
    """Numbers of true entities, of predicted ones, and of those in both: same words, same kind."""

    there: int
    found: int
    right: int

    @property
    def precision(self) -> float:
        return self.right / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        return self.right / self.there if self.there else 0.0

    @property
    def f1(self) -> float:
        return 2 * self.right / (self.there + self.found) if self.right else 0.0


@dataclass(frozen=True)
class EntityScores(Counts):
    """Counts over all kinds and for every kind, and the accuracy of the tags.

    **Example**

        >>> scores = rc.models.entity_scores([["B-X", "I-X", "O", "B-Y"]], [["B-X", "O", "O", "B-Y"]])
        >>> scores.there, scores.found, scores.right, scores.kinds["Y"].f1
        (2, 2, 1, 1.0)
    """

    accuracy: float = 0.0
    kinds: dict[str, Counts] = field(default_factory=dict)

    def __str__(self) -> str:
        rows = [("all", self), *sorted(self.kinds.items())]
        lines = [f"{'':8}{'precision':>10}{'recall':>8}{'F1':>8}{'there':>8}{'found':>8}"]
        lines += [
            f"{name:8}{100 * c.precision:10.2f}{100 * c.recall:8.2f}{100 * c.f1:8.2f}{c.there:8}{c.found:8}"
            for name, c in rows
        ]
        return "\n".join([*lines, f"accuracy of tags {100 * self.accuracy:.2f}"])


def entity_scores(truth: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> EntityScores:
    """Entity-level precision, recall and F1 of predicted tags.

    **Arguments**

    - `truth`, `found`: the true and the predicted tags, one list per sentence, in any scheme.

    **Returns**

    An `EntityScores` with `precision`, `recall`, `f1`, `accuracy`, and the counts of every kind in `kinds`.

    **Example**

        >>> scores = rc.models.entity_scores([["B-X", "I-X", "O"]], [["B-X", "O", "O"]])
        >>> scores.f1, round(scores.accuracy, 2)
        (0.0, 0.67)
    """
    _same_lengths(truth, found)
    there, claimed, right = Counter[str](), Counter[str](), Counter[str]()
    for expected, predicted in zip(truth, found, strict=True):
        real, guessed = set(entities(expected)), set(entities(predicted))
        there.update(entity.kind for entity in real)
        claimed.update(entity.kind for entity in guessed)
        right.update(entity.kind for entity in real & guessed)
    kinds = {kind: Counts(there[kind], claimed[kind], right[kind]) for kind in sorted(there | claimed)}
    return EntityScores(there.total(), claimed.total(), right.total(), accuracy(truth, found), kinds)


def accuracy(truth: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> float:
    """The share of words with the right tag, from 0 to 1.

    **Example**

        >>> rc.models.accuracy([["DET", "NOUN"]], [["DET", "VERB"]])
        0.5
    """
    _same_lengths(truth, found)
    pairs = [(a, b) for one, other in zip(truth, found, strict=True) for a, b in zip(one, other, strict=True)]
    return sum(a == b for a, b in pairs) / len(pairs) if pairs else 0.0


def _same_lengths(truth: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> None:
    for name, sentences in (("truth", truth), ("found", found)):
        if not isinstance(sentences, Sequence) or not all(isinstance(each, Sequence) for each in sentences):
            raise InputError(name, type(sentences).__name__, "a list of sentences, each a list of tags")
    if len(truth) != len(found):
        raise InputError("found", f"{len(found)} sentences", f"{len(truth)}, as there are true ones")
    for number, (expected, predicted) in enumerate(zip(truth, found, strict=True)):
        if len(expected) != len(predicted):
            raise InputError(f"found, sentence {number}", f"{len(predicted)} tags", f"{len(expected)} tags")
