"""The pages in docs/: every Python block runs, every session prints what the page says, every command exists."""

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import recurra as rc

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    p for p in (ROOT / "docs").rglob("*.md") if not {"_build", "generated", "adr", "reading.md"} & set(p.parts)
)
RUNNABLE = [p for p in PAGES if re.search(r"^```(python|pycon)$", p.read_text(encoding="utf-8"), re.MULTILINE)]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT / "docs"))


@pytest.mark.filterwarnings("ignore::recurra.EngineWarning")  # a page shows what leaves the fast path
@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for number, block in enumerate(blocks(page, "python")):
        exec(compile(block, f"{page.name}, block {number}", "exec"), names)
    session = doctest.DocTestParser().get_doctest("\n".join(blocks(page, "pycon")), {}, page.name, page.name, 0)
    printed: list[str] = []
    failed = doctest.DocTestRunner().run(session, out=printed.append).failed
    assert not failed, "".join(printed)


def test_commands_of_the_pages_exist():
    commands = {path.stem for path in (ROOT / "recurra" / "cli").glob("*.py")}
    lines = [line for page in PAGES for block in blocks(page, "sh") for line in block.splitlines()]
    called = [words for line in lines if (words := shlex.split(line, comments=True))]
    assert called
    for words in called:
        if words[0] == "recurra":
            assert words[1] in commands, words


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


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing_from_outside(tmp_path: Path):
    pytest.importorskip("sphinx")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "docs", str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    made = list(tmp_path.rglob("*.html"))
    cells = {name for name in rc.registry() if (tmp_path / "generated" / "cells" / f"{name}.html").is_file()}
    assert {kind for name, kind in rc.registry().items() if name in cells} >= set(vars(rc.cells).values()) & set(
        rc.registry().values()
    )
    for page in made:
        loaded = re.findall(r'<(?:script|link|img|iframe)[^>]*?(?:src|href)="((?:https?:)?//[^"]+)"', page.read_text())
        assert not loaded, f"{page.name} loads {loaded[0]}"
