"""The index of the survey as one HTML page: sections, equations, figures drawn by their calls, errata."""

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from ..inspect.page import write_text
from ..train.errata import errata
from ..train.erratum import Erratum
from .entries import NAMES
from .entry import SurveyEntry

#: h_t, h_{t-1}, c̃_t, h←_{T+1}: a letter or two with an index
INDEXED = re.compile("(?<!\\w)(\\w{1,2}[\u0302\u0303]?[←→]?)_(\\{[^}]*\\}|(?:(?!ᵀ)\\w)+)")

STYLE = """
body { font: 16px/1.55 system-ui, sans-serif; color: #1f2933; background: #fff; max-width: 60rem; margin: 2rem auto;
  padding: 0 1.2rem; }
h1 { font-size: 1.7rem; }
h2 { margin: 2.6rem 0 .3rem; border-bottom: 1px solid #cbd2d9; } h3 { margin: 1.6rem 0 .2rem; }
p { margin: .25rem 0; } code { font: 13px/1.5 ui-monospace, monospace; background: #f0f4f8; padding: .1rem .35rem;
  border-radius: 4px; overflow-wrap: anywhere; }
.equation { margin: .5rem 0 .5rem 1.2rem; } .equation b { font-weight: 600; margin-right: .6rem; }
figure { margin: 1.2rem 0; padding: .8rem; border: 1px solid #cbd2d9; border-radius: 8px; overflow-x: auto; }
figure svg { max-width: 100%; height: auto; display: block; margin: .4rem 0; } figcaption { margin-bottom: .4rem; }
.erratum { margin: .4rem 0 .4rem 1.2rem; padding-left: .8rem; border-left: 3px solid #d55e00; font-size: .93rem; }
nav a { margin-right: .8rem; white-space: nowrap; } a { color: #0072b2; }
@media (prefers-color-scheme: dark) { body { color: #e4e7eb; background: #15191e; } code { background: #252b33; }
  a { color: #6cb8e6; } h2, figure { border-color: #3e4c59; } }
"""


def write_page(index: Sequence[SurveyEntry], path: str | Path) -> Path:
    """Write the page and return its path."""
    known = {e.number: e for e in errata()}
    shown: set[str] = set()
    body = []
    for entry in index:
        body.append(
            _section(entry)
            if entry.kind == "section"
            else _figure(entry)
            if entry.kind == "figure"
            else _equation(entry)
        )
        for number in entry.errata:
            body.append(_link(number) if number in shown else _erratum(known[number]))
            shown.add(number)
    chapters = [entry for entry in index if entry.kind == "section" and "." not in entry.where]
    links = " ".join(f'<a href="#s{e.where}">{e.where} {escape(e.title)}</a>' for e in chapters)
    names = ", ".join(f"<code>{name} = {escape(value)}</code>" for name, value in NAMES.items())
    text = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>The survey in recurra</title><style>{STYLE}</style><h1>The survey in recurra</h1>"
        "<p>Ghojogh &amp; Ghodsi, <i>Recurrent Neural Networks and Long Short-Term Memory Networks: Tutorial and "
        f"Survey</i> (2023): what each place says, the call that is it, and its errata. In calls, {names}.</p>"
        f"<nav>{links}</nav>{''.join(body)}</html>\n"
    )
    return write_text(path, text)


def _calls(entry: SurveyEntry) -> str:
    return "<br>".join(f"<code>{escape(call)}</code>" for call in entry.calls)


def _words(text: str) -> str:
    """Text as HTML, with indices as subscripts."""
    return INDEXED.sub(lambda match: f"{match[1]}<sub>{match[2].strip('{}')}</sub>", escape(text))


def _section(entry: SurveyEntry) -> str:
    level = 2 if "." not in entry.where else 3
    heading = f'<h{level} id="s{entry.where}">{entry.where} {escape(entry.title)}</h{level}>'
    return f"{heading}<p>{_words(entry.says)}</p><p>{_calls(entry)}</p>"


def _equation(entry: SurveyEntry) -> str:
    number = entry.where.removeprefix("eq. ")
    return f'<p class="equation" id="e{number}"><b>({number})</b> {_words(entry.says)}<br>{_calls(entry)}</p>'


def _figure(entry: SurveyEntry) -> str:
    drawings = zip(entry.calls, entry.run(), strict=True)
    parts = "".join(f"<code>{escape(call)}</code>{drawing.svg}" for call, drawing in drawings)
    number = entry.where.removeprefix("fig. ")
    return (
        f'<figure id="f{number}"><figcaption><b>Figure {number}.</b> {escape(entry.says)}</figcaption>{parts}</figure>'
    )


def _erratum(e: Erratum) -> str:
    text = f"<b>{e.number}</b> printed: {_words(e.printed)}<br>right: {_words(e.right)}"
    if e.why:
        text += f"<br>because {_words(e.why)}"
    if e.measured:
        text += f"<br>{_words(e.measured)}: {e.printed_value:.4g} printed, {e.right_value:.4g} right"
    return f'<p class="erratum" id="{e.number}">{text}</p>'


def _link(number: str) -> str:
    return f'<p class="erratum">See <a href="#{number}">{number}</a>.</p>'
