"""Lists every link of the built site that leads elsewhere, with the pages that have it: `outside_links.txt`."""

import re
from pathlib import Path

from sphinx.application import Sphinx


def write_list(app: Sphinx, exception: Exception | None) -> None:
    """One line a link, after the site is built; following them needs a network, so the build does not."""
    if exception is not None or app.builder.name != "html":
        return
    site, found = Path(app.outdir), {}
    for page in sorted(site.rglob("*.html")):
        if "_static" not in page.parts:
            for link in re.findall(r'<a [^>]*href="(https?://[^"]+)"', page.read_text(encoding="utf-8")):
                found.setdefault(link, set()).add(page.relative_to(site).as_posix())
    lines = [f"{link}\t{', '.join(sorted(pages))}" for link, pages in sorted(found.items())]
    (site / "outside_links.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", write_list)
    return {"parallel_read_safe": True}
