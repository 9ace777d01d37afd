"""Reads another file the way a model's training file was read."""

from pathlib import Path
from typing import Any

from recurra.data.data_errors import FormatError
from recurra.data.readers.dispatch import TABLES
from recurra.data.readers.open_files import existing, text_encoding
from recurra.problem import pairs, sequences, series, text
from recurra.problem.infer import BUILTIN_DATASETS, detect_format
from recurra.problem.problem import LoadedData


def read_like_training(source: str | Path, schema: dict[str, Any]) -> LoadedData:
    """The data of a file, read by the `schema` of a problem. A built-in data set gives its test part.

    **Example**

        >>> from pathlib import Path
        >>> steps = [f"{k},{k % 2},{'up' if k % 2 else 'down'}" for k in range(12) for _ in range(3)]
        >>> _ = Path("old.csv").write_text("\\n".join(["id,x,label", *steps]))
        >>> problem = rc.infer_problem("old.csv")
        >>> _ = Path("new.csv").write_text("id,x\\na,1\\na,1\\n")
        >>> rc.problem.read_like_training("new.csv", problem.schema).X[0].tolist()
        [[1.0], [1.0]]
    """
    if str(source) in BUILTIN_DATASETS and not Path(source).exists():
        X, y = sequences.builtin_problem(str(source), None, 0).test or ([], None)
        return LoadedData(X, y, _numbered(X))
    path = existing(source)
    with text_encoding(schema.get("encoding")):
        return _read(path, {**schema, "format": _compatible_format(path, schema)})


def _read(path: Path, schema: dict[str, Any]) -> LoadedData:
    match schema["task"]:
        case "forecast":
            table, notes, _ = series.read_series(path, schema)
            return LoadedData(table, None, [name for name, _ in series.split_series(table)], notes=notes)
        case "tag":
            X, y = text.read_sentences(path, schema)
            return LoadedData(X, y, _numbered(X))
        case "translate":
            return pairs.read_pairs(path, schema)
        case "language":
            return LoadedData(text.read_text(path), None, [path.name])
    return sequences.read_sequences(path, schema)


def _numbered(X: list[Any]) -> list[str]:
    return [str(k) for k in range(len(X))]


def _compatible_format(path: Path, schema: dict[str, Any]) -> str:
    """The file's format, which must be of the same kind as that of the training file: table, text or sequences."""
    found, trained = detect_format(path), schema["format"]
    is_prose = found in ("text", "sentences")
    if schema["task"] == "language":
        return found
    if is_prose and (schema["task"] in ("tag", "translate") or schema.get("vocabulary")):
        return found
    table_mismatch = (trained in TABLES) != (found in TABLES)
    if table_mismatch or is_prose or (found != trained and "conll" in found + trained):
        accepted = f"one of {', '.join(TABLES)}" if trained in TABLES else trained
        raise FormatError(path, f"the format {found}", f"{accepted}, like the training file")
    return found
