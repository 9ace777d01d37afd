"""What tests show about a cell and its relatives: their names are the sentences."""

import ast
import functools
from pathlib import Path

SHORT = {"gru", "lstm", "rnn", "mgu", "mgu3", "mut2", "mut3", "scrn", "irnn", "rin", "lem", "janet", "ugrnn"}
TESTS = Path(__file__).parents[2] / "tests" / "cells"


def section(name: str) -> str:
    """The identities and laws in which a cell takes part."""
    sentences = _known().get(name, [])
    listed = "\n".join(f"- {sentence}" for sentence in sentences)
    return f"## Identities and laws\n\nEach is a test of the library.\n\n{listed}" if listed else ""


@functools.cache
def _known() -> dict[str, list[str]]:
    """Cell → sentences."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.glob("test_identities_*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        shared = {
            target.id: _cells(node.value)
            for node in module.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in module.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                names = _cells(node).union(*(shared[name] for name in used if name in shared))
                for name in names:
                    found.setdefault(name, []).append(_sentence(node.name))
    return found


def _cells(tree: ast.AST) -> set[str]:
    """The names in calls such as `Case("lstm")` and `rc.layer("lstm", …)`."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    firsts = [call.args[0] for call in calls if ast.unparse(call.func) in ("Case", "fresh", "rc.layer", "cell_of")]
    return {first.value for first in firsts if isinstance(first, ast.Constant) and isinstance(first.value, str)}


def _sentence(test: str) -> str:
    words = " ".join(w.upper() if w in SHORT else w for w in test.removeprefix("test_").split("_"))
    return f"{words[0].upper()}{words[1:]}."
