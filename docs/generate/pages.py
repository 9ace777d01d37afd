"""Writes the generated pages into `docs/generated` before Sphinx reads the sources."""

from pathlib import Path

from sphinx.application import Sphinx

from . import cell_pages, command_page, evidence_page, part_pages, reference_pages, repository_pages, survey_pages


def write_all(source: Path) -> None:
    """Every generated page, below `source/generated`. A file whose text is the same stays as it is."""
    makers = (
        *(cell_pages, part_pages, survey_pages, reference_pages),
        *(command_page, evidence_page, repository_pages),
    )
    pages = {name: text for maker in makers for name, text in maker.pages().items()}
    folder = source / "generated"
    for name, text in pages.items():
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:  # Sphinx reads a page again if it is newer
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for path in folder.rglob("*.md"):
        if path.relative_to(folder).as_posix() not in pages:
            path.unlink()


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", lambda app: write_all(Path(app.srcdir)))
    return {"parallel_read_safe": True}
