"""Translations: sources, what they should become and what the model wrote, the wrong ones first."""

from collections.abc import Sequence

from ..page import Block, table_block

ROWS = 20


def translation_block(sources: Sequence[str], truth: Sequence[str], found: Sequence[str]) -> Block:
    """A table of texts: up to `ROWS`, those that are wrong first."""
    wrong = [real != written for real, written in zip(truth, found, strict=True)]
    order = sorted(range(len(wrong)), key=lambda k: not wrong[k])[:ROWS]
    rows = [(sources[k], truth[k], found[k], "" if wrong[k] else "right") for k in order]
    caption = f"{len(wrong) - sum(wrong):,} of {len(wrong):,} texts are exactly right; wrong ones come first."
    return table_block(rows, ("source", "target", "written", ""), caption)
