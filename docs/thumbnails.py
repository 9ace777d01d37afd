"""Make the small pictures of the gallery from a built site: the first figure of every page, as Chromium draws it.

python docs/thumbnails.py [NAME …]      # after `make docs`; writes docs/gallery/thumbnails
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).parent
PAGES = DOCS / "_build" / "generated" / "gallery"
FIGURE = re.compile(r'<div class="output_subarea.*?>\n(.*?)<br />', re.DOTALL)
FRAME = re.compile(r'<iframe class="page" src="([^"]+)"')
SIZE = (640, 448)
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))


def page_of(name: str) -> str:
    """A page that holds the first figure alone, or the address of the page that the script has written."""
    text = (PAGES / f"{name}.html").read_text(encoding="utf-8")
    if frame := FRAME.search(text):
        return (PAGES / frame[1]).resolve().as_uri()
    found = FIGURE.search(text)
    assert found, f"{name} shows no figure"
    script = (PAGES / "../../_static/plotly.min.js").resolve().as_uri()
    body = found[1].replace("../../_static/plotly.min.js", script)
    style = "body{margin:8px;background:#fff;overflow:hidden} .modebar{display:none}"
    head = f"<!doctype html><meta charset=utf-8><style>{style}</style>"
    path = Path(tempfile.mkdtemp()) / "figure.html"
    path.write_text(head + body, encoding="utf-8")
    return path.as_uri()


def main() -> None:
    folder = DOCS / "gallery" / "thumbnails"
    folder.mkdir(exist_ok=True)
    for name in sys.argv[1:] or sorted(path.stem for path in (DOCS / "gallery").glob("*.py")):
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=8000"]
        size, target = f"--window-size={SIZE[0]},{SIZE[1]}", f"--screenshot={folder / name}.png"
        subprocess.run([CHROMIUM, *flags, size, target, page_of(name)], check=True, capture_output=True, timeout=120)
        print(folder / f"{name}.png")


if __name__ == "__main__":
    main()
