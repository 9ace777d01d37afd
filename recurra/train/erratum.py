"""What one erratum is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Erratum:
    """One erratum of the survey: the printed and the correct form, and where numbers can show it, both values.

    `why` is the reason in a sentence; all of mathematics have one. `error` is the distance between the two forms; 0
    would mean they agree. An erratum that numbers cannot show has no `measured` quantity, and None for its values.

    **Example**

        >>> erratum = rc.train.errata()["E7"]
        >>> print(erratum.printed)
        (1 - hᵀh) I
        >>> print(erratum.right)
        diag(1 - h ⊙ h)
        >>> erratum.error > 0
        True
    """

    number: str
    lines: str  # of the survey's LaTeX source
    printed: str
    right: str
    measured: str = ""  # the quantity that is compared
    printed_value: float | None = None
    right_value: float | None = None
    error: float | None = None
    kind: str = "mathematical"  # or "attribution", "presentation"
    why: str = ""
