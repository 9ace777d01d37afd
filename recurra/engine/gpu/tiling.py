"""Who computes what on the card: how many columns and rows a program owns, on how many warps, where its weights lie.

Programs must all run at once, for they wait for each other: there are never more of them than the card has
multiprocessors. What a step costs is mostly the way of a number from one program to the others, so batches are cut in
tiles of sixteen rows as long as there is room, and columns in slices of eight, the least the tensor cores take.
"""

from dataclasses import dataclass, replace

from ..nodes import Node
from ..schedule import Group, Schedule

LEAST_COLUMNS, LEAST_ROWS, MOST_ROWS = 8, 16, 64
ROOM = {2: 170, 4: 130}  # of the 255 registers of a thread, for a product; 32-bit ones need more on the way
SHARED = 200_000  # bytes of shared memory for weights, of 227 KiB


@dataclass(frozen=True)
class Tiling:
    columns: int  # U: of a program
    programs: int  # side by side, for a tile of the batch
    rows: int  # BT: of a tile
    warps: int  # S
    weights: str  # where they lie: "registers", "shared", "memory"
    depth: int = 8  # pieces of operands on their way at a time

    def tiles(self, batch: int) -> int:
        return -(-batch // self.rows)

    def abreast(self, batch: int, processors: int) -> int:
        """Tiles of the batch that run side by side; the rest follow."""
        return min(self.tiles(batch), max(1, processors // self.programs))


def tiling(schedule: Schedule, bytes_a_number: int, batch: int, processors: int) -> Tiling | None:
    """The tiling for a batch, or None if the card is too small for any."""
    wide = max((group.width for group in schedule.groups), default=1)
    columns = LEAST_COLUMNS
    while -(-wide // columns) > processors:
        columns *= 2
        if columns > 64:
            return None
    programs = -(-wide // columns)
    rows = LEAST_ROWS
    while rows < MOST_ROWS and -(-batch // rows) > max(1, processors // programs):
        rows *= 2
    return _placed(schedule, bytes_a_number, Tiling(columns, programs, rows, 8, "memory"))


def _placed(schedule: Schedule, size: int, shape: Tiling) -> Tiling:
    """Where the weights lie, on how many warps: what a thread holds is weights, running sums and operands."""
    weights = sum(matrix.deep for matrix in recurrent(schedule)) * shape.columns * size
    lanes = max((len(group.lanes) for group in schedule.groups), default=0)
    sums = lanes * shape.rows * shape.columns / 32
    piece = shape.rows // 4  # registers for a piece of an operand: sixteen bytes a thread, for each eight rows
    deepest = max((_pieces(group, size) for group in schedule.groups), default=1)
    for warps in (4, 8):
        pieces = -(-deepest // warps)
        if weights / (128 * warps) + sums + piece * pieces <= ROOM[size]:
            return replace(shape, warps=warps, weights="registers", depth=max(1, pieces))
    for place, held in (("registers", weights / 1024), ("shared" if weights <= SHARED else "memory", 16.0)):
        spare = ROOM[size] - held - sums
        if spare >= 2 * piece:
            return replace(shape, weights=place, depth=int(spare // piece))
    return replace(shape, weights=place, depth=1)


def _pieces(group: Group, size: int) -> int:
    """Pieces of the operands of a group, each as deep as one warp takes at a time."""
    operands = {a: a.width for lane in group.lanes for a in lane.args if not is_x(a)}
    return sum(-(-width * size // 64) for width in operands.values())


def recurrent(schedule: Schedule) -> list:
    """The matrices that multiply something other than the input: what a program must hold."""
    return [
        matrix
        for group in schedule.groups
        for lane in group.lanes
        for operand, matrix in zip(lane.args, lane.attr, strict=True)
        if not is_x(operand)
    ]


def is_x(operand: Node) -> bool:
    return operand.op == "load" and operand.attr.buffer == "x"
