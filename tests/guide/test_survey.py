"""The index of the survey: complete, every call runs, every figure is drawn."""

import re
import xml.etree.ElementTree as ET

import pytest
import torch

import recurra as rc
from recurra.guide.entry import SurveyEntry, names_in
from recurra.inspect import Diagram

ENTRIES = list(rc.survey())


def test_all_sections_equations_and_figures_are_there() -> None:
    covered = []
    for entry in ENTRIES:
        if entry.kind == "equation":
            first, _, last = entry.where.removeprefix("eq. ").partition("–")
            covered += range(int(first), int(last or first) + 1)
    assert covered == list(range(1, 54))  # the survey numbers 53 equations
    assert [e.where for e in ENTRIES if e.kind == "figure"] == [f"fig. {k}" for k in range(1, 10)]
    sections = [e.where for e in ENTRIES if e.kind == "section"]
    assert len(sections) == len(set(sections)) == 41
    assert sections == sorted(sections)
    assert {e.section for e in ENTRIES} == set(sections)


def test_every_erratum_is_named_by_a_section() -> None:
    named = {number for e in ENTRIES if e.kind == "section" for number in e.errata}
    assert named == {e.number for e in rc.train.errata()}
    assert {number for e in ENTRIES for number in e.errata} == named


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.where)
def test_every_call_runs(entry: SurveyEntry) -> None:
    found = entry.run()
    assert all(value is not None for value in found)
    if entry.kind == "figure":
        assert all(isinstance(value, Diagram) for value in found)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("3.4", ["3.4", "fig. 3"]),
        ("eq. 13", ["eq. 12–15"]),
        ("(13)", ["eq. 12–15"]),
        ("equation 53", ["eq. 53"]),
        ("Fig. 9", ["fig. 9"]),
        ("figure 2", ["fig. 2"]),
        ("E31", ["2.3.4", "eq. 18–19"]),
        ("leaky", ["3.3", "eq. 28"]),
    ],
)
def test_places_are_found(where: str, expected: list[str]) -> None:
    assert [entry.where for entry in rc.survey(where)] == expected


def test_a_chapter_holds_its_sections() -> None:
    assert {entry.section for entry in rc.survey("5")} == {"5", "5.1", "5.2", "5.3", "5.4"}


def test_all_errata_are_found_at_their_places() -> None:
    found = {number for entry in rc.survey("errata") for number in entry.errata}
    assert found == {erratum.number for erratum in rc.train.errata()}


def test_unknown_places_are_refused() -> None:
    for where in ("9", "eq. 54", "fig. 10", "E99", "no such word"):
        with pytest.raises(rc.UnknownNameError, match="where"):
            rc.survey(where)


def test_names_in_calls_bring_what_they_are_made_of() -> None:
    assert names_in(["rc.f(head)"]) == ["layer", "head"]
    assert names_in(["trace['i']"]) == ["x", "trace"]
    assert names_in(["rc.layer('rnn', 3, 4)", "rc.C(layer=2)"]) == []


def test_printed_calls_can_be_pasted() -> None:
    """What names stand for is printed below the calls, in an order in which it can be run."""
    text = str(rc.survey("2.3.2"))
    assert "found.deltas['h'][-1]" in text
    space = {"rc": rc, "torch": torch}
    for line in text.splitlines():
        if line.startswith("where "):
            exec(line.removeprefix("where "), space)
    assert space["found"].h.shape == (5, 2, 4)
    assert "where" not in str(rc.survey("3.3"))


def test_the_page_shows_every_figure_and_every_erratum(tmp_path) -> None:
    text = rc.survey().page(tmp_path / "survey.html").read_text(encoding="utf-8")
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawings) == sum(len(e.calls) for e in ENTRIES if e.kind == "figure")
    for drawing in drawings:
        ET.fromstring(drawing)
    for erratum in rc.train.errata():
        assert text.count(f'id="{erratum.number}"') == 1
    links = set(re.findall(r'href="#([^"]+)"', text))
    assert links <= set(re.findall(r'id="([^"]+)"', text))
    assert "<script" not in text
    assert "http-equiv" in text
    words = re.sub(r"<(svg|code|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    assert "h<sub>t-1</sub>" in words
    assert "h<sub>t</sub>ᵀ" in words
    assert "_{" not in words
