"""Sphinx configuration: Markdown pages, generated pages, equations as MathML, nothing from outside."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from generate import gallery  # noqa: E402

project = "recurra"
copyright = "the authors of recurra, Apache-2.0"
extensions = ["myst_parser", "sphinx_gallery.gen_gallery", "generate.math_renderer"]
extensions += ["generate.pages", "generate.gallery", "generate.outside_links", "generate.survey_directives"]
exclude_patterns = [
    "_build",
    "generate",
    "gallery",
    "adr",
    "reading.md",
]  # the last two are copied, with links that stay here
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
sphinx_gallery_conf = gallery.SETTINGS
nitpicky = True
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "attrs_inline", "attrs_block"]
myst_heading_anchors = 4
html_math_renderer = "recurra_mathml"
html_theme = "pydata_sphinx_theme"
html_title = "recurra"
html_static_path = gallery.static_files()
html_css_files = ["site.css"]
html_js_files = ["sortable.js", "figures.js"]
html_copy_source = False
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system
html_show_sphinx = False
html_show_search_summary = False  # a summary fetches its page, which browsers forbid where the site is a folder
html_theme_options = {
    "navbar_end": ["theme-switcher"],
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "header_links_before_dropdown": 7,
}
# A page without pages below it needs no list of them at its side.
LEAVES = ("index", "tour", "which_cell", "under_the_hood", "glossary", "errors", "generated/examples")
html_sidebars = {name: [] for name in LEAVES}
highlight_language = "python"
