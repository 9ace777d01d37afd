"""Every model once more, in NumPy, for one sequence and with a plain loop: an answer that owes the library nothing.

Each function is `f(w, x, *states, **options) -> (outputs, final states)`: `w` holds the cell's own parameters and
buffers by name, `x` is (T, d), states are vectors (a delayed one a matrix, newest row first). Matrices multiply
columns, as in the survey: `W @ h + U @ x + b`.
"""

import importlib
import pkgutil

_families = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
TRANSCRIPTIONS = {
    name: function for family in _families for name, function in getattr(family, "TRANSCRIPTIONS", {}).items()
}

__all__ = ["TRANSCRIPTIONS"]
