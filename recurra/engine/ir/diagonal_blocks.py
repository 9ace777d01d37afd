"""Which weights of a cell are zero outside blocks on their diagonal, so that products with them skip the rest."""

from ...affine import Affine
from ...cell import Cell
from ...cells.derivations import BlockDiagonal


def diagonal_blocks(cell: Cell) -> dict[str, tuple[int, int]]:
    """Weight → rows and columns of a block."""
    found = {}
    affines = ((path, module) for path, module in cell.named_modules() if isinstance(module, Affine))
    for path, affine in affines:
        for name, chain in affine.derivations.items():
            # A further derivation, such as a spectral norm, may fill the zeros.
            if [type(derivation) for derivation in chain] == [BlockDiagonal]:  # pyrefly: ignore
                _, rows, cols = affine.stored(name).shape
                found[f"{path}.{name}"] = rows, cols
    return found
