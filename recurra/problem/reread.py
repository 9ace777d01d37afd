"""Another file, read as the one a model learned from was read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recurra.data.data_errors import FormatError
from recurra.data.readers.open_files import existing
from recurra.problem import sequences, series, text
from recurra.problem.infer import BUILT_IN, format_in
from recurra.problem.tabular import FORMATS


@dataclass(frozen=True)
class Found:
    """X and y in the form of a question's; y is None where the file does not say. `names`: of the sequences."""

    X: Any
    y: Any
    names: list[str]


def read_again(source: str | Path, reading: dict[str, Any]) -> Found:
    """The data of a file by the `reading` of a question."""
    if str(source) in BUILT_IN and not Path(source).exists():
        X, y = sequences.built_in(str(source), None, 0).test or ([], None)
        return Found(X, y, [str(k) for k in range(len(X))])
    path = existing(source)
    reading = {**reading, "format": _fitting(path, reading)}
    match reading["task"]:
        case "forecast":
            table = series.read_table(path, reading)
            return Found(table, None, [name for name, _ in series.pieces(table)])
        case "tag":
            X, y = text.read_sentences(path, reading)
            return Found(X, y, [str(k) for k in range(len(X))])
        case "language":
            return Found(text.read_text(path), None, [path.name])
    items = sequences.read_items(path, reading)
    return Found(items.X, items.y, items.names)


def _fitting(path: Path, reading: dict[str, Any]) -> str:
    """The format of the file, which must be of the kind the model learned from: columns, words, or sequences."""
    found, before = format_in(path), reading["format"]
    tables = before in FORMATS, found in FORMATS
    prose = found in ("text", "sentences")
    if reading["task"] == "language":
        return found
    if prose and (reading["task"] == "tag" or reading.get("vocabulary")):
        return found
    if tables[0] != tables[1] or prose or (found != before and "conll" in found + before):
        kinds = ", ".join(FORMATS) if tables[0] else before
        raise FormatError(path, f"the format {found}", f"{kinds}, as the model learned from")
    return found
