"""Functions over the tensors inside nested tuples, lists and dicts, such as carried states."""

from collections.abc import Callable
from typing import Any

from torch import Tensor


def map_tensors(function: Callable[[Tensor], Any], tree: Any) -> Any:
    """Apply `function` to every tensor of `tree`; containers keep their types, other leaves are kept."""
    match tree:
        case Tensor():
            return function(tree)
        case dict():
            return {key: map_tensors(function, value) for key, value in tree.items()}
        case tuple() if hasattr(tree, "_fields"):
            return type(tree)(*(map_tensors(function, value) for value in tree))
        case tuple() | list():
            return type(tree)(map_tensors(function, value) for value in tree)
    return tree


def detach_tree(tree: Any) -> Any:
    """`tree` with every tensor detached from its graph."""
    return map_tensors(Tensor.detach, tree)
