"""Settings of sphinx-gallery: figures of plotly as they are, one copy of its script for the site, no picture in PNG.

A script's outputs are cached by its content in `docs/generated/gallery`. The small pictures of the overview are the
files of `docs/gallery/thumbnails`, which `docs/thumbnails.py` makes from a built site.
"""

import shutil
from pathlib import Path
from typing import Any

import plotly
import plotly.io
from plotly.io.base_renderers import MimetypeRenderer
from sphinx.application import Sphinx

HERE = Path(__file__).parents[1]
FOLDER = "generated/gallery"
PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"


class PageFigure(MimetypeRenderer):
    """A figure as a part of a page of the gallery."""

    def to_mimebundle(self, fig_dict: dict[str, Any]) -> dict[str, str]:
        options = {"responsive": True, "displaylogo": False}
        script = "../../_static/plotly.min.js"
        text = plotly.io.to_html(fig_dict, options, include_plotlyjs=script, full_html=False)  # pyrefly: ignore
        return {"text/html": text}


def begin(conf: dict[str, Any], script: str) -> None:
    """Before every script: figures become parts of the page; random numbers start anew."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    plotly.io.renderers["page"] = PageFigure()
    plotly.io.renderers.default = "page"


def scrape(block: Any, block_vars: dict[str, Any], conf: dict[str, Any]) -> str:
    """Show the page that a script has written, if it is called `page`."""
    source = Path(block_vars["src_file"])
    page = block_vars["example_globals"].pop("page", None)
    if not isinstance(page, Path):
        return ""
    static = HERE / "generated" / "static"
    static.mkdir(parents=True, exist_ok=True)
    shutil.move(source.parent / page, static / page.name)
    frame = f'<iframe class="page" src="../../_static/{page.name}" title="{source.stem}"></iframe>'
    return f"\n.. raw:: html\n\n    {frame}\n\n"


def copy_thumbnails(app: Sphinx) -> None:
    """The small pictures take the place of sphinx-gallery's own, which it makes of PNG files alone."""
    for picture in (HERE / "gallery" / "thumbnails").glob("*.png"):
        shutil.copyfile(picture, HERE / FOLDER / "images" / "thumb" / f"sphx_glr_{picture.stem}_thumb.png")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", copy_thumbnails, priority=900)  # after the scripts have run
    return {"parallel_read_safe": True}


def static_files() -> list[str]:
    """Folders that the site copies: plotly's script, and pages that scripts have written."""
    folder = HERE / "generated" / "static"
    folder.mkdir(parents=True, exist_ok=True)
    if not (target := folder / PLOTLY.name).is_file() or target.stat().st_size != PLOTLY.stat().st_size:
        shutil.copyfile(PLOTLY, target)
    return ["_static", "generated/static"]


SETTINGS: dict[str, Any] = {
    "examples_dirs": "gallery",
    "gallery_dirs": FOLDER,
    "filename_pattern": r"\.py",
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": (f"{__name__}.scrape",),
    "reset_modules": (f"{__name__}.begin",),
    "capture_repr": ("_repr_html_",),
    "remove_config_comments": True,
    "show_memory": False,
    "min_reported_time": 1e9,
    "download_all_examples": False,
    "plot_gallery": "True",
    "abort_on_example_error": True,
    "write_computation_times": False,
}
