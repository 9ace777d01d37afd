"""All built-in cells, one family a file, and the registry that finds a cell class by its name.

Importing this package imports every file in it: a new cell is registered as soon as its class is written.
"""

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType

from ..cell import REGISTRY, Cell
from ..cell import register as register
from ..errors import UnknownNameError
from .rssm import RSSM as RSSM
from .surrogates import spike as spike

for _family in iter_modules(__path__):
    import_module(f"{__name__}.{_family.name}")


def registry() -> Mapping[str, type[Cell]]:
    """All registered cells, the user's own included.

    **Returns** a read-only mapping: name → class. A class registered under two names stands there twice.

    **Example**

        >>> import recurra as rc
        >>> rc.registry()["gru"].__name__
        'GRU'
    """
    return MappingProxyType(REGISTRY)


def canonical_names() -> list[str]:
    """The first registered name of every cell; the others are aliases."""
    first: dict[type[Cell], str] = {}
    for name, cell_class in REGISTRY.items():
        first.setdefault(cell_class, name)
    return list(first.values())


def find(name: str) -> type[Cell]:
    """The class registered under `name`; an unknown name raises an error that proposes the nearest one."""
    if isinstance(name, str) and name in REGISTRY:
        return REGISTRY[name]
    raise UnknownNameError("cell", repr(name), _NOT_CELLS.get(str(name).lower(), REGISTRY))


_NOT_CELLS = dict.fromkeys(
    ("brnn", "birnn", "bilstm", "bigru", *(f"bidirectional_{cell}" for cell in ("rnn", "lstm", "gru"))),
    "the name of a cell; bidirectional=True makes a BRNN of any cell",
)
_NOT_CELLS |= {
    name: f"the name of a cell; {network} is this network"
    for names, network in (
        (("esn", "echo_state", "echo_state_network"), "rc.EchoStateNetwork"),
        (("narx",), "rc.NARX"),
        (("tdnn", "time_delay"), "rc.TDNN"),
        (("hierarchical", "hierarchical_rnn"), "rc.HierarchicalRNN"),
        (("elmo",), "rc.ELMo"),
        (("seq2seq", "encoder_decoder"), "rc.models.EncoderDecoder"),
    )
    for name in names
}


_classes = {cell_class.__name__: cell_class for cell_class in REGISTRY.values()}
globals().update(_classes)
__all__ = sorted(_classes)  # pyrefly: ignore
