"""The user's choice of engine, and the warning that something runs slower than it could."""

import warnings

from ..errors import UnknownNameError

BACKENDS = ("auto", "reference", "compiled")


class EngineWarning(UserWarning):
    """A layer runs on a slower engine than it could; the message says why. Issued once for each message.

    **Example**, which turns the warning into an error:

        >>> import warnings
        >>> import torch, recurra as rc
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", rc.EngineWarning)
        ...     y, state = rc.LSTM(3, 4)(torch.zeros(5, 2, 3))
    """


_setting = {"backend": "auto"}


def backend() -> str:
    """The backend in force: "auto", "reference" or "compiled"."""
    return _setting["backend"]


class set_backend:
    """Choose the engine that runs layers, for the rest of the process or for a `with` block.

    **Arguments:**

    - `name`: "auto" (the fastest engine that can run the call), "reference" (the plain loop over time, which defines
      what is correct) or "compiled" (as "auto", and a warning for every cell that has to run on the plain loop).

    **Example:**

        >>> import torch, recurra as rc
        >>> layer, x = rc.GRU(3, 4), torch.randn(5, 2, 3)
        >>> with rc.set_backend("reference"):
        ...     y, state = layer(x)
        >>> y.shape
        torch.Size([5, 2, 4])
    """

    def __init__(self, name: str):
        if name not in BACKENDS:
            raise UnknownNameError("backend", repr(name), BACKENDS)
        self.before = _setting["backend"]
        _setting["backend"] = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        _setting["backend"] = self.before


_warned: set[str] = set()


def warn_once(message: str) -> None:
    """Issue an `EngineWarning`, the first time this message comes up in the process."""
    if message not in _warned:
        _warned.add(message)
        warnings.warn(message, EngineWarning, stacklevel=2)
