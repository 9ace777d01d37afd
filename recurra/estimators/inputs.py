"""What people bring as sequences, as one list of (T, D) arrays in float64.

A 2-D array (n, T) is n series of one number a step, a 3-D array (n, T, D) has D numbers a step, a list may be ragged. A
table in long form, one row a step with a column that tells sequences apart, and a `SequenceSet` bring targets along.
A table is what Arrow can read: its own, a dict of columns, or a dataframe of any library that offers its stream
(`__arrow_c_stream__`) or the interchange protocol (`__dataframe__`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ..data.sequences import SequenceSet, Task
from ..errors import InputError, ShapeError, UnknownNameError
from ..optional import require

WORD_COLUMNS = ("word", "token")
TAG_COLUMNS = ("tag", "tags", "label", "labels")


def is_ragged(X: Any) -> bool:
    """Whether X is a 3-D array, or a list (or an array of objects) of series that do not stack to (n, T)."""
    if isinstance(X, np.ndarray) and X.dtype != object:
        return X.ndim == 3
    if not isinstance(X, list | tuple | np.ndarray):
        return getattr(X, "ndim", 0) == 3  # a tensor
    shapes = [np.shape(x) for x in X if isinstance(x, list | tuple | np.ndarray) or hasattr(x, "shape")]
    if len(shapes) != len(X) or not shapes:
        return False
    return any(len(shape) != 1 for shape in shapes) or len(set(shapes)) > 1


def tabled(X: Any) -> Any:
    """X as an Arrow table, if it is a table in long form or a bare stream; anything else as it came.

    With one row a sequence, scikit-learn reads a dataframe, and keeps the names of its columns.
    """
    return arrow(X) if is_table(X) or not column_names(X) else X


def arrow(X: Any) -> Any:
    """A table or dataframe as an Arrow table; anything else as it came.

    A stream may be read only once, so this stands at every entrance, and what follows sees the table.
    """
    streams = hasattr(X, "__arrow_c_stream__")
    if isinstance(X, np.ndarray) or not (streams or hasattr(X, "__dataframe__")):
        return X
    pa = require("pyarrow", extra="data", what="a table as input")
    if isinstance(X, pa.Table):
        return X
    if streams:
        found = pa.table(X)
    else:
        from pyarrow.interchange import from_dataframe

        found = from_dataframe(X)
    return _plain_text(_without_index(found))


def _without_index(table: Any) -> Any:
    """pandas sends the labels of rows along; only names and times of sequences mean anything here."""
    from ..data.readers.layout import ID_NAMES, TIME_NAMES

    sent = (table.schema.pandas_metadata or {}).get("index_columns", [])
    labels = [name for name in sent if isinstance(name, str) and name.lower() not in (*ID_NAMES, *TIME_NAMES)]
    return table.drop_columns([name for name in labels if name in table.column_names])


def _plain_text(table: Any) -> Any:
    """Text that polars numbers by category is text; not all of Arrow can look through its numbers."""
    import pyarrow as pa

    for k, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and pa.types.is_string_view(field.type.value_type):
            chunks = table.column(k).chunks
            named = [pa.DictionaryArray.from_arrays(c.indices, c.dictionary.cast(pa.string())) for c in chunks]
            kind = pa.dictionary(field.type.index_type, pa.string())
            table = table.set_column(k, field.name, pa.chunked_array(named, kind))
    return table


def is_table(X: Any) -> bool:
    """A long table: it has named columns, and one of them tells sequences apart."""
    from ..data.readers.layout import ID_NAMES

    return any(str(name).lower() in ID_NAMES for name in column_names(X))


def column_names(X: Any) -> list[Any]:
    if isinstance(X, dict):
        return list(X)
    names = getattr(X, "column_names", None)  # Arrow
    if names is None and hasattr(X, "columns"):
        names = X.columns  # pandas, polars
    return [] if names is None or callable(names) else list(names)


def from_table(X: Any, target: str | None, task: Task) -> SequenceSet:
    """The sequences of a long table; `target` names the column of labels or numbers, if it has an unusual name."""
    from ..data import from_table as read

    if task == "classification":
        return read(X, label=target, task="classification") if target else read(X, task="classification")
    return read(X, target=target, task="regression") if target else read(X, task="regression")


def from_bare_table(X: Any, columns: Sequence[str] = ()) -> SequenceSet:
    """The sequences of a long table without regard to targets: its `columns`, or all that hold numbers."""
    from ..data import from_table as read

    found = read(X, task="next_step", features=columns) if columns else read(X, task="next_step")
    names = columns or found.features
    series = [np.asarray(values)[:, : len(names)] for values in found.series or ()]
    return SequenceSet.from_arrays(series, np.zeros((len(series), 1)), "regression", features=tuple(names))


def targets_of(given: SequenceSet, task: Task) -> np.ndarray:
    """(n,) labels by their names, or (n, q) numbers, as the set has them."""
    if given.task != task:
        raise InputError("X", f"sequences for {given.task}", f"sequences for {task}, or targets y beside them")
    if task == "classification":
        numbers = [int(target) for target in given.targets]
        return np.asarray([given.classes[k] for k in numbers] if given.classes else numbers)
    return np.stack([np.asarray(target, dtype=np.float64) for target in given.targets])


def arrays(X: Any) -> list[np.ndarray]:
    """Every series as (T, D) float64; what is wrong is named by its place."""
    if isinstance(X, SequenceSet) and X.inputs[0].ndim == 1 and not X.inputs[0].is_floating_point():
        raise InputError("X", "sequences of tokens", "sequences of numbers, (T, D) each")
    items = [example.inputs for example in X] if isinstance(X, SequenceSet) else list(X)
    if not items:
        raise InputError("X", "no sequence", "at least one")
    found = [_series(x, k) for k, x in enumerate(items)]
    width = found[0].shape[1]
    for k, x in enumerate(found):
        if x.shape[1] != width:
            raise ShapeError(f"X[{k}]", f"{x.shape[1]} numbers a step", f"{width}, as the first sequence has")
    return found


def _series(x: Any, k: int) -> np.ndarray:
    if np.iscomplexobj(x):
        raise InputError(f"X[{k}]", "complex numbers", "real ones (Complex data not supported)")
    try:
        values = np.array(x.detach().cpu().numpy() if isinstance(x, Tensor) else x, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"X[{k}]", type(x).__name__, "a series of numbers, (T,) or (T, D)") from error
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or not values.size:
        raise ShapeError(f"X[{k}]", f"shape {values.shape}", "(T,) or (T, D), with at least one step")
    if not np.isfinite(values).all():
        step, column = np.argwhere(~np.isfinite(values))[0].tolist()
        raise InputError(f"X[{k}]", f"{values[step, column]} at step {step}, column {column}", "finite numbers")
    return values


def with_targets(X: Any, y: Any, task: Task) -> tuple[Any, Any]:
    """X and its targets, taken from X itself where they are not given, or given as the name of a column."""
    X = tabled(X)
    if is_table(X) and (y is None or isinstance(y, str)):
        X, y = from_table(X, y, task), None
    return X, targets_of(X, task) if isinstance(X, SequenceSet) and y is None else y


# ---------------------------------------------------------------------------------------------------- words


def texts(X: Any) -> list[str]:
    """The texts of a list, or of the column `text` of a table; one text is a list of one."""
    if isinstance(X, str):
        return [X]
    X = arrow(X)
    names = column_names(X)
    if not names:
        return _all_text(list(X))
    if "text" not in names:
        raise UnknownNameError("X", f"a table without the column 'text': {', '.join(map(str, names))}", "one with it")
    return _column(X, "text")


def _all_text(found: list[Any]) -> list[str]:
    for place, value in enumerate(found):
        if not isinstance(value, str):
            raise InputError(f"X[{place}]", type(value).__name__, "a text")
    return found


def sentences(X: Any, y: Any = None) -> tuple[Any, Any]:
    """Sentences and their tags as lists; of a long table, one row a word, the columns of its words and of its tags.

    The table has a column that tells sentences apart, one named `word` or `token`, and, where the tags are not given,
    one named `tag` or `label`, or named by `y`.
    """
    X = tabled(X)
    if not is_table(X):
        for place, sentence in enumerate(X):
            if not isinstance(sentence, (Sequence, np.ndarray)) or isinstance(sentence, str):
                raise InputError(f"X[{place}]", type(sentence).__name__, "a sentence: a list of words")
        return X, y
    from ..data.readers.layout import ID_NAMES

    names = {str(name).lower(): str(name) for name in column_names(X)}
    words = next((names[name] for name in WORD_COLUMNS if name in names), None)
    if words is None:
        raise InputError("X", f"the columns {', '.join(names.values())}", "a column named word or token")
    which = _column(X, next(names[name] for name in ID_NAMES if name in names), whole=False)
    if isinstance(y, str) and y not in names.values():
        raise UnknownNameError("y", repr(y), names.values())
    tags = y if isinstance(y, str) else next((names[name] for name in TAG_COLUMNS if name in names), None)
    found = _grouped(which, _column(X, words))
    return found, _grouped(which, _column(X, tags)) if tags and (y is None or isinstance(y, str)) else y


def _column(table: Any, name: str, whole: bool = True) -> list[Any]:
    """A column as a list; where `whole`, of text, no row of which is missing."""
    values = table[name]
    found = values.to_pylist() if hasattr(values, "to_pylist") else list(values)
    for row, value in enumerate(found) if whole else ():
        if not isinstance(value, str):
            raise InputError(f"column {name!r}, row {row}", repr(value), "text")
    return found


def _grouped(which: list[Any], values: list[str]) -> list[list[str]]:
    """The values of every sentence, in the order in which sentences begin."""
    found: dict[Any, list[str]] = {}
    for key, value in zip(which, values, strict=True):
        found.setdefault(key, []).append(value)
    return list(found.values())
