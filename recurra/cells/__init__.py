"""The zoo: every cell of the survey and its descendants, one family a file.

Importing it imports every file in this folder, so a new cell is known as soon as its class is written and registered.
"""

from importlib import import_module
from pkgutil import iter_modules

from ..cell import registry

for _family in iter_modules(__path__):
    import_module(f"{__name__}.{_family.name}")

_classes = {cell_class.__name__: cell_class for cell_class in registry().values()}
globals().update(_classes)
__all__ = sorted(_classes)  # pyrefly: ignore
