"""The report, opened in a real browser: nothing in the console, every figure drawn, hover, phones, print, no trick."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import recurra as rc
from recurra.errors import InputError
from recurra.inspect import Monitor
from recurra.inspect.page import Block, Section, render, write_page
from tests.inspect.browser import Browser, Page

ATTACK = "</script><script>window.stolen = 1</script><img src=x onerror='window.stolen = 2'>"


class Model(nn.Module):
    def __init__(self, cell: str, vocabulary: int):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 4)
        self.recurrent = rc.layer(cell, 4, 6, num_layers=2)
        self.head = rc.Readout(self.recurrent, vocabulary)

    def forward(self, tokens, state=None, lengths=None):
        y, state = self.recurrent(self.embedding(tokens), state, lengths=lengths)
        return self.head(y), state


def words() -> rc.data.SequenceSet:
    vocabulary = ("the", "cat", ATTACK, "<b>sat</b>", "$x^2$")
    rows = [torch.randint(5, (length,)) for length in (24, 30, 18)]
    lengths = torch.tensor([len(row) for row in rows])
    return rc.data.SequenceSet.one_step_ahead(rows, lengths, "language", vocabulary=vocabulary, source=f"{ATTACK}.txt")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with every section."""
    torch.manual_seed(1)
    data = words()
    models = {name: Model(name, 5) for name in ("lstm", "gru")}
    before = Model("lstm", 5)
    monitor = Monitor(data, quiet=True)
    with rc.set_backend("reference"):
        histories = {
            name: rc.train.fit(
                model, data, data, epochs=2, progress=False, callbacks=[monitor] if name == "lstm" else []
            )
            for name, model in models.items()
        }
        board = [
            {"cell": name, "valid loss": h.history[-1]["valid_loss"], "note": ATTACK} for name, h in histories.items()
        ]
        return rc.report(
            models,
            data,
            tmp_path_factory.mktemp("report") / "report.html",
            title=f"A report {ATTACK}",
            history=histories,
            leaderboard=board,
            before=before,
            monitor=monitor,
            settings={ATTACK: ATTACK},
        )


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    started = Browser()
    yield started
    started.close()


@pytest.fixture(scope="module")
def page(browser: Browser, written: Path) -> Page:
    return browser.open(written)


def draw_all(page: Page) -> int:
    """Scroll through the page as a reader would; every figure is drawn on the way."""
    count = page.run("document.querySelectorAll('.plot').length")
    for number in range(count):
        page.run(f"document.querySelectorAll('.plot')[{number}].scrollIntoView()")
        page.wait_for(f"document.querySelectorAll('.plot')[{number}].dataset.state === 'drawn'")
    return count


# ---------------------------------------------------------------------------------------------------- the file


def test_it_is_one_small_file(written):
    assert written.stat().st_size < 8 << 20
    assert [path.name for path in written.parent.iterdir()] == ["report.html"], "something was left beside it"


def test_the_policy_lets_two_scripts_run_and_loads_nothing(written):
    text = written.read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1].replace("&#39;", "'")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert policy.count("sha256-") == 2
    assert "unsafe-inline" not in policy.partition("style-src")[0]
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=[\"']?(https?:)?//", text)


def test_what_comes_from_data_is_escaped(written):
    text = written.read_text(encoding="utf-8")
    assert "<script>window.stolen" not in text
    assert "&lt;/script&gt;&lt;script&gt;window.stolen" in text
    assert text.count("</script>") == 3  # the figures, plotly, the page's own program


# ---------------------------------------------------------------------------------------------------- the page


def test_only_figures_in_view_are_drawn_at_first(browser, written):
    """A page draws a figure as it comes into view: opening it costs the first figures, not all of them."""
    page = browser.open(written)
    page.wait_for("document.querySelector('.plot').dataset.state === 'drawn'")
    drawn = page.run("[...document.querySelectorAll('.plot')].filter(p => p.dataset.state === 'drawn').length")
    figures = page.run("document.querySelectorAll('.plot').length")
    page.close()
    assert drawn <= figures // 2, f"{drawn} of {figures}"


def test_every_figure_is_drawn_and_nothing_complains(page):
    assert draw_all(page) >= 12
    assert page.run("[...document.querySelectorAll('.plot')].every(p => p.querySelector('.main-svg'))")
    sentences = (
        "[...document.querySelectorAll('figure')].map(f => f.querySelector('figcaption').textContent.trim().length)"
    )
    assert min(page.run(sentences)) > 30, "a picture without a sentence"
    assert page.complaints() == []
    assert page.requests() == []


def test_an_attack_in_a_label_stays_text(page):
    draw_all(page)
    assert page.run("window.stolen") is None
    assert page.run("document.title") == f"A report {ATTACK}"
    assert page.run("document.querySelectorAll('img').length") == 0
    assert ATTACK in page.run("document.querySelector('table').textContent")


def test_hovering_over_a_gate_shows_what_was_read(page):
    draw_all(page)
    find = (
        "(() => { const plot = [...document.querySelectorAll('.plot')].find(p => p.data && p.data[0].customdata);"
        "window.watched = plot; plot.scrollIntoView({block: 'start'});"
        "const box = plot.querySelector('.nsewdrag').getBoundingClientRect();"
        "return [box.x, box.y, box.width, box.height] })()"
    )
    x, y, width, height = page.run(find)
    label, labels = "watched.querySelector('.hoverlayer').textContent", [""]
    for share in (0.1, 0.3, 0.5, 0.7, 0.9):
        page.move_mouse(x + share * width, y + height / 2)
        page.wait_for(f"/unit/.test({label}) && {label} !== {json.dumps(labels[-1])}")  # the one of the last place goes
        labels.append(page.run(label))
    labels = labels[1:]
    assert all(re.search(r"step \d+: .*unit \d+: -?\d", label) for label in labels), labels
    shown = " ".join(labels)
    assert any(word in shown for word in ("the", "cat", "<b>sat</b>", "</script>")), shown
    assert page.run("window.stolen") is None


def test_sections_fold(page):
    height = "document.querySelector('details').getBoundingClientRect().height"
    open_height = page.run(height)
    page.run("document.querySelector('summary').click()")
    page.wait_for("!document.querySelector('details').open")
    assert page.run(height) < open_height / 3
    page.run("document.querySelector('summary').click()")
    page.wait_for("document.querySelector('details').open")


def test_equations_are_set_by_the_browser(page):
    rows = page.run("document.querySelectorAll('math mtr').length")
    assert rows == 6  # of the LSTM: four gates, the memory, the output
    tall = page.run("document.querySelector('math msub').getBoundingClientRect().height")
    assert tall > 8
    place = (
        "[...document.querySelectorAll('math mtr')].map(r => r.children[2].children[0].getBoundingClientRect().left)"
    )
    lefts = page.run(place)
    assert max(lefts) - min(lefts) < 3, "equations are not aligned"


@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_phones_and_desks_by_day_and_night(browser, written, width):
    page = browser.open(written, width, 800)
    draw_all(page)
    assert page.run("document.documentElement.scrollWidth") <= width, "the page is wider than the screen"
    widest = page.run("Math.max(...[...document.querySelectorAll('.plot .main-svg')].map(s => s.clientWidth))")
    assert widest <= width
    colours = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    tick = "getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    ground, ink = map(brightness, page.run(colours))
    assert ink < 60 < 240 < ground
    assert abs(brightness(page.run(tick)) - ink) < 10, "figures keep another ground's colour"
    page.go_dark()
    ground, ink = map(brightness, page.run(colours))
    assert ground < 60 < 180 < ink
    page.wait_for(f"{tick} === getComputedStyle(document.body).color")  # night falls while the page is open
    assert page.complaints() == []


def brightness(colour: str) -> float:
    return sum(map(float, re.findall(r"\d+", colour)[:3])) / 3


def test_it_prints_with_every_section_open_and_every_figure_drawn(browser, written):
    page = browser.open(written)
    page.run("document.querySelectorAll('details').forEach(d => d.open = false)")
    printed = page.ask("Page.printToPDF", printBackground=False)["data"]
    assert len(printed) > 100_000
    page.wait_for("[...document.querySelectorAll('.plot')].every(p => p.dataset.state === 'drawn')")
    assert page.run("[...document.querySelectorAll('details')].every(d => d.open)")


# ---------------------------------------------------------------------------------------------------- other subjects


def reservoir() -> rc.EchoStateNetwork:
    return rc.EchoStateNetwork(units=20, random_state=0).fit(torch.linspace(0, 40, 200).sin()[:, None].numpy())


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: rc.registry()["leaky_rnn"](2, 5), (30, 2, 2)),
        (lambda: rc.layer("gru", 2, 5, bidirectional=True), (30, 2, 2)),
        (lambda: nn.LSTM(2, 5, batch_first=True), (3, 30, 2)),
        (reservoir, (200, 1)),
    ],
    ids=["cell", "layer", "torch", "reservoir"],
)
def test_every_kind_of_subject_has_a_report(make, shape, tmp_path):
    text = rc.report(make(), torch.randn(shape), tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Gradient flow" in text
    assert "Not measured" not in text


def test_a_run_reports_on_itself(tmp_path):
    """`report` takes what a callback sees: the model, its history and its settings."""
    data = rc.data.SequenceSet.from_arrays(torch.randn(8, 12, 2), torch.randn(8, 1), "regression")

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.recurrent, self.head = rc.layer("gru", 2, 4), nn.Linear(4, 1)

        def forward(self, x, lengths=None):
            return self.head(self.recurrent(x)[0][-1])

    def at_the_end(event, run):
        if event == "end":
            rc.report(run, data, tmp_path / "run.html")

    rc.train.fit(Last(), data, epochs=2, progress=False, callbacks=[at_the_end])
    text = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "Loss after every epoch" in text
    assert "steps_per_epoch" in text
    assert "Adam" in text


def test_curves_come_from_a_log_too(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"event": "start"}\n{"event": "epoch", "epoch": 0, "loss": 0.625}\n{"event": "end"}\n')
    layer, data = rc.layer("rnn", 2, 3), torch.randn(12, 2, 2)
    for history in (log, str(tmp_path)):
        text = rc.report(layer, data, tmp_path / "r.html", history=history).read_text(encoding="utf-8")
        assert '"y":[0.625]' in text
    log.write_text("no log")
    with pytest.raises(InputError, match=r"history: got .*log\.jsonl, expected a log of rc\.train\.fit"):
        rc.report(layer, data, tmp_path / "r.html", history=log)


def test_what_cannot_be_measured_is_said(tmp_path):
    text = rc.report(rc.layer("rnn", 2, 3), torch.randn(1, 2, 2), tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Not measured: data: got sequences of 1 steps" in text


def test_a_model_without_recurrence_is_refused(tmp_path):
    with pytest.raises(InputError, match="recurrent layer"):
        rc.report(nn.Linear(2, 2), torch.randn(5, 2, 2), tmp_path / "r.html")
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_the_old_report(tmp_path, monkeypatch):
    target = tmp_path / "report.html"
    target.write_text("old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("no room")))
    with pytest.raises(OSError, match="no room"):
        write_page(target, "title", "lead", [Section("one", [Block("text", "text")])])
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_text_blocks_are_escaped_by_the_template():
    text = render(ATTACK, ATTACK, [Section(ATTACK, [Block("text", ATTACK), Block("preformatted", ATTACK)])])
    assert "<script>window.stolen" not in text
    assert "onerror='window" not in text
