"""Converts the inputs of estimators (arrays, ragged lists, tables, sets, texts, sentences) to one form.

A 2-D array (n, T) is n series of one feature, a 3-D array (n, T, D) has D features, a list may be ragged. A table gets
the roles of its columns from `recurra.data.readers.roles`, as a file does: with an id column for the sequences it is
long, one row per step; otherwise every row is a sequence. Long tables and `SequenceSet`s may have their targets with
them. A table is an Arrow table, a dict of columns, or a dataframe of any library with the Arrow stream
(`__arrow_c_stream__`) or the interchange protocol (`__dataframe__`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from ..data.precision import double_precision
from ..data.sequences import SequenceSet, Task
from ..errors import InputError, ShapeError, UnknownNameError
from ..optional import require
from .table_advice import advice_for_tables, warn_of_odd_values

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


def to_long_table(X: Any) -> Any:
    """X as an Arrow table if it is a long table or an Arrow stream; otherwise X itself.

    A dataframe with one row per sequence is left to scikit-learn, which keeps its column names.
    """
    X = _with_levels(X)
    return arrow(X) if is_table(X) or not column_names(X) else X


def _with_levels(X: Any) -> Any:
    """A pandas dataframe with the levels of its index, such as id and time, as columns."""
    levels = getattr(getattr(X, "index", None), "names", None)
    named = levels is not None and len(levels) > 1 and all(isinstance(name, str) for name in levels)
    return X.reset_index() if named and column_names(X) else X


def arrow(X: Any) -> Any:
    """A table or dataframe as an Arrow table; otherwise X itself.

    A stream can be read only once, so every entry point converts it first.
    """
    X = _with_levels(X)
    streams = hasattr(X, "__arrow_c_stream__")
    if is_dict_of_columns(X):
        pa = require("pyarrow", extra="data", what="a table as input")
        try:
            return pa.table(X)
        except (TypeError, ValueError) as error:
            raise InputError("X", str(error), "columns of one length") from error
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
    return _decode_categories(_drop_row_labels(found))


def _drop_row_labels(table: Any) -> Any:
    """Drop the row labels that pandas adds as columns, except ids and times of sequences."""
    from ..data.readers.layout import ID_NAMES, TIME_NAMES

    sent = (table.schema.pandas_metadata or {}).get("index_columns", [])
    labels = [name for name in sent if isinstance(name, str) and name.lower() not in (*ID_NAMES, *TIME_NAMES)]
    return table.drop_columns([name for name in labels if name in table.column_names])


def _decode_categories(table: Any) -> Any:
    """Replace the string views in polars' categorical columns by strings, which all of Arrow supports."""
    import pyarrow as pa

    for k, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and pa.types.is_string_view(field.type.value_type):
            chunks = table.column(k).chunks
            named = [pa.DictionaryArray.from_arrays(c.indices, c.dictionary.cast(pa.string())) for c in chunks]
            kind = pa.dictionary(field.type.index_type, pa.string())
            table = table.set_column(k, field.name, pa.chunked_array(named, kind))
    return table


def is_table(X: Any) -> bool:
    """Whether X is a long table: it has named columns, one of them an id of sequences whose values repeat."""
    names = [name for name in column_names(X) if isinstance(name, str)]
    return bool(names) and any(_names_sequences(X, name) for name in names)


def _names_sequences(X: Any, name: str) -> bool:
    from ..data.readers.layout import ID_HINTS, ID_NAMES

    lowered = name.strip().lower()
    if lowered in ID_NAMES:
        return True
    if lowered not in ID_HINTS and not lowered.endswith("_id"):
        return False
    values = _column(X, name, text_only=False)
    return len(set(values)) < len(values)


def is_dict_of_columns(X: Any) -> bool:
    """Some sparse matrices of SciPy are dictionaries, of their entries."""
    return isinstance(X, dict) and not hasattr(X, "tocsr")


def column_names(X: Any) -> list[Any]:
    if is_dict_of_columns(X):
        return list(X)
    names = getattr(X, "column_names", None)  # Arrow
    if names is None and hasattr(X, "columns"):
        names = X.columns  # pandas, polars
    return [] if names is None or callable(names) else list(names)


ROW_TARGETS = "#y"  # targets that came beside a table, as a column of it


def from_table(X: Any, target: str | None, task: Task) -> SequenceSet:
    """The sequences of a table; `target` names the target column, if it does not have a usual name."""
    from ..data import from_table as read

    named: dict[str, Any] = {"label" if task in ("classification", "tagging") else "target": target} if target else {}
    with double_precision(), advice_for_tables():
        found = read(X, task=task, irregular=True, **named)
        warn_of_odd_values(found.notes)
    return replace(found, classes=_as_in_table(found, arrow(X))) if found.classes else found


def _as_in_table(data: SequenceSet, table: Any) -> tuple[Any, ...]:
    """The classes of a set as the values that the table has: the number 1.0, not the text 1."""
    import pyarrow as pa

    from ..data.readers.table_scan import strings

    name = None if data.roles is None else data.roles.one("target")
    if name is None or isinstance(table, dict) or name not in getattr(table, "column_names", ()):
        return data.classes
    values = table.column(name).combine_chunks().unique().drop_null()
    values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    is_plain = pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_boolean(values.type)
    if not is_plain:
        return data.classes
    known = dict(zip(strings(values).to_pylist(), values.to_pylist(), strict=True))
    return tuple(known.get(each, each) for each in data.classes)


def with_row_targets(X: Any, y: Any, task: Task) -> SequenceSet | None:
    """The sequences of a long table with a target for each of its rows, or None if `y` has one per sequence."""
    import pyarrow as pa

    table, values = pa.table(X) if isinstance(X, dict) else X, to_array(y)
    if values.ndim != 1 or len(values) != table.num_rows:
        return None
    is_label = task in ("classification", "tagging")
    column = pa.array([str(v) for v in values] if is_label else values.astype(np.float64))
    found = from_table(table.append_column(ROW_TARGETS, column), ROW_TARGETS, task)
    if not is_label or values.dtype.kind in "OUS":
        return found
    names = {str(value): value for value in values.tolist()}
    return replace(found, classes=tuple(names[name] for name in found.classes))


def series_of_table(X: Any, reading: Mapping[str, Any] | None = None) -> SequenceSet:
    """The sequences of a table without targets, read as the table of `fit` was: its `table_reading`."""
    from ..data import from_table as read

    with double_precision(), advice_for_tables():
        found = read(X, unlabelled=True, irregular=True, **(reading or {}))
        warn_of_odd_values(found.notes)
        return found


def table_reading(found: SequenceSet) -> dict[str, Any]:
    """How a table was read, for `series_of_table`: plain JSON."""
    roles = found.roles
    if roles is None:
        return {}
    steps = [name for names in roles.channels.values() for name in names]
    static = list(roles.named("static"))
    inputs = [*steps, *static] if roles.form == "wide" else list(roles.inputs)
    read = {"form": roles.form, "id": roles.one("id") or "none", "time": list(roles.named("time")) or "none"}
    read |= {"features": inputs, "categories": {name: list(values) for name, values in found.categories.items()}}
    return read | ({"static": static} if roles.form == "wide" else {})


def set_targets(given: SequenceSet, task: Task) -> np.ndarray:
    """The targets of a set: (n,) class names, or (n, q) numbers."""
    if given.task != task:
        raise InputError("X", f"sequences for {given.task}", f"sequences for {task}, or targets as y")
    if task == "classification":
        numbers = [int(target) for target in given.targets]
        return np.asarray([given.classes[k] for k in numbers] if given.classes else numbers)
    rows = np.stack([np.asarray(target, dtype=np.float64) for target in given.targets])
    return rows[:, 0] if given.roles is not None and rows.shape[1] == 1 else rows  # one column is one number each


def _items(X: Any) -> list[Any]:
    try:
        return list(X)
    except TypeError:
        raise InputError("X", type(X).__name__, "sequences, or a table") from None


def arrays(X: Any, allow_missing: bool = False) -> list[np.ndarray]:
    """Every series as (T, D) float64; an error names the sequence, the step and the column."""
    if isinstance(X, SequenceSet) and X.inputs[0].ndim == 1 and not X.inputs[0].is_floating_point():
        raise InputError("X", "sequences of tokens", "sequences of numbers, (T, D) each")
    items = [example.inputs for example in X] if isinstance(X, SequenceSet) else _items(X)
    if not items:
        raise InputError("X", "no sequence", "at least one")
    found = [_series(x, k, allow_missing) for k, x in enumerate(items)]
    width = found[0].shape[1]
    for k, x in enumerate(found):
        if x.shape[1] != width:
            raise ShapeError(f"X[{k}]", f"{x.shape[1]} features per step", f"{width}, as in the first sequence")
    return found


def _series(x: Any, k: int, allow_missing: bool) -> np.ndarray:
    if np.iscomplexobj(x):
        raise InputError(f"X[{k}]", "complex numbers", "real ones (Complex data not supported)")
    try:
        values = np.array(x.detach().cpu().numpy() if isinstance(x, Tensor) else x, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"X[{k}]", type(x).__name__, "a series of numbers, (T,) or (T, D)") from error
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or not values.size:
        raise ShapeError(f"X[{k}]", f"shape {values.shape}", "(T,) or (T, D), with at least one step")
    is_wrong = np.isinf(values) if allow_missing else ~np.isfinite(values)
    if is_wrong.any():
        step, column = np.argwhere(is_wrong)[0].tolist()
        raise InputError(f"X[{k}]", f"{values[step, column]} at step {step}, column {column}", "finite numbers")
    return values


def split_targets(X: Any, y: Any, task: Task) -> tuple[Any, Any]:
    """X and its targets, which may be in X itself, in a column that `y` names, or beside its rows or sequences."""
    X = to_long_table(to_values(X))
    names = column_names(X)
    if names and isinstance(y, str):
        X, y = from_table(arrow(X), y, task), None
    elif is_table(X) and y is None:
        X, y = from_table(X, None, task), None
    elif is_table(X):
        found = with_row_targets(X, y, task)
        X, y = (series_of_table(X), to_array(y)) if found is None else (found, None)
    elif names and not is_plain(X):
        X = series_of_table(arrow(X), {"form": "wide"})
    if isinstance(X, SequenceSet) and y is None:
        return X, set_targets(X, task)
    return X, y if y is None else to_values(y)


def is_plain(X: Any) -> bool:
    """Whether all columns of a table with one row per sequence are its steps: scikit-learn then checks it."""
    from ..data.readers.column_kinds import kind_of
    from ..data.readers.layout import ID_HINTS
    from ..data.readers.table_facts import is_row_number

    table = arrow(X)
    if not hasattr(table, "schema"):
        return True
    named = [str(name).strip().lower() for name in table.column_names]
    texts = any(kind_of(item.type) == "text" for item in table.schema)
    return not texts and not any(name in ID_HINTS or is_row_number(name) for name in named)


def to_values(X: Any) -> Any:
    """A series of pandas or polars as an array; otherwise X itself."""
    is_series = not column_names(X) and getattr(X, "ndim", len(getattr(X, "shape", ()))) == 1
    if not (is_series and hasattr(X, "to_numpy") and hasattr(X, "dtype")):
        return X
    values = X.to_numpy()
    holds_lists = values.dtype == object and len(values) and all(isinstance(v, list | np.ndarray) for v in values)
    return list(values) if holds_lists else values  # a list of sequences


def to_array(y: Any) -> np.ndarray:
    """Targets as an array, from a list, an array, a series or a column."""
    y = to_values(y)
    return np.asarray(y.to_pylist() if hasattr(y, "to_pylist") else y)


# ---------------------------------------------------------------------------------------------------- text


def texts(X: Any) -> list[str]:
    """A list of texts, from one text, a list, or the column `text` of a table."""
    if isinstance(X, str):
        return [X]
    X = arrow(X)
    names = column_names(X)
    if not names:
        return _check_all_text(list(X))
    if "text" not in names:
        raise UnknownNameError("X", f"a table without the column 'text': {', '.join(map(str, names))}", "one with it")
    return _column(X, "text")


def _check_all_text(found: list[Any]) -> list[str]:
    for position, value in enumerate(found):
        if not isinstance(value, str):
            raise InputError(f"X[{position}]", type(value).__name__, "a text")
    return found


def sentences(X: Any, y: Any = None) -> tuple[Any, Any]:
    """Sentences and their tags as lists, from lists, from texts split at white space, or from a table of words.

    The table has an id column for the sentences, a column `word` or `token`, and for the tags a column `tag` or `label`
    or the one that `y` names.
    """
    X = to_long_table([X] if isinstance(X, str) else to_values(X))
    if not is_table(X):
        for position, sentence in enumerate(X):
            if not isinstance(sentence, (Sequence, np.ndarray)):
                expected = "a sentence: a list of words, or a text"
                raise InputError(f"X[{position}]", type(sentence).__name__, expected)
        return [sentence.split() if isinstance(sentence, str) else sentence for sentence in X], y
    from ..data.readers.layout import ID_NAMES

    names = {str(name).lower(): str(name) for name in column_names(X)}
    words = next((names[name] for name in WORD_COLUMNS if name in names), None)
    if words is None:
        raise InputError("X", f"the columns {', '.join(names.values())}", "a column named word or token")
    ids = _column(X, next(names[name] for name in ID_NAMES if name in names), text_only=False)
    if isinstance(y, str) and y not in names.values():
        raise UnknownNameError("y", repr(y), names.values())
    tags = y if isinstance(y, str) else next((names[name] for name in TAG_COLUMNS if name in names), None)
    found = _group_words(ids, _column(X, words))
    return found, _group_words(ids, _column(X, tags)) if tags and (y is None or isinstance(y, str)) else y


def _column(table: Any, name: str, text_only: bool = True) -> list[Any]:
    """A column as a list; with `text_only`, a value that is not text is an error."""
    values = table[name]
    found = values.to_pylist() if hasattr(values, "to_pylist") else list(values)
    for row, value in enumerate(found) if text_only else ():
        if not isinstance(value, str):
            raise InputError(f"column {name!r}, row {row}", repr(value), "text")
    return found


def _group_words(ids: list[Any], values: list[str]) -> list[list[str]]:
    """The values of every sentence, in the order of their first rows."""
    found: dict[Any, list[str]] = {}
    for key, value in zip(ids, values, strict=True):
        found.setdefault(key, []).append(value)
    return list(found.values())
