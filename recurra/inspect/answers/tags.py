"""Tags: sentences with their entities marked, right, wrong and missed ones; scores per entity or tag."""

from collections.abc import Sequence
from html import escape
from itertools import chain

from ...models.tagging.schemes import Entity, entities, looks_chunked
from ...models.tagging.scores import entity_scores
from ..page import Block, table_block
from .classes import class_scores

SENTENCES = 10
MAX_WORDS = 60  # of one sentence
MAX_ROWS = 30  # of the table

Tags = Sequence[Sequence[str]]


def tag_blocks(words: Tags, truth: Tags, found: Tags) -> list[Block]:
    """The blocks of tagged sentences: those with the most mistakes, and a table of scores."""
    from markupsafe import Markup

    chunked = looks_chunked(set(chain(*truth)))
    pairs = [_marks(*pair, chunked) for pair in zip(truth, found, strict=True)]
    mistakes = [len(set(real) ^ set(given)) for real, given in pairs]
    order = sorted(range(len(words)), key=lambda k: (-mistakes[k], k))[:SENTENCES]
    lines = "".join(f"<p>{marked(words[k], *pairs[k])}</p>" for k in order)
    count = f"{sum(map(bool, mistakes)):,} of {len(words):,} sentences have a mistake; those with the most come first."
    legend = "Filled: found and right. " if chunked else ""
    caption = f"{count} {legend}Solid frame: found, but wrong. Dotted frame: right, but missed."
    return [Block("sentences", caption, markup=Markup(lines)), _score_table(truth, found, chunked)]


def tag_scores(truth: Tags, found: Tags, chunked: bool) -> list[tuple[str, float, float, float, int]]:
    """(name, precision, recall, F1, count) of every kind of entity, or of every tag; the most frequent first."""
    if chunked:
        kinds = entity_scores(truth, found).kinds.items()
        scores = [(kind, one.precision, one.recall, one.f1, one.there) for kind, one in kinds]
    else:
        flat = list(chain(*truth)), list(chain(*found))
        scores = [(one.name, one.precision, one.recall, one.f1, one.count) for one in class_scores(*flat)]
    return sorted(scores, key=lambda one: (-one[-1], one[0]))


def _marks(truth: Sequence[str], found: Sequence[str], chunked: bool) -> tuple[list[Entity], list[Entity]]:
    """What is marked: all entities, or the words whose tag is wrong."""
    if chunked:
        return entities(truth), entities(found)
    wrong = [k for k, (real, given) in enumerate(zip(truth, found, strict=True)) if real != given]
    return [Entity(truth[k], k, k) for k in wrong], [Entity(found[k], k, k) for k in wrong]


def marked(words: Sequence[str], truth: Sequence[Entity], found: Sequence[Entity]) -> str:
    """A sentence as HTML, with its entities marked."""
    kinds = {"right": set(truth) & set(found), "wrong": set(found) - set(truth), "missed": set(truth) - set(found)}
    before: dict[int, str] = {}
    after: dict[int, str] = {}
    for name, spans in kinds.items():  # a label after the last word: spans may overlap, elements may not
        for span in sorted(spans):
            for k in range(span.first, span.last + 1):
                before[k] = before.get(k, "") + f'<mark class="{name}">'
                label = f"<sub>{escape(span.kind)}</sub>" if k == span.last else ""
                after[k] = f"{label}</mark>" + after.get(k, "")
    shown = (before.get(k, "") + escape(word) + after.get(k, "") for k, word in enumerate(words[:MAX_WORDS]))
    return " ".join(shown) + (" …" if len(words) > MAX_WORDS else "")


def _score_table(truth: Tags, found: Tags, chunked: bool) -> Block:
    scores = tag_scores(truth, found, chunked)[:MAX_ROWS]
    rows = [
        [name, f"{100 * p:.1f} %", f"{100 * r:.1f} %", f"{100 * f:.1f} %", count] for name, p, r, f, count in scores
    ]
    return table_block(rows, ("entity" if chunked else "tag", "precision", "recall", "F1", "count"))
