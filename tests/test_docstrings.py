"""The examples in the docstrings of public objects run, and print what they say."""

import doctest
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch

import recurra as rc


def public_objects() -> Iterator[tuple[str, Any]]:
    """`(name, object)` of the top level and of each public module's `__all__`."""
    for name in rc.__all__:
        found = getattr(rc, name)
        yield f"rc.{name}", found
        if isinstance(found, ModuleType):
            names = [n for n in getattr(found, "__all__", vars(found)) if not n.startswith("_")]
            yield from ((f"rc.{name}.{n}", getattr(found, n)) for n in names)


def find_examples() -> dict[str, doctest.DocTest]:
    """Every docstring with an example, methods included, with `rc` and `torch` imported."""
    finder, found, seen = doctest.DocTestFinder(exclude_empty=True), {}, set()
    for name, thing in public_objects():
        is_own = str(getattr(thing, "__module__", "")).startswith("recurra")
        if isinstance(thing, ModuleType) or not is_own or id(thing) in seen:  # some objects have two names
            continue
        seen.add(id(thing))
        tests = finder.find(thing, name, module=False, globs={"rc": rc, "torch": torch})  # pyrefly: ignore
        found |= {test.name: test for test in tests if test.examples}
    return found


EXAMPLES = find_examples()


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_runs(name: str):
    torch.manual_seed(0)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failures: list[str] = []
    doctest.DocTestRunner(optionflags=flags, verbose=False).run(EXAMPLES[name], out=failures.append)
    assert not failures, "".join(failures)
