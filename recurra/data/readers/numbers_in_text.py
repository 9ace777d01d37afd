"""Numbers as people write them: decimal commas, thousands separators, spaces around them."""

import re
from collections.abc import Sequence

import numpy as np

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
SPACES = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2019": "'", "\u2212": "-"})


def find_notation(texts: Sequence[str], delimiter: str = ",") -> tuple[str, np.ndarray] | None:
    """The notation that all of `texts` share, and their values; None if there is none.

    1,234 fits two notations. In a file delimited by semicolons the comma is the decimal sign, elsewhere it separates
    thousands; a value such as 0,5 or 1,234.5 decides before that.
    """
    cleaned = [text.strip().translate(SPACES) for text in texts]
    if not cleaned or not any(any(sign in text for sign in ",. '") for text in cleaned):
        return None
    names = list(NOTATIONS)
    if delimiter != ";":
        names[:2] = names[1::-1]
    for name in names:
        pattern, removed, decimal = NOTATIONS[name]
        if all(text and pattern.fullmatch(text) for text in cleaned):
            plain = (text.replace(removed, "") if removed else text for text in cleaned)
            return name, np.array([float(text.replace(decimal, ".")) for text in plain])
    return None
