"""Functions over the tensors inside nested tuples, lists, dicts and dataclasses, such as carried states."""

import dataclasses
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
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields = {f.name: map_tensors(function, getattr(tree, f.name)) for f in dataclasses.fields(tree)}
        return dataclasses.replace(tree, **fields)
    return tree


def detach_tree(tree: Any) -> Any:
    """`tree` with every tensor detached from its graph."""
    return map_tensors(Tensor.detach, tree)
