"""Facts that torch.compile takes for constants of its graph, instead of tracing how they are found."""

import ctypes
from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])


def graph_constant(function: _F) -> _F:
    """Decorator: torch.compile calls the function while it traces, and its result is a constant of the graph.

    This is torch.compiler.assume_constant_result without importing torch.compile. torch 2.11 accepts no module as an
    argument of such a function: pass `id(module)`, and find the module with `object_at`.
    """
    function._dynamo_marked_constant = True  # pyrefly: ignore
    return function


def object_at(identity: int) -> Any:
    """The object with this `id`, which must be alive."""
    return ctypes.cast(identity, ctypes.py_object).value


def guard_graph(is_current: Callable[[], bool]) -> bool:
    """Make torch.compile call `is_current` before every run of the graph that it traces now, and trace again if the
    answer is False. To be called by a graph constant. Returns False if this torch has no such guards.

    torch.compile's own guards are made from the Python code that it traces, and a graph constant hides that code.
    """
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    if context is None:
        return False
    try:
        from torch._dynamo.source import GlobalStateSource

        guard = GlobalStateSource().make_guard(lambda builder, guard: _add_lambda_guard(builder, is_current))
        context.guards_context.dynamo_guards.add(guard)
    except (AttributeError, ImportError, TypeError):  # none of this is public
        return False
    return True


def _add_lambda_guard(builder: Any, is_current: Callable[[], bool]) -> None:
    root, text = builder.guard_manager.root, ["recurra: the values that a step reads are unchanged"]
    try:
        root.add_lambda_guard(lambda _: is_current(), text, None)
    except TypeError:  # before torch 2.9 without a stack
        root.add_lambda_guard(lambda _: is_current(), text)
