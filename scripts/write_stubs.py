"""Write the type stubs of names that exist at run time only: `recurra`, `recurra.cells`, `recurra.named_layers`.

`python scripts/write_stubs.py` writes the files; with `--check` it exits with 1 if one of them is out of date.
"""

import inspect
import re
import sys
from pathlib import Path

import recurra
from recurra import cells, named_layers

PACKAGE = Path(recurra.__file__).parent
NOTE = "Written by scripts/write_stubs.py; do not edit."

PACKAGE_STUB = f'''"""The public names of recurra. {NOTE}"""

from types import ModuleType

{{imports}}

class _Compare(ModuleType):
    """`rc.compare` is a package, and calling it runs `recurra.compare.compare`."""

{{compare}}

compare: _Compare

__version__: str
'''

CELLS_STUB = f'''"""All built-in cells and their registry. {NOTE}"""

from collections.abc import Mapping

{{imports}}

__all__ = [
{{names}}
]

{{functions}}
'''

LAYERS_STUB = f'''"""A layer class for every built-in cell. {NOTE}"""

from collections.abc import Callable, Sequence

import torch

from .cell import Cell
from .layers import Recurrent
from .modifiers import Modifier
'''


def stubs() -> dict[Path, str]:
    """File → contents."""
    return {
        PACKAGE / "__init__.pyi": package_stub(),
        PACKAGE / "cells" / "__init__.pyi": cells_stub(),
        PACKAGE / "named_layers.pyi": layers_stub(),
    }


def package_stub() -> str:
    """Every public name of `recurra`, imported from where it is defined."""
    inside = recurra.compare.__all__
    functions = [name for name in inside if inspect.isfunction(getattr(recurra.compare, name))]
    imports = {(place, name): name for name, place in recurra._PLACE_OF.items() if name != "compare"}
    imports |= {("compare", name): f"_{name}" for name in functions}
    body = _import_lines({("compare", name): name for name in inside if name not in functions})
    body += ["", *(f"{name} = staticmethod(_{name})" for name in functions), "__call__ = compare"]
    return PACKAGE_STUB.format(
        imports="\n".join(_import_lines(imports | {("named_layers", "*"): ""})),
        compare="\n".join(f"    {line}" if line else "" for line in body),
    )


def _import_lines(aliases: dict[tuple[str, str], str]) -> list[str]:
    """One import for each `(module, name): alias`."""
    ends = {entry: f"{entry[1]} as {alias}" if alias else "*  # noqa: F403" for entry, alias in aliases.items()}
    return [
        f"from .{entry[0]} import {ends[entry]}"
        for entry in sorted(ends, key=lambda entry: (entry[0], _rank(entry[1])[0], entry[1].lower()))
    ]


def _rank(name: str) -> tuple[int, str]:
    """The order of ruff: constants, classes, functions."""
    return 0 if name.isupper() else 1 if name[0].isupper() else 2, name


def cells_stub() -> str:
    """Every cell class from its family's file, and the functions of the package."""
    families = {name: getattr(cells, name).__module__.rpartition(".")[2] for name in cells.__all__}
    imports = {(".cell", "Cell"): "Cell", (".cell", "register"): "register", ("surrogates", "spike"): "spike"}
    imports[("rssm", "RSSM")] = "RSSM"
    imports |= {(family, name): name for name, family in families.items()}
    functions = {n: f for n, f in vars(cells).items() if inspect.isfunction(f) and f.__module__ == cells.__name__}
    return CELLS_STUB.format(
        imports="\n".join(_import_lines(imports)),
        names="\n".join(f'    "{name}",' for name in sorted(cells.__all__, key=_rank)),
        functions="\n".join(f"def {n}{_plain(inspect.signature(f))}: ..." for n, f in sorted(functions.items())),
    )


def layers_stub() -> str:
    """One class for every cell, with the signature its layer has at run time."""
    return "\n".join([LAYERS_STUB, *map(class_stub, cells.__all__)])


def class_stub(name: str) -> str:
    parameters = list(named_layers.layer_signature(getattr(cells, name)).parameters.values())
    first = next(k for k, p in enumerate(parameters) if p.kind is p.KEYWORD_ONLY)
    texts = [*map(parameter_stub, parameters[:first]), "*", *map(parameter_stub, parameters[first:])]
    lines = "".join(f"        {text},\n" for text in texts)
    summary = (getattr(cells, name).__doc__ or "").partition("\n")[0]
    return f'class {name}(Recurrent):\n    """{summary}"""\n\n    def __init__(\n{lines}    ) -> None: ...\n'


def parameter_stub(parameter: inspect.Parameter) -> str:
    """`name: annotation = default` in the names that the stub imports."""
    return _plain(parameter).replace("['Cell']", "[Cell]").replace("'", '"')


def _plain(signature: object) -> str:
    return re.sub(r"\b(?:collections\.abc|recurra\.modifiers|recurra\.cell)\.", "", str(signature))


def main() -> int:
    check = "--check" in sys.argv
    changed = {path: text for path, text in stubs().items() if not path.exists() or path.read_text() != text}
    for path, text in changed.items():
        print(f"{path}: {'out of date' if check else 'written'}")
        if not check:
            path.write_text(text)
    return int(check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
