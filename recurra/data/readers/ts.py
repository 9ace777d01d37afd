"""Reads `.ts` files of the UEA and UCR archives: one sequence per line, dimensions separated by colons."""

import re
from pathlib import Path

import torch
from torch import Tensor

from ..data_errors import DataError, EmptyFileError, FormatError, MissingValueError, RaggedRowError
from ..sequences import SequenceSet
from .labels import Encoder, classes_of
from .open_files import existing, lines

COMMENTS = ("#", "%")
AFTER_PAIRS = re.compile(r"(?<=\))\s*:")


def read_ts(path: str | Path, classes=None, missing: str = "error") -> SequenceSet:
    """Cases as sequences (T, D), with the classes of the header, or with `classes` in a given order.

    A `?` is a missing value: `missing="fill"` repeats the last value, `missing="drop"` drops the step.

    **Example**

        >>> from pathlib import Path
        >>> head = "@problemName waves\\n@timeStamps false\\n@univariate true\\n@classLabel true up down\\n@data\\n"
        >>> _ = Path("waves.ts").write_text(head + "0.1,0.5,0.9:up\\n0.8,0.2:down\\n")
        >>> data = rc.data.read_ts("waves.ts")
        >>> data.lengths.tolist(), data.classes
        ([3, 2], ('up', 'down'))
    """
    path = existing(path)
    numbered = lines(path)
    header = _header(numbered, path)
    labelled, targeted = "classlabel" in header, "targetlabel" in header
    cases, marks, places = [], [], []
    for line, text in numbered:
        if not text.strip() or text.startswith(COMMENTS):
            continue
        pieces = _dimensions(text, header)
        *dimensions, last = pieces if labelled or targeted else [*pieces, ""]
        cases.append(_case(dimensions, header, path, line, missing))
        marks.append(last.strip())
        places.append(line)
    if not cases:
        raise EmptyFileError(path, "no case after @data", "at least one")
    return _build_set(cases, marks, places, header, labelled, targeted, classes, path)


def _build_set(cases, marks, places, header, labelled, targeted, classes, path: Path) -> SequenceSet:
    lengths = torch.tensor([len(case) for case in cases])
    if labelled:
        encoder = Encoder(classes or header["classlabel"] or classes_of(marks), path, "class label")
        labels = encoder.encode(marks, places)
        return SequenceSet(cases, labels, lengths, "classification", classes=encoder.known, source=str(path))
    if targeted:
        values = torch.tensor([_number(m, path, p, "target") for m, p in zip(marks, places, strict=True)])
        return SequenceSet(cases, values[:, None].to(cases[0].dtype), lengths, "regression", source=str(path))
    return SequenceSet.one_step_ahead(cases, lengths, "next_step", source=str(path))


def _header(numbered, path: Path) -> dict[str, list[str]]:
    """The @-lines up to @data, with lower-case keys; the classes are listed after `true`."""
    header: dict[str, list[str]] = {}
    for line, text in numbered:
        words = text.split()
        if not words or text.startswith(COMMENTS):
            continue
        if not words[0].startswith("@"):
            raise FormatError(path, repr(text[:40]), "a header line that begins with @, # or %", line)
        key = words[0][1:].lower()
        if key == "data":
            return header
        if key in ("classlabel", "targetlabel"):
            if len(words) < 2 or words[1].lower() not in ("true", "false"):
                raise FormatError(path, repr(text[:40]), f"{words[0]} true or false", line)
            if words[1].lower() == "true":
                header[key] = words[2:]
        else:
            header[key] = words[1:]
    raise FormatError(path, "no line @data", "the cases after a line @data")


def _dimensions(text: str, header: dict[str, list[str]]) -> list[str]:
    """The dimensions of a case and, after the last colon, its label; the colons of a clock separate nothing."""
    return AFTER_PAIRS.split(text) if _has_timestamps(header) else text.split(":")


def _has_timestamps(header: dict[str, list[str]]) -> bool:
    return header.get("timestamps", ["false"])[0].lower() == "true"


def _case(dimensions: list[str], header: dict[str, list[str]], path: Path, line: int, missing: str) -> Tensor:
    if _has_timestamps(header):
        rows = [_timestamped_values(dimension, path, line, k) for k, dimension in enumerate(dimensions, start=1)]
    else:
        rows = [[_value(f, path, line, k) for f in d.split(",")] for k, d in enumerate(dimensions, start=1)]
    declared = header.get("dimensions")
    if declared and len(rows) != int(declared[0]):
        raise RaggedRowError(path, f"{len(rows)} dimensions", f"{declared[0]}, as the header says", line)
    if len({len(row) for row in rows}) > 1:
        raise RaggedRowError(path, f"dimensions of lengths {[len(row) for row in rows]}", "equal lengths", line)
    return _handle_gaps(torch.tensor(rows, dtype=torch.get_default_dtype()).T.contiguous(), missing, path, line)


def _timestamped_values(dimension: str, path: Path, line: int, column: int) -> list[float]:
    """`(time,value),(time,value)`: the values, in their order."""
    pairs = dimension.strip().removeprefix("(").removesuffix(")").split("),(")
    return [_value(pair.rsplit(",", 1)[-1], path, line, column) for pair in pairs]


def _value(field: str, path: Path, line: int, column: int) -> float:
    field = field.strip()
    return float("nan") if field in ("?", "NaN", "nan") else _number(field, path, line, column)


def _number(text: str, path: Path, line: int, column: str | int) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise FormatError(path, repr(text[:40]), "a number", line, column) from error


def _handle_gaps(case: Tensor, missing: str, path: Path, line: int) -> Tensor:
    gaps = torch.isnan(case)
    if not bool(gaps.any()):
        return case
    column = int(gaps.any(dim=0).int().argmax()) + 1
    if missing == "drop" and not bool(gaps.any(dim=1).all()):
        return case[~gaps.any(dim=1)]
    if missing == "fill" and not bool(gaps.all(dim=0).any()):
        return _fill_gaps(case, gaps)
    if missing not in ("error", "drop", "fill"):
        raise DataError("missing", repr(missing), "error, drop or fill")
    raise MissingValueError(path, "?", 'a value; use missing="drop" or "fill"', line, column)


def _fill_gaps(case: Tensor, gaps: Tensor) -> Tensor:
    steps = torch.arange(len(case))[:, None].expand_as(case)
    last = torch.where(gaps, -1, steps).cummax(dim=0).values
    first = torch.where(gaps, len(case), steps).amin(dim=0, keepdim=True)
    return case.gather(0, torch.where(last < 0, first, last))
