"""The exception classes of recurra. A message names the argument, what was passed, and what was expected."""

import difflib
from collections.abc import Iterable, Sequence


class RecurraError(Exception):
    """Base class of all errors that recurra raises on purpose.

    **Example**

        >>> import recurra as rc
        >>> try:
        ...     rc.layer("lstn", 3, 4)
        ... except rc.RecurraError as error:
        ...     print(type(error).__name__)
        UnknownNameError
    """


MOST_SHOWN = 400  # characters of what came


def _shortened(got: object) -> str:
    """What came, as a message shows it: not all numbers of an array."""
    text, shape = str(got), getattr(got, "shape", ())
    if isinstance(shape, tuple) and shape and "\n" in text:
        return f"{type(got).__name__} of shape {tuple(shape)}"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


class InputError(RecurraError, ValueError):
    """An argument has a value that recurra does not accept. Also a `ValueError`.

    **Arguments**

    - `argument`: the name of the argument.
    - `got`: what was passed, in the words of the message.
    - `expected`: what is accepted.

    All three are attributes of the error.

    **Example**

        >>> import recurra as rc
        >>> rc.LSTM(3, 4, dropout=2.0)
        Traceback (most recent call last):
            ...
        recurra.errors.InputError: dropout: got 2.0, expected a probability between 0 and 1
    """

    def __init__(self, argument: str, got: object, expected: str):
        super().__init__(f"{argument}: got {_shortened(got)}, expected {expected}")
        self.argument, self.got, self.expected = argument, got, expected

    def __reduce__(self):  # by default, an exception is unpickled with its message as the only argument
        return type(self), (self.argument, self.got, self.expected)


class ShapeError(InputError):
    """A tensor has the wrong rank or size. Raised before torch is called.

    **Example**

        >>> import torch
        >>> import recurra as rc
        >>> rc.LSTM(3, 4)(torch.zeros(5, 2, 7))
        Traceback (most recent call last):
            ...
        recurra.errors.ShapeError: x: got shape (5, 2, 7), expected (T, B, 3) or (T, 3)
    """


class DtypeError(InputError, TypeError):
    """A tensor has the wrong dtype. Also a `TypeError`.

    **Example**

        >>> import torch
        >>> import recurra as rc
        >>> rc.LSTM(3, 4)(torch.zeros(5, 2, 3, dtype=torch.float64))
        Traceback (most recent call last):
            ...
        recurra.errors.DtypeError: x: got torch.float64, expected the layer's dtype, torch.float32
    """


class DeviceError(InputError):
    """Tensors of one call are on different devices.

    **Example**

        >>> import torch
        >>> import recurra as rc
        >>> rc.LSTM(3, 4)(torch.zeros(5, 2, 3, device="meta"))
        Traceback (most recent call last):
            ...
        recurra.errors.DeviceError: x: got meta, expected the layer's device, cpu
    """


class LengthsError(InputError):
    """Sequence lengths do not fit the batch.

    **Example**

        >>> import torch
        >>> import recurra as rc
        >>> rc.LSTM(3, 4)(torch.zeros(5, 2, 3), lengths=[5, 0])
        Traceback (most recent call last):
            ...
        recurra.errors.LengthsError: lengths: got 0, expected values from 1 to T = 5
    """


class OptionError(InputError, TypeError):
    """An option does not exist, or not in this combination. Also a `TypeError`.

    **Example**

        >>> import recurra as rc
        >>> rc.LSTM(3, 4, num_layer=2)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        recurra.errors.OptionError: num_layer: got 2, expected an option of LSTM: one of ...; did you mean 'num_layers'?
    """


class UnknownNameError(InputError, LookupError):
    """A name is not known; the message proposes the nearest one. Also a `LookupError`.

    **Arguments**

    - `argument`, `got`: as in `InputError`.
    - `expected`: the known names, or a text.

    **Example**

        >>> import recurra as rc
        >>> rc.layer("lstn", 3, 4)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        recurra.errors.UnknownNameError: cell: got 'lstn', expected one of ...; did you mean 'lstm'?
    """

    def __init__(self, argument: str, got: object, expected: str | Iterable[str]):
        super().__init__(argument, got, expected if isinstance(expected, str) else nearest(str(got), expected))


class ConversionError(RecurraError, ValueError):
    """The equations of two libraries differ: weights cannot be converted exactly. Also a `ValueError`.

    **Example**

        >>> import recurra as rc
        >>> rc.GRU(3, 4).to_torch()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        recurra.errors.ConversionError: ...
    """


class MissingPackageError(RecurraError, ModuleNotFoundError):
    """A call needs a package that an extra of recurra installs. Also a `ModuleNotFoundError`.

    **Arguments**

    - `what`: the call, in the words of the message.
    - `packages`: the packages it needs.
    - `extra`: the extra that installs them.

    **Example**

        >>> import recurra as rc
        >>> print(rc.MissingPackageError("recurra.data.read", ["pyarrow"], "data"))
        recurra.data.read needs pyarrow: pip install 'recurra[data]'
    """

    def __init__(self, what: str, packages: Sequence[str], extra: str):
        listed = " and ".join(filter(None, (", ".join(packages[:-1]), packages[-1])))
        super().__init__(f"{what} needs {listed}: pip install 'recurra[{extra}]'", name=packages[0])
        self.what, self.packages, self.extra = what, tuple(packages), extra

    def __reduce__(self):
        return type(self), (self.what, self.packages, self.extra)


class ModelFileError(InputError):
    """A file of a saved model or checkpoint is missing, damaged, or of another kind; the message names it.

    **Arguments**

    - `path`: the file.
    - `got`, `expected`: as in `InputError`.

    **Example**

        >>> import recurra as rc
        >>> rc.SequenceClassifier.load("absent")
        Traceback (most recent call last):
            ...
        recurra.errors.ModelFileError: absent...
    """

    def __init__(self, path: object, got: object, expected: str):
        super().__init__(str(path), got, expected)


class WeightsMismatchError(ModelFileError):
    """A file of weights is valid but belongs to another model: a tensor's name or shape differs.

    **Example**

        >>> import recurra as rc
        >>> issubclass(rc.WeightsMismatchError, rc.ModelFileError)
        True
    """


class TraceError(RecurraError):
    """A cell's step cannot be traced as one graph. The layer then runs on the reference engine.

    **Example**

        >>> import recurra as rc
        >>> class Branching(rc.Cell):
        ...     def step(self, x, h):
        ...         return h if h.sum() > 0 else -h
        >>> try:
        ...     Branching.equations()
        ... except rc.TraceError as error:
        ...     print(str(error).split(" (")[0])
        Branching.step reads or branches on the value of a tensor
    """


def nearest(name: str, known: Iterable[str]) -> str:
    """The known names, and a suggestion such as `did you mean 'lstm'?` where one of them is similar.

    **Example**

        >>> rc.errors.nearest("lstn", ["gru", "lstm"])
        "one of gru, lstm; did you mean 'lstm'?"
    """
    known = sorted(known)
    plain = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.strip("'\"").lower(), plain, n=1, cutoff=0.5)
    hint = f"; did you mean {plain[close[0]]!r}?" if close else ""
    return f"one of {', '.join(known)}{hint}"
