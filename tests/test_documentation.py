"""The pages in docs/: every Python block runs, every session prints what the page says, every command exists."""

import contextlib
import doctest
import importlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import typer

import recurra as rc
from recurra.cells import canonical_names
from recurra.cli.app import app
from recurra.guide.entries import NAMES
from recurra.inspect.mathml import mathml
from tests.inspect.browser import Browser, Page

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    p for p in (ROOT / "docs").rglob("*.md") if not {"_build", "generated", "adr", "reading.md"} & set(p.parts)
)
SURVEY = ("survey/index", "survey/learning", "survey/gates", "generated/evidence/index")
GALLERY = ("generated/gallery/index", "generated/gallery/gradient_flow", "generated/gallery/diagrams")
RUNNABLE = [p for p in PAGES if re.search(r"^```(python|pycon)$", p.read_text(encoding="utf-8"), re.MULTILINE)]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT / "docs"))


def programs(page: Path) -> list[tuple[str, str]]:
    """Python blocks, each with the block of text that follows it: what it prints."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", text, re.MULTILINE | re.DOTALL)


def file_of(block: str) -> str | None:
    """The name of a block that is a file to save: its first line says so."""
    named = re.match(r"# (\w+\.py)\n", block)
    return named.group(1) if named else None


FRACTION = re.compile(r"\d+\.\d+(?:e[+-]?\d+)?")
NEARLY = 0.03  # of a number with a fraction: processors round the sums of a step differently


def is_same(expected: str, printed: str) -> bool:
    """Whether words and whole numbers agree, fractions nearly; `...` stands for anything. Columns may move."""
    words = [" ".join(FRACTION.sub("0.0", text).split()) for text in (expected, printed)]
    if not doctest.OutputChecker().check_output(*words, doctest.ELLIPSIS):
        return False
    numbers = [list(map(float, FRACTION.findall(text))) for text in (expected, printed)]
    return "..." in expected or numbers[1] == pytest.approx(numbers[0], rel=NEARLY, abs=1e-30)


def prints(block: str, where: str, names: dict, expected: str) -> None:
    """Run a block and compare what it prints; `...` stands for anything."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, where, "exec"), names)
    assert bool(printed.getvalue()) == bool(expected), f"{where} prints {printed.getvalue() or 'nothing'}"
    same = is_same(expected, printed.getvalue())
    assert same, f"{where} prints\n{printed.getvalue()}"


@pytest.mark.filterwarnings("ignore::recurra.EngineWarning")  # a page shows what leaves the fast path
@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(page: Path, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with rc.set_backend("auto"):  # pages print what the engine does
        run_page(page)


def run_page(page: Path) -> None:
    names = {"__name__": "__main__"}
    if page.parent.name == "survey" and page.name != "index.md":  # chapters use the names of their first page
        (block,) = blocks(page.with_name("index.md"), "python")
        exec(block, names)
    for number, (block, expected) in enumerate(programs(page)):
        if not file_of(block):
            prints(block, f"{page.name}, block {number}", names, expected)
    session = doctest.DocTestParser().get_doctest("\n".join(blocks(page, "pycon")), {}, page.name, page.name, 0)
    printed: list[str] = []
    failed = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(session, out=printed.append).failed
    assert not failed, "".join(printed)


def test_a_block_that_prints_something_else_is_noticed():
    prints("print(1.234)", "block", {}, "1.2...\n")
    for block, expected in (("print(1)", "2\n"), ("print(1)", ""), ("x = 1", "1\n")):
        with pytest.raises(AssertionError, match="block prints"):
            prints(block, "block", {}, expected)


@pytest.mark.slow
def test_the_program_that_compares_cells_runs(tmp_path: Path):
    (program,) = [block for block, _ in programs(ROOT / "docs" / "howto" / "compare.md") if file_of(block)]
    (tmp_path / "compare_cells.py").write_text(program, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "compare_cells.py"]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    *rows, last = run.stdout.splitlines()
    assert {"rnn", "gru"} <= {row.split()[0] for row in rows}
    assert (tmp_path / last.removeprefix("written: ")).is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train_ddp.py", "train_fsdp.py"])
def test_a_program_for_several_processes_runs_in_two(name: str, tmp_path: Path):
    page = ROOT / "docs" / "howto" / "compile_amp_ddp.md"
    (program,) = [block for block, _ in programs(page) if file_of(block) == name]
    (tmp_path / name).write_text(program, encoding="utf-8")
    (command,) = [block for block in blocks(page, "sh") if name in block]
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", *shlex.split(command)[1:]]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    # torch's gloo threads sometimes end with an abort at exit, with nn.LSTM too; the losses are all printed before.
    assert run.returncode == 0 or "terminate called without an active exception" in run.stderr, run.stderr
    losses = [float(line.rpartition(" ")[2]) for line in run.stdout.splitlines() if line.startswith("step")]
    assert len(losses) == 5
    assert losses[-1] < losses[0]


def test_commands_of_the_pages_and_their_options_exist():
    commands = typer.main.get_command(app).commands
    pages = [*PAGES, ROOT / "README.md"]
    lines = [line for page in pages for block in blocks(page, "sh") for line in block.splitlines()]
    split = [words for line in lines if (words := shlex.split(line, comments=True)) and words[0] != "pip"]
    called = [words[words.index("recurra") + 1 :] for words in split if "recurra" in words]
    assert len(called) > 20
    for command, *words in called:
        known = {spelling for option in commands[command].params for spelling in option.opts}
        assert not [word for word in words if word.startswith("-") and word not in known], (command, words)


def test_every_page_is_reached_from_the_index():
    listed = {
        (page.parent / entry).resolve()
        for page in PAGES
        for block in blocks(page, r"\{toctree\}")
        for entry in re.findall(r"^(?!:)(?:.*<(.+)>|(\S+))$", block, re.MULTILINE)
        for entry in [next(filter(None, entry))]
    }
    for page in PAGES:
        assert page.name == "index.md" or page.with_suffix("").resolve() in listed, name_of(page)


CHAPTERS = ("networks", "learning", "vanishing", "gates", "directions")


def test_the_speed_of_a_scan_is_that_of_its_table():
    told = re.findall(r"scan\.md\) reaches (\d+) %", (ROOT / "docs" / "under_the_hood.md").read_text(encoding="utf-8"))
    table = (ROOT / "benchmarks" / "results" / "scan.md").read_text(encoding="utf-8")
    assert told == re.findall(r"(\d+)% of a copy's", table)


def test_the_chapters_of_the_survey_have_every_section_once_and_in_order():
    pages = [ROOT / "docs" / "survey" / f"{name}.md" for name in CHAPTERS]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    sections = re.findall(r"^```\{survey\} (\S+)\n```", text, re.MULTILINE)
    assert sections == [entry.where for entry in rc.survey() if entry.kind == "section"]
    assert len(re.findall(r"^```\{drawn\}", text, re.MULTILINE)) >= 10


def test_the_names_of_the_survey_are_those_of_its_first_page():
    (block,) = blocks(ROOT / "docs" / "survey" / "index.md", "python")
    for name, value in NAMES.items():
        assert re.search(rf"^{name} = {re.escape(value)}(  # .*)?$", block, re.MULTILINE), name


def test_every_equation_of_the_survey_is_set(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    equations = importlib.import_module("generate.survey_equations").EQUATIONS
    assert list(equations) == [e.where.removeprefix("eq. ") for e in rc.survey() if e.kind == "equation"]
    for line in (line for lines in equations.values() for line in lines):
        assert ElementTree.fromstring(mathml(line)).tag == "math"


def test_lists_of_calls_have_a_line_for_each_and_long_equations_room(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    directives = importlib.import_module("generate.survey_directives")
    assert directives.parts_of(["[rc.f(1, [2]), rc.g]", "rc.h(x)"]) == ["rc.f(1, [2])", "rc.g", "rc.h(x)"]
    lengths = {n: max(map(directives.drawn_length, lines)) for n, lines in directives.EQUATIONS.items()}
    assert {n for n, length in lengths.items() if length > directives.BESIDE} == {"18–19", "28", "40–42", "50–51"}


def test_every_script_of_the_gallery_is_short_and_has_a_small_picture():
    scripts = sorted((ROOT / "docs" / "gallery").glob("*.py"))
    assert len(scripts) >= 16
    assert {s.stem for s in scripts} == {p.stem for p in (ROOT / "docs" / "gallery" / "thumbnails").glob("*.png")}
    for script in scripts:
        assert 15 <= len(script.read_text(encoding="utf-8").splitlines()) <= 65, script.name


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. A warning, such as a link that leads nowhere, fails the build."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "docs", str(folder)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return folder


@pytest.mark.slow
def test_every_cell_has_a_page_and_no_page_loads_anything_from_outside(site: Path):
    cells = site / "generated" / "cells"
    built_in = [name for name in canonical_names() if rc.registry()[name].__module__.startswith("recurra.cells.")]
    missing = [name for name in built_in if not (cells / f"{name}.html").is_file()]
    assert built_in
    assert not missing
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|link|img|iframe)[^>]*?(?:src|href)="((?:https?:)?//[^"]+)"', page.read_text())
        assert not loaded, f"{page.name} loads {loaded[0]}"


@pytest.mark.slow
def test_examples_are_set_as_code_and_evidence_begins_with_where_recurra_is_worse(site: Path):
    for page in (site / "generated").rglob("*.html"):
        assert "<blockquote" not in page.read_text(encoding="utf-8"), f"{page.name}: an example became a quotation"
    evidence = (site / "generated" / "evidence" / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<h2>([^<]+)", evidence)[0] == "Where recurra is worse"
    for result in (ROOT / "benchmarks" / "results").glob("*.md"):
        assert f'href="{result.stem}.html"' in evidence, f"{result.name} is not listed"


@pytest.mark.slow
def test_links_to_elsewhere_are_listed(site: Path):
    listed = [line.split("\t") for line in (site / "outside_links.txt").read_text(encoding="utf-8").splitlines()]
    assert listed
    assert all(
        link.startswith("http") and all((site / p).is_file() for p in pages.split(", ")) for link, pages in listed
    )


# A key on the head of the column of times on a CPU; then that column, without cells that have no time.
SORTED_BY_TIME = """(() => {
  const heads = [...document.querySelectorAll("table.sortable th")];
  const column = heads.findIndex(head => head.textContent.startsWith("CPU"));
  heads[column].dispatchEvent(new KeyboardEvent("keydown", { key: " ", bubbles: true }));
  const rows = [...document.querySelectorAll("table.sortable tbody tr")];
  return rows.map(row => row.cells[column].textContent.trim()).filter(text => text);
})()"""


@pytest.mark.slow
def test_search_and_sorting_work_in_a_folder_without_a_server(site: Path):
    browser = Browser()
    try:
        page = browser.open(site / "search.html", 1280, 900)
        page.ask("Page.navigate", url=(site / "search.html").resolve().as_uri() + "?q=zoneout")
        page.wait_for("document.querySelectorAll('#search-results li a').length > 3")
        assert "Zoneout" in page.run("[...document.querySelectorAll('#search-results li a')].map(e => e.textContent)")
        assert page.complaints() == []
        page = browser.open(site / "generated" / "cells" / "index.html", 1280, 900)
        times = page.run(SORTED_BY_TIME)
        assert times == sorted(times, key=float)
        assert len(times) > 100
    finally:
        browser.close()


def check_pictures(page: Page, where: str) -> None:
    """Figures fit their column; drawings have the colour of the text, whatever the theme of the system."""
    page.wait_for("[...document.querySelectorAll('.plotly-graph-div')].every(e => e.scrollWidth <= e.clientWidth)")
    nameless = "[...document.querySelectorAll('.plotly-graph-div')].filter(e => !e.ariaLabel).length"
    assert page.run(nameless) == 0, where
    if page.run("innerWidth") > 1000:  # on a phone long equations are scrolled
        cut = "[...document.querySelectorAll('.survey-math')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.id)"
        assert page.run(cut) == [], where
    for system in ("dark", "light"):
        page.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": system}])
        colours = page.run(
            "[...document.querySelectorAll('.rc-diagram')].map(e => getComputedStyle(e).color)"
            ".concat(getComputedStyle(document.body).color)"
        )
        assert len(set(colours)) == 1, f"{where}, system {system}"
    # A page hears of the change with its next frame, and changes its theme.
    page.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


@pytest.mark.slow
def test_pages_fit_phones_and_desks_by_day_and_night(site: Path):
    browser = Browser()
    try:
        for name in ("index", "tour", "howto/own_cell", "generated/cells/lstm", *SURVEY, *GALLERY):
            for width in (390, 1280):
                page = browser.open(site / f"{name}.html", width, 900)
                assert page.run("document.documentElement.scrollWidth") <= width, f"{name} is wider than {width}"
                for mode in ("light", "dark"):
                    page.run(f"document.documentElement.dataset.theme = {mode!r}")
                    colour = page.run("getComputedStyle(document.body).backgroundColor")
                    assert (sum(map(float, re.findall(r"[0-9.]+", colour)[:3])) > 380) == (mode == "light"), name
                    check_pictures(page, f"{name}, {width}, {mode}")
                assert page.complaints() == []
                assert page.requests() == []
                page.close()
    finally:
        browser.close()
