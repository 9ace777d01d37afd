"""What recurra raises: one typed error that names the argument, what came, and what was expected."""

import difflib
from collections.abc import Iterable, Sequence


class RecurraError(Exception):
    """Every error recurra raises on purpose."""


class InputError(RecurraError, ValueError):
    """An argument has a value recurra cannot take."""

    def __init__(self, argument: str, got: object, expected: str):
        super().__init__(f"{argument}: got {got}, expected {expected}")
        self.argument, self.got, self.expected = argument, got, expected

    def __reduce__(self):  # so that the error survives a trip between processes
        return type(self), (self.argument, self.got, self.expected)


class ShapeError(InputError):
    """A tensor has the wrong rank or size."""


class DtypeError(InputError, TypeError):
    """A tensor has the wrong dtype."""


class DeviceError(InputError):
    """Tensors that must meet live on different devices."""


class LengthsError(InputError):
    """Sequence lengths do not fit the batch they describe."""


class OptionError(InputError, TypeError):
    """An option does not exist, or not in this combination."""


class UnknownNameError(InputError, LookupError):
    """A name is not known; the message proposes the nearest one that is."""

    def __init__(self, argument: str, got: object, expected: str | Iterable[str]):
        super().__init__(argument, got, expected if isinstance(expected, str) else nearest(str(got), expected))


class ConversionError(RecurraError, ValueError):
    """Two libraries' equations differ, so weights cannot be carried over exactly."""


class MissingPackageError(RecurraError, ModuleNotFoundError):
    """A call needs a package that only an extra of recurra installs; the message says which."""

    def __init__(self, what: str, packages: Sequence[str], extra: str):
        listed = " and ".join(filter(None, (", ".join(packages[:-1]), packages[-1])))
        super().__init__(f"{what} needs {listed}: pip install 'recurra[{extra}]'", name=packages[0])
        self.what, self.packages, self.extra = what, tuple(packages), extra

    def __reduce__(self):
        return type(self), (self.what, self.packages, self.extra)


class TraceError(RecurraError):
    """A cell's step cannot be written down as one graph."""


def nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean 'lstm'?` when something is near, and the whole list when it is short enough to read."""
    known = sorted(known)
    plain = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.strip("'\"").lower(), plain, n=1, cutoff=0.5)
    hint = f"did you mean {plain[close[0]]!r}? " if close else ""
    return f"{hint}one of {', '.join(known)}"
