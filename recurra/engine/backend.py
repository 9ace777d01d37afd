"""The user's choice of engine, how often it is checked, and the warning that something runs slower than it could.

The choice belongs to a context (contextvars): a thread, or a task of asyncio. torch.compile cannot read context
variables, but guards attributes of a `threading.local`: compiled graphs follow the choice of their thread.
"""

import os
import threading
import warnings
from contextvars import ContextVar

from torch.compiler import is_compiling

from ..errors import OptionError, UnknownNameError

BACKENDS = ("auto", "reference", "compiled")
CHECKS = ("0", "1", "all")


class EngineWarning(UserWarning):
    """A layer runs on a slower engine than it could; the message says why. Issued once for each message.

    **Example**, which turns the warning into an error:

        >>> import warnings
        >>> import torch, recurra as rc
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", rc.EngineWarning)
        ...     y, state = rc.LSTM(3, 4)(torch.zeros(5, 2, 3))
    """


class _ThreadChoice(threading.local):
    def __init__(self) -> None:  # in every thread: an attribute of the class would not be guarded
        self.backend = "auto"


_choice: ContextVar[str] = ContextVar("recurra backend", default="auto")
_thread_choice = _ThreadChoice()
backend_here = _choice.get  # the same as `backend`, outside of torch.compile and without a Python frame


def backend() -> str:
    """The backend in force: "auto", "reference" or "compiled"."""
    return _thread_choice.backend if is_compiling() else backend_here()


def _set(name: str) -> None:
    _thread_choice.backend = name
    if not is_compiling():
        _choice.set(name)


class set_backend:
    """Choose the engine that runs layers, for the rest of a thread or asyncio task, or for a `with` block.

    The choice belongs to the current context (`contextvars`): other threads and tasks keep theirs, a new thread starts
    with "auto", a new task with the choice of the one that made it. Functions that torch.compile made follow their
    thread alone.

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
        if not isinstance(name, str) or name not in BACKENDS:
            raise UnknownNameError("name", repr(name), BACKENDS)
        self.before = backend()
        _set(name)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        _set(self.before)


_setting = {"check": os.environ.get("RECURRA_CHECK", "1")}


def self_check() -> str:
    """How often a compiled call is compared with the plain loop, from the environment variable `RECURRA_CHECK`.

    "1", the default: the first call of every new plan. "all": every call, some steps of it. "0": never.
    """
    if _setting["check"] not in CHECKS:
        raise OptionError("RECURRA_CHECK", repr(_setting["check"]), "0, 1 or all")
    return _setting["check"]


_warned: set[str] = set()


def warn_once(message: str) -> None:
    """Issue an `EngineWarning`, the first time this message comes up in the process."""
    if message not in _warned:
        _warned.add(message)
        warnings.warn(message, EngineWarning, stacklevel=2)
