"""`rc.survey`: from the sections, equations and figures of the survey to the calls that are them."""

import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import UnknownNameError
from .entries import EQUATIONS, FIGURES, NAMES, SECTIONS
from .entry import SurveyEntry, names_in
from .page import write_page


class SurveyIndex(Sequence[SurveyEntry]):
    """Entries in the order of the survey; prints as a list, and `page` writes them with their figures."""

    def __init__(self, entries: Sequence[SurveyEntry]):
        self.entries = tuple(entries)

    def __getitem__(self, index):  # pyrefly: ignore
        return self.entries[index]

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def names(self) -> dict[str, str]:
        """What the names in the calls stand for."""
        return {name: NAMES[name] for name in names_in([call for entry in self.entries for call in entry.calls])}

    def __str__(self) -> str:
        names = [f"where {name} = {value}" for name, value in self.names.items()]
        return "\n".join([*map(str, self.entries), *names])

    def page(self, path: str | Path) -> Path:
        """Write one HTML file: the entries, their figures drawn, and the errata they name."""
        return write_page(self.entries, path)


def survey(where: str | None = None) -> SurveyIndex:
    """Where the survey's systems are in recurra: section → what it says in a sentence → the call that is it → errata.

    The survey is Ghojogh & Ghodsi, "Recurrent Neural Networks and Long Short-Term Memory Networks: Tutorial and Survey"
    (2023). `recurra survey` prints the same.

    **Arguments**

    - `where`: a section ("3.4", with all that is inside), an equation ("eq. 27" or "(27)"), a figure ("fig. 2"), an
      erratum ("E7"), "errata" for all places that have one, or a word to look for ("leaky"). None: everything.

    **Returns** a `SurveyIndex` of `SurveyEntry`. `entry.run()` evaluates the calls; `index.page("survey.html")` writes
    a page with the figures, each drawn by its call.

    **Example**

    >>> print(rc.survey("eq. 27"))
    eq. 27
        h_t = tanh(Σ_k W_k h_{t-k} + U x_t + b_i)
        rc.DelayRNN(3, 4, delays=(1, 3))
        errata: E19
    >>> [entry.where for entry in rc.survey("3.4")]
    ['3.4', 'fig. 3']
    """
    everything = _entries()
    if where is None:
        return SurveyIndex(everything)
    found = [entry for entry in everything if _matches(entry, where.strip())]
    if not found:
        known = "a section, 'eq. 27', 'fig. 2', 'E7', 'errata' or a word of the index"
        raise UnknownNameError("where", repr(where), known)
    return SurveyIndex(found)


def _entries() -> list[SurveyEntry]:
    """Each section, then its equations and figures."""
    inside: dict[str, list[SurveyEntry]] = {}
    for number, section, says, call, errata in EQUATIONS:
        entry = SurveyEntry(f"eq. {number.replace('-', '–')}", section, "", says, (call,), tuple(errata.split()))
        inside.setdefault(section, []).append(entry)
    for number, section, says, calls in FIGURES:
        inside.setdefault(section, []).append(SurveyEntry(f"fig. {number}", section, "", says, calls))
    found = []
    for number, title, says, call, errata in SECTIONS:
        found.append(SurveyEntry(number, number, title, says, (call,), tuple(errata.split())))
        found += inside.pop(number, [])
    return found


def _matches(entry: SurveyEntry, where: str) -> bool:
    if re.fullmatch(r"\d(\.\d)*", where):
        return entry.section == where or entry.section.startswith(f"{where}.")
    if equation := re.fullmatch(r"(?:eq(?:uation|\.)?\s*)?\(?(\d+)\)?", where, re.IGNORECASE):
        return entry.kind == "equation" and _covers(entry.where.removeprefix("eq. "), int(equation[1]))
    if figure := re.fullmatch(r"fig(?:ure|\.)?\s*(\d+)", where, re.IGNORECASE):
        return entry.where == f"fig. {figure[1]}"
    if re.fullmatch(r"E\d+[ab]?", where):
        return where in entry.errata
    if where.lower() == "errata":
        return bool(entry.errata)
    text = " ".join((entry.title, entry.says, *entry.calls)).lower()
    return where.lower() in text


def _covers(numbers: str, wanted: int) -> bool:
    first, _, last = numbers.partition("–")
    return int(first) <= wanted <= int(last or first)
