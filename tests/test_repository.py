"""The documents at the root: the README's code runs, its commands exist, links lead to files, versions agree."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

import recurra as rc

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [page for page in ROOT.glob("docs/**/*.md") if not {"generated", "_build"} & set(page.parts)]
PAGES = [*ROOT.glob("*.md"), *DOCUMENTS, ROOT / "recurra" / "README.md"]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", range(len(blocks(ROOT / "README.md", "python"))))
def test_python_of_the_readme_runs(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(blocks(ROOT / "README.md", "python")[number], {"__name__": "__main__"})


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_readme_and_the_front_page_count_the_cells(page: str):
    (count,) = re.findall(r"(\d+) cells are built in", (ROOT / page).read_text(encoding="utf-8"))
    built_in = {kind for kind in rc.registry().values() if kind.__module__.startswith("recurra.cells.")}
    assert int(count) == len(built_in)


def test_commands_of_the_documents_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = {path.stem for path in (ROOT / "recurra" / "cli").glob("*.py")}
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "RELEASING.md"):
        lines = [line for block in blocks(page, "(?:sh)?") for line in block.splitlines()]
        lines += re.findall(r"`((?:make|recurra|python) [^`]*)`", page.read_text(encoding="utf-8"))
        for line in lines:
            match shlex.split(line, comments=True):
                case ["make", target, *_]:
                    assert target in targets, line
                case ["recurra", command, *_] if not command.startswith("-"):
                    assert command in commands, line
                case ["python", script, *_] if script.endswith(".py"):
                    assert (ROOT / script).is_file(), line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:")) and "generated/" not in target:  # those, the build checks
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_decision_is_listed():
    records = sorted(path.name for path in (ROOT / "docs" / "adr").glob("0*.md"))
    listed = re.findall(r"\((0\d+-[^)]+)\)", (ROOT / "docs" / "adr" / "README.md").read_text())
    assert listed == records
    for name in records:
        headings = re.findall(r"^## (.*)", (ROOT / "docs" / "adr" / name).read_text(), re.MULTILINE)
        assert headings == ["Context", "Decision", "Consequences", "What would change our mind"], name


def test_the_citation_names_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == rc.__version__
    assert citation["license"] == project()["license"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation)  # what the schema requires


def test_continuous_integration_covers_every_supported_python():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    supported = [line.rsplit(" ", 1)[1] for line in project()["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert jobs["test"]["strategy"]["matrix"]["python"] == supported
    assert jobs["test-slow"]["steps"][1]["with"]["python-version"] in supported
    [hook] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert hook["entry"] == "make lint"


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
