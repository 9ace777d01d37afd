"""Where in the user's code something happens, the innermost frame outside of torch and the engine; and its error."""

import functools
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType
from typing import Any

import torch

from ..errors import TraceError

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OVERRIDES = os.path.join(_TORCH, "overrides.py")
_PYTHON = os.path.dirname(os.__file__) + os.sep
_ENGINE = os.path.dirname(__file__) + os.sep
_CELL = os.path.join(os.path.dirname(os.path.dirname(__file__)), "cell.py")


@functools.cache
def is_user_code(code: CodeType) -> bool:
    """Whether a function belongs to a cell: not to Python, torch, the engine, or what every cell inherits."""
    file = code.co_filename
    is_library = file.startswith(_PYTHON) and "site-packages" not in file
    return not (is_library or file.startswith((_TORCH, _ENGINE, "<frozen")) or file == _CELL)


def is_called_by_user(function: Any) -> bool:
    """Whether user code, and not torch's own, calls the torch function that is being handled."""
    code = getattr(function, "__code__", None)  # torch functions written in Python have a frame of their own
    for frame in _frames():
        file = frame.f_code.co_filename
        if not (file.startswith(_ENGINE) or file == _OVERRIDES or frame.f_code is code):
            return is_user_code(frame.f_code)
    return False


def user_frame() -> FrameType | None:
    """The innermost frame of user code."""
    return next((frame for frame in _frames() if is_user_code(frame.f_code)), None)


def raised_at(error: BaseException) -> str:
    """`file:line` of the user's code where an error comes from."""
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if is_user_code(frame.f_code)]
    return f"{frames[-1][0].f_code.co_filename}:{frames[-1][1]}" if frames else ""


def location(frame: FrameType | None = None) -> str:
    """`file:line` of a frame, by default of the innermost frame of user code."""
    frame = frame or user_frame()
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


class Untraceable(TraceError):
    """The step does what a graph cannot hold. It runs in the plain loop, which calls `step` itself.

    `effects` names what the step changes, where that is the reason: `self.n`, a global, …
    """

    def __init__(self, message: str, effects: Iterable[str] = ()):
        super().__init__(message)
        self.effects = frozenset(effects)
