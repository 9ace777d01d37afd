"""Docstrings of public objects: they have the parts that teach, and their examples run and print what they say."""

import doctest
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import recurra as rc
from recurra.cell import REGISTRY


def public_objects() -> Iterator[tuple[str, Any]]:
    """`(name, object)` of the top level and of each public module's `__all__`."""
    for name in rc.__all__:
        found = getattr(rc, name)
        yield f"rc.{name}", found
        if isinstance(found, ModuleType):
            names = [n for n in getattr(found, "__all__", vars(found)) if not n.startswith("_")]
            yield from ((f"rc.{name}.{n}", getattr(found, n)) for n in names)
    yield "rc.cells.spike", rc.cells.spike  # `__all__` of this module lists cells alone


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
CREATED_BY_RECURRA = ("Problem", "Trace")  # the user reads these objects and does not construct them


def required_parts(name: str, thing: Any) -> list[str]:
    """The sections that the docstring of a public name must have. A class has Returns if its instances are called."""
    if isinstance(thing, ModuleType):
        return []
    if isinstance(thing, type) and issubclass(thing, Exception):
        return ["Example"]
    named = [p for p in inspect.signature(thing).parameters.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    if isinstance(thing, type):
        is_module = issubclass(thing, torch.nn.Module) and thing.forward is not torch.nn.Module.forward
        returns = is_module and not issubclass(thing, rc.Modifier)
    else:
        returns = inspect.signature(thing).return_annotation is not None
    parts = {"Arguments": named and name not in CREATED_BY_RECURRA, "Returns": returns, "Example": True}
    return [part for part, needed in parts.items() if needed]


def missing_parts(name: str) -> list[str]:
    """The required sections that are missing. Those of a call may stand in the docstring of `forward`."""
    thing = getattr(rc, name)
    text = f"{inspect.getdoc(thing)}\n{inspect.getdoc(getattr(thing, 'forward', None))}"
    return [part for part in required_parts(name, thing) if not re.search(rf"\*\*{part}:?\*\*", text)]


@pytest.mark.parametrize("name", rc.__all__)
def test_a_public_docstring_teaches(name: str):
    assert (inspect.getdoc(getattr(rc, name)) or "").strip()
    assert not missing_parts(name), missing_parts(name)


def test_every_public_name_of_a_module_has_an_example():
    """Cells have a page each instead, with their equations, code and a call. The script of `compare` is a slow test."""
    shown = {id(rc.compare.compare)} | {
        id(thing) for name, thing in public_objects() if name in EXAMPLES or f"{name}.forward" in EXAMPLES
    }
    own = [
        (name, thing) for name, thing in public_objects() if str(getattr(thing, "__module__", "")).startswith("recurra")
    ]
    things = [(name, thing) for name, thing in own if not (isinstance(thing, type) and thing in REGISTRY.values())]
    assert not [name for name, thing in things if id(thing) not in shown and not isinstance(thing, ModuleType)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_runs(name: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some examples write files
    registered = dict(REGISTRY)
    torch.manual_seed(0)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failures: list[str] = []
    doctest.DocTestRunner(optionflags=flags, verbose=False).run(EXAMPLES[name], out=failures.append)
    for added in REGISTRY.keys() - registered:
        del REGISTRY[added]
    assert not failures, "".join(failures)
