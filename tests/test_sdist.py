"""The source distribution contains what its tests import."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path


def imported(file: Path) -> Iterator[str]:
    """The top-level names that a file imports."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0]


def test_folders_that_tests_import_are_included(repository_root: Path):
    settings = tomllib.loads((repository_root / "pyproject.toml").read_text(encoding="utf-8"))
    included = {pattern.split("/")[1] for pattern in settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]}
    files = [*(repository_root / "tests").rglob("*.py"), *(repository_root / "benchmarks").rglob("*.py")]
    names = {name for file in files for name in imported(file) if (repository_root / name).is_dir()}
    assert {"recurra", "benchmarks"} <= names
    assert names <= included
    assert all((repository_root / name).exists() for name in included)
