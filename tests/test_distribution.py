"""What `python -m build` makes: a wheel and an sdist that install in a clean environment and run the tour."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from hatch_build import portable

TOUR = """
import doctest, pathlib, re, sys
import recurra
assert pathlib.Path(recurra.__file__).is_relative_to(sys.prefix), recurra.__file__
text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
blocks = re.findall(r"^```pycon\\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
tour = doctest.DocTestParser().get_doctest("\\n".join(blocks), {}, "tour", None, 0)
result = doctest.DocTestRunner().run(tour)
print(result.attempted, "examples")
sys.exit(result.failed or not result.attempted)
"""


def run(*command: object, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"OMP_NUM_THREADS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_wheel_and_sdist_install_and_run_the_tour(repository_root: Path, tmp_path: Path):
    """The sdist is built first and the wheel from it, so what the sdist lacks is missing in the wheel."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, repository_root, cwd=tmp_path)
    (wheel,), (sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "docs/tour.md", "examples/README.md", "benchmarks/results/peers.svg"} <= names
    assert not [name for name in names if name.startswith(("docs/_build", "docs/generated"))]
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(next(n for n in archive.namelist() if n.endswith("METADATA"))).decode()
    assert "Description-Content-Type: text/markdown" in metadata
    assert not re.findall(r"\]\((?!https?:|#)", metadata), "a link that a package index cannot follow"

    run(sys.executable, "-m", "venv", "--without-pip", "env", cwd=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    install = ("-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", "--ignore-installed")
    run(sys.executable, *install, wheel, cwd=tmp_path)
    # torch and the other dependencies come from here; only recurra must come from the wheel.
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip()
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    (tmp_path / "tour.py").write_text(TOUR, encoding="utf-8")
    assert "examples" in run(python, "tour.py", repository_root / "docs" / "tour.md", cwd=tmp_path)


def test_the_readme_of_a_package_index_has_no_links_into_the_repository():
    text = "![A figure](docs/a.svg)\n\nThe [tour](docs/tour.md), and [torch](https://pytorch.org)."
    assert portable(text, None) == "The tour, and [torch](https://pytorch.org)."
    assert portable(text, "https://example.org/r") == (
        "![A figure](https://example.org/r/raw/main/docs/a.svg)\n\n"
        "The [tour](https://example.org/r/blob/main/docs/tour.md), and [torch](https://pytorch.org)."
    )
