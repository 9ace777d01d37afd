"""Every error and warning of the package as a table: what it means, and what else catches it."""

import importlib
import pkgutil
from collections.abc import Iterator

import recurra as rc

from .docstrings import summary

KINDS = (Exception, SystemExit)
ABOUT = """A message names the argument or the place, what was passed, and what was expected. All errors are
`rc.RecurraError`s, but for interruptions, which are a `SystemExit`. One without a public name is caught as one of the
classes beside it. What to do about common ones: [When something fails](../../errors.md)."""


def text() -> str:
    """An introduction and two tables, of errors and of warnings."""
    public = (kind for kind in _kinds() if issubclass(kind, rc.RecurraError) or _name(kind).startswith("rc."))
    kinds = sorted(public, key=lambda kind: _name(kind).rpartition(".")[2])
    errors = [kind for kind in kinds if not issubclass(kind, Warning)]
    warnings = [kind for kind in kinds if issubclass(kind, Warning)]
    return f"{ABOUT}\n\n{_table('error', errors)}\n\n{_table('warning', warnings)}"


def _kinds() -> Iterator[type[BaseException]]:
    """The classes of errors in all modules of the package."""
    seen: set[type] = set()
    for module in pkgutil.walk_packages(rc.__path__, "recurra."):
        if module.name.endswith("__main__"):
            continue
        for each in vars(importlib.import_module(module.name)).values():
            is_kind = isinstance(each, type) and issubclass(each, KINDS) and each.__module__.startswith("recurra.")
            if is_kind and each not in seen and not each.__name__.startswith("_"):
                seen.add(each)
                yield each


def _table(head: str, kinds: list[type[BaseException]]) -> str:
    rows = [f"| `{_name(kind)}` | {summary(kind)} | {_families(kind)} |" for kind in kinds]
    return f"| {head} | when | also caught as |\n|---|---|---|\n" + "\n".join(rows)


def _name(kind: type[BaseException]) -> str:
    """As a program writes it, where it can: `rc.data.DataError`; otherwise its bare name."""
    for place in ("", *(f".{name}" for name in rc.__all__)):
        if getattr(getattr(rc, place[1:], None) if place else rc, kind.__name__, None) is kind:
            return f"rc{place}.{kind.__name__}"
    return kind.__name__


def _families(kind: type[BaseException]) -> str:
    bases = [base for base in kind.__mro__[1:] if base not in (Exception, BaseException, object, Warning)]
    return ", ".join(f"`{_name(base) if base.__module__.startswith('recurra') else base.__name__}`" for base in bases)
