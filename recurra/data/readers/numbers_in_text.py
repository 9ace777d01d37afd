"""Numbers as people write them: decimal commas, thousands separators, spaces around them, % or a currency."""

import re
from collections.abc import Sequence

import numpy as np

from ...numerals import is_number

SIGN, EXPONENT = r"(?=.*\d)[+-]?", r"(?:[eE][+-]?\d+)?"
#: name of the notation → (pattern, characters to remove, the decimal sign)
NOTATIONS: dict[str, tuple[re.Pattern[str], str, str]] = {
    "decimal comma": (re.compile(rf"{SIGN}\d*(?:,\d+)?{EXPONENT}"), "", ","),
    "thousands comma": (re.compile(rf"{SIGN}\d{{1,3}}(?:,\d{{3}})*(?:\.\d+)?{EXPONENT}"), ",", "."),
    "thousands point, decimal comma": (re.compile(rf"{SIGN}\d{{1,3}}(?:\.\d{{3}})*(?:,\d+)?{EXPONENT}"), ".", ","),
    "thousands space": (re.compile(rf"{SIGN}\d{{1,3}}(?: \d{{3}})*(?:\.\d+)?{EXPONENT}"), " ", "."),
    "thousands space, decimal comma": (re.compile(rf"{SIGN}\d{{1,3}}(?: \d{{3}})*(?:,\d+)?{EXPONENT}"), " ", ","),
    "thousands apostrophe": (re.compile(rf"{SIGN}\d{{1,3}}(?:'\d{{3}})*(?:\.\d+)?{EXPONENT}"), "'", "."),
}
#: a number with a unit before or after it: $1,234.50, -€5, 12 %
WITH_UNIT = re.compile(r"(?P<sign>[+-]?)\s*(?P<before>[$€£¥]?)\s*(?P<number>[+-]?[\d.,' ]*\d)\s*(?P<after>[%$€£¥]?)")
SPACES = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2019": "'", "\u2212": "-"})


def find_notation(
    texts: Sequence[str], delimiter: str = ",", decimal: str | None = None
) -> tuple[str, np.ndarray] | None:
    """The notation that all of `texts` share, and their values; None if there is none.

    1,234 fits two notations. `decimal` ("comma" or "point") decides; without it, in a file delimited by semicolons the
    comma is the decimal sign, elsewhere it separates thousands; a value such as 0,5 or 1,234.5 decides before that.
    """
    cleaned = [text.strip().translate(SPACES) for text in texts]
    unit, cleaned = _without_unit(cleaned)
    if not cleaned or not (unit or any(any(sign in text for sign in ",. '") for text in cleaned)):
        return None
    if unit and decimal != "comma" and all(map(is_number, cleaned)):
        return unit, np.array([float(text) for text in cleaned])
    names = list(NOTATIONS)
    if decimal is not None:
        names = [name for name in names if (NOTATIONS[name][2] == ",") == (decimal == "comma")]
    elif delimiter != ";":
        names[:2] = names[1::-1]
    for name in names:
        pattern, removed, sign = NOTATIONS[name]
        if all(text and pattern.fullmatch(text) for text in cleaned):
            plain = (text.replace(removed, "") if removed else text for text in cleaned)
            values = np.array([float(text.replace(sign, ".")) for text in plain])
            return f"{unit}, {name}" if unit else name, values
    return None


def _without_unit(texts: list[str]) -> tuple[str, list[str]]:
    """The unit that all texts have, such as % or €, and the numbers beside it; "" and the texts without one."""
    found = [WITH_UNIT.fullmatch(text) for text in texts]
    units = {match["before"] or match["after"] if match else "" for match in found}
    if len(units) != 1 or not (unit := next(iter(units))):
        return "", texts
    return unit, [match["sign"] + match["number"] for match in found if match]
