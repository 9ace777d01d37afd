"""Which weights may influence which states, and how the influence is stored.

A *block* is a set of weights that one place of the step reads: `units` rows of `deep` weights each. Blocks may overlap:
the influence of a weight is the sum over its blocks. That of a block on a
root is "own" (one number per weight: weights of row j reach unit j only), "matrix" (every weight reaches every unit),
or nothing. The influence after n steps follows from that of one step and ∂s'/∂s: SnAp-n keeps what n steps reach, exact
RTRL what any number of steps reaches.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from ..ir.nodes import Matrix, Vector
from ..ir.values import Unsupported
from .structure import Root, StackStructure, Use

OWN, MATRIX = "own", "matrix"
START = "start:"  # before the name of a state whose first value is learned
MOST = 16  # states of a unit, and uses of a weight, that a program holds


@dataclass(eq=False)
class Block:
    """`units` × `deep` weights of one tensor that are used together."""

    cell: int
    weight: str
    start: int
    units: int
    unit_stride: int
    deep: int
    deep_stride: int
    uses: list[Use] = field(default_factory=list)
    kinds: dict[Root, str] = field(default_factory=dict)
    first: tuple[Root, ...] = ()  # the roots that it is itself before the first step

    @property
    def size(self) -> int:
        return self.units * self.deep

    @property
    def along_units(self) -> bool:
        """Whether neighbours in memory are units, not the weights of one unit."""
        return self.deep == 1 or self.unit_stride == 1

    @property
    def is_contiguous(self) -> bool:
        """Whether its weights lie in memory as their influence does."""
        near, far, count = self.unit_stride, self.deep_stride, self.units
        if not self.along_units:
            near, far, count = far, near, self.deep
        return near == 1 and (far == count or self.size == count)

    def of(self, weight: Tensor) -> Tensor:
        """The block as a view of its tensor, in the order of the influence."""
        flat = weight.reshape(-1)
        if self.along_units:
            return flat.as_strided((self.deep, self.units), (self.deep_stride, self.unit_stride), self.start)
        return flat.as_strided((self.units, self.deep), (self.unit_stride, self.deep_stride), self.start)

    def roots(self, kind: str) -> list[Root]:
        return [root for root, own in self.kinds.items() if own == kind]

    def kept(self, kind: str) -> list[Root]:
        """The roots on which the influence is carried from step to step."""
        return [root for root in self.roots(kind) if root.carried]


def blocks_of(
    structure: StackStructure, shapes: Mapping[tuple[int, str], tuple[int, ...]], starts: Mapping[tuple[int, str], str]
) -> list[Block]:
    """The blocks of all weights. `starts`: (cell, state) → the parameter that is its first value."""
    found: dict[tuple, Block] = {}
    for use in structure.uses:
        region = _region(use, shapes[use.cell, use.block.weight])
        found.setdefault(region, Block(*region)).uses.append(use)
    blocks = list(found.values())
    for (k, state), parameter in starts.items():
        size, delays = next((s.size, s.delays) for s in structure.cells[k].carried if s.name == state)
        if delays:
            raise Unsupported(f"a learned start of {state}, which is delayed")
        own = tuple(r for r in structure.roots if r.carried and r.label == f"{k}.{state}")
        if any(root.width != size for root in own):
            raise Unsupported(f"a learned start of {state}, which is made of several pieces")
        blocks.append(Block(k, START + parameter, 0, size, 1, 1, 1, first=own))
    if any(len(block.uses) > MOST for block in blocks):
        raise Unsupported(f"a weight that is read at more than {MOST} places")
    return blocks


def _region(use: Use, shape: tuple[int, ...]) -> tuple:
    """(cell, weight, start, units, stride of units, depth, stride of depth)."""
    columns = shape[-1] if len(shape) > 1 else 1
    match use.block:
        case Matrix(weight, (r0, r1), (c0, c1), flipped):
            start, rows, cols = r0 * columns + c0, r1 - r0, c1 - c0
            sizes = (cols, 1, rows, columns) if flipped else (rows, columns, cols, 1)
            return use.cell, weight, start, *sizes
        case Vector(weight, (low, high), None):
            return use.cell, weight, low, high - low, 1, 1, 1
        case Vector(weight, (low, high), int(column)):
            return use.cell, weight, low * columns + column, high - low, columns, 1, 1
    raise Unsupported(f"a weight read as {use.block}")


# ---------------------------------------------------------------------------------------------------- kinds


def state_links(structure: StackStructure) -> dict[tuple[Root, Root], str]:
    """(new root, old root) → how the one depends on the other."""
    carried = [root for root in structure.roots if root.carried]
    links: dict[tuple[Root, Root], str] = {}
    for read in structure.reads:
        width = read.cotangent.width
        touched = [s for s in carried if s.at < read.at + width and read.at < s.at + s.width]
        aligned = len(touched) == 1 and (touched[0].at, touched[0].width) == (read.at, width)
        own = read.cotangent.rows if aligned else {}
        for root in read.cotangent.roots:
            for s in touched:
                if root not in own or links.get((root, s)) == MATRIX:
                    links[root, s] = MATRIX
                else:
                    links[root, s] = OWN
    for root in carried:
        if root.moved_from >= 0:
            links[root, next(s for s in carried if s.at == root.moved_from)] = OWN
    return links


def immediate(block: Block) -> dict[Root, str]:
    found: dict[Root, str] = {}
    for use in block.uses:
        own = use.cotangent.rows
        for root in use.cotangent.roots:
            found[root] = OWN if root in own and found.get(root) != MATRIX else MATRIX
    return found


def reach(blocks: list[Block], links: dict[tuple[Root, Root], str], steps: int | None) -> None:
    """Set how each block influences each root after this many steps; None: any number; 0: nothing is kept.

    An output that is no state is not carried, so nothing is saved by leaving it out: it has all that the states give.
    """
    for block in blocks:
        if steps == 0:
            block.kinds = {}
            continue
        block.kinds = immediate(block) | dict.fromkeys(block.first, OWN)
        done = 1
        while (steps is None or done < steps) and _spread(block, links, carried=True):
            done += 1
        _spread(block, links, carried=False)
        block.kinds = dict(sorted(block.kinds.items(), key=lambda item: item[0].at))
        if len(block.roots(OWN)) > MOST:
            raise Unsupported(f"more than {MOST} states of one unit")


def _spread(block: Block, links: dict[tuple[Root, Root], str], carried: bool) -> bool:
    """Extend the influence by one step to states, or to outputs that are none; whether anything is new."""
    before = dict(block.kinds)
    for (new, old), link in links.items():
        if new.carried == carried and old in before and block.kinds.get(new) != MATRIX:
            block.kinds[new] = OWN if link == before[old] == OWN else MATRIX
    return block.kinds != before


def keeps_all(blocks: list[Block], links: dict[tuple[Root, Root], str]) -> bool:
    """Whether another step would reach nothing more: what is kept is then the whole influence, as SnAp-2 of a GRU."""
    for block in blocks:
        for (new, old), link in links.items():
            before, after = block.kinds.get(old), block.kinds.get(new)
            if before is not None and after != MATRIX and not (after == link == before == OWN):
                return False
    return True


def influence_numbers(blocks: list[Block]) -> int:
    """Numbers that the influence of one sequence holds."""
    return sum(b.size * (sum(r.width for r in b.kept(MATRIX)) + len(b.kept(OWN))) for b in blocks)


def multiplications(blocks: list[Block], links: dict[tuple[Root, Root], str]) -> int:
    """Multiply-adds a step that advance the influence of one sequence."""
    total = 0
    for block in blocks:
        for (new, old), link in links.items():
            kinds = block.kinds.get(new), block.kinds.get(old)
            if None not in kinds:
                wide = MATRIX in kinds
                total += block.size * (new.width if wide else 1) * (old.width if link == kinds[1] == MATRIX else 1)
    return total
