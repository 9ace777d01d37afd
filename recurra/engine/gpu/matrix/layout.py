"""Which programs compute which part of a row's matrices, and how large the tile of a program is."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from ...ir.nodes import Node
from ...ir.values import Unsupported
from .axes import Axes, Axis

TILE = 512  # numbers of a matrix that a program of one warp holds
LARGEST = 16384  # that one program holds
MOST_WARPS = 8


@dataclass(frozen=True)
class TileLayout:
    """A program has one coordinate along each outer axis, a block of one axis, and all of the others."""

    outer: tuple[Axis, ...]
    block: Axis | None
    width: int  # of the block
    warps: int

    @property
    def blocks(self) -> int:
        return -(-self.block.size // self.width) if self.block else 1

    @property
    def programs(self) -> int:
        """Of one row."""
        return self.blocks * prod(axis.size for axis in self.outer)

    def length(self, axis: Axis) -> int:
        """Numbers of a tile along an axis: a power of two."""
        return self.width if axis is self.block else 1 << (axis.size - 1).bit_length()

    def on_tile(self, axes: Iterable[Axis]) -> list[Axis]:
        """Those of a value's axes along which a tile has several numbers."""
        return [axis for axis in axes if axis not in self.outer]

    def describe(self) -> str:
        """For `rc.explain`."""
        parts = [f"{axis.size} heads" for axis in self.outer]
        parts += [f"{self.blocks} blocks of {self.width} columns"] if self.block else []
        return f"{' × '.join(parts) or 'one program'} for each row, {self.warps} warps each"


def choose(axes: Axes, carried: Iterable[Node], matrices: Iterable[Node]) -> TileLayout:
    """The layout of a kernel; `carried` is what the next step reads, `matrices` is what stays on the chip."""
    tile = TILE
    users = {*carried, *(arg for node in axes.nodes for arg in node.args)}
    own = max((axes.of(node) for node in matrices), key=lambda found: prod(axis.size for axis in found))
    order = list(dict.fromkeys(own))
    whole, shared = set(), set()  # axes that one program must have all of; axes summed over, by results alone
    for node in axes.nodes:
        found = axes.of(node)
        whole |= {axis for axis in found if found.count(axis) > 1}
        if node.op == "product":
            whole |= {*found, *axes.of(node.args[0])}
        summed = _summed(node, axes)
        if node in users or (node.op == "gather" and node.attr.kind != "sum") or node.attr == "max":
            whole |= summed
        else:
            shared |= summed
    free = [axis for axis in order if axis not in whole]
    alone = [axis for axis in free if axis not in shared]
    block = free[-1] if free else None
    if block in alone and len(own) > 2 and block is own[0]:  # heads, not columns
        block = None
    outer = tuple(axis for axis in alone if axis is not block)
    inner = prod(1 << (axis.size - 1).bit_length() for axis in own if axis not in outer and axis is not block)
    width = 1
    if block is not None:
        most = 1 << (block.size - 1).bit_length()
        while width < most and (width < 4 or 2 * width * inner <= tile):
            width *= 2
    if inner * width > LARGEST:
        raise Unsupported(f"a matrix of {inner * width} numbers in one program on the GPU")
    warps = 1
    while warps < MOST_WARPS and inner * width > tile * warps:
        warps *= 2
    return TileLayout(outer, block, width, warps)


def _summed(node: Node, axes: Axes) -> set[Axis]:
    """The axes that a value is summed over."""
    if node.op == "rowsum":
        return set(axes.of(node.args[0]))
    if node.op == "gather":
        combination = axes.combinations[node]
        return {axis.root() for axis in combination.axes[combination.results :]}
    return set()
