"""Text: samples that the model wrote, and a true passage with the characters that surprised it."""

from collections.abc import Sequence
from html import escape

from ..page import Block

MOST = 6.0  # bits that are marked in full


def text_blocks(samples: Sequence[tuple[str, str]], passage: Sequence[str], bits: Sequence[float]) -> list[Block]:
    """The blocks of a language model.

    **Arguments**

    - `samples`: (how it was made, text).
    - `passage`: the tokens of a text.
    - `bits`: how many bits each of them cost the model.
    """
    from markupsafe import Markup

    blocks = [Block("quote", text, title) for title, text in samples]
    marks = "".join(_mark(token, cost) for token, cost in zip(passage, bits, strict=True))
    mean = sum(bits) / max(sum(map(len, passage)), 1)
    caption = (
        f"The stronger the colour, the more a token surprised the model: {mean:.2f} bits per character on average."
    )
    return [*blocks, Block("sentences", caption, markup=Markup(f'<p class="passage">{marks}</p>'))]


def _mark(token: str, bits: float) -> str:
    text = escape(token).replace("\n", "<br>")
    strength = min(1.0, max(0.0, (bits - 1.0) / MOST))
    if strength < 0.05:
        return text
    return f'<span title="{bits:.1f} bits" style="background: rgba(213,94,0,{0.75 * strength:.2f})">{text}</span>'
