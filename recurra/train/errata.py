"""The errata of the survey: 19 of mathematics, 12 of attribution, 6 of presentation.

What numbers can show is computed on one small random network; the rest is listed with the corrected sentence. Lines
refer to the survey's LaTeX source.
"""

from collections.abc import Sequence
from dataclasses import replace

from recurra.argument_checks import whole_number
from recurra.errors import UnknownNameError
from recurra.train.errata_mathematical import DEMONSTRATIONS, Network
from recurra.train.errata_other import ATTRIBUTION, PRESENTATION
from recurra.train.erratum import Erratum

KINDS = ("mathematical", "attribution", "presentation")


class Errata(Sequence[Erratum]):
    """Errata by index or by number (`errata()["E7"]`); prints as a table.

    **Example**

        >>> found = rc.train.errata()
        >>> len(found), found["E7"].number, found[0].kind
        (37, 'E7', 'mathematical')
    """

    def __init__(self, items: Sequence[Erratum]):
        self.items = tuple(items)

    def __getitem__(self, index):  # pyrefly: ignore
        if isinstance(index, str):
            found = {e.number: e for e in self.items}
            if index not in found:
                raise UnknownNameError("erratum", index, found)
            return found[index]
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def __str__(self) -> str:
        rows = []
        for e in self.items:
            indent = f"      {'':{5 + len(e.lines)}}"
            rows.append(f"{e.number:<5} line {e.lines}: printed  {e.printed}")
            rows.append(f"{indent} right    {e.right}")
            if e.why:
                rows.append(f"{indent} because  {e.why}")
            if e.measured:
                values = f"{e.printed_value:.4g} printed, {e.right_value:.4g} right"
                rows.append(f"{indent} {e.measured}: {values}, error {e.error:.3g}")
        return "\n".join(rows)


def errata(seed: int = 0, kind: str | None = None) -> Errata:
    """All errata of the survey; those that numbers can show are computed.

    **Arguments**

    - `seed`: of the random network.
    - `kind`: "mathematical", "attribution" or "presentation"; None for all.

    **Returns** a sequence of `Erratum`, also by number; `print(rc.train.errata())` shows a table.

    **Example**

    >>> found = rc.train.errata()
    >>> len(found), found["E1"].printed
    (37, 'exp(y_1) / Σ exp(y_j)')
    >>> found["E17"].right
    'that model is complex and unitary: a product of structured factors, with modReLU (rc.UnitaryRNN)'
    """
    if kind is not None and kind not in KINDS:
        raise UnknownNameError("kind", repr(kind), KINDS)
    net = Network(whole_number("seed", seed))
    found = [replace(make(net), why=why) for make, why in DEMONSTRATIONS.items()]
    found += [item(net) if callable(item) else item for item in (*ATTRIBUTION, *PRESENTATION)]
    return Errata([e for e in found if kind in (None, e.kind)])
