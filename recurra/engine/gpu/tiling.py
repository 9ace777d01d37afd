"""Who computes what on the card: how many columns and rows a program owns, on how many warps, and where its weights lie.

Programs must all run at once, for they wait for each other: there are never more of them than the card has
multiprocessors. What a step costs is mostly the way of a number from one program to the others, so batches are cut in
tiles of sixteen rows as long as there is room, and columns in slices of eight, the least the tensor cores take.
"""

from dataclasses import dataclass

from ..schedule import Schedule

LEAST_COLUMNS, LEAST_ROWS, MOST_ROWS = 8, 16, 64
REGISTERS = 150  # of 255 a thread has: for weights and running sums
SHARED = 200_000  # bytes of shared memory for weights, of 227 KiB


@dataclass(frozen=True)
class Tiling:
    columns: int  # U: of a program
    programs: int  # side by side, for a tile of the batch
    rows: int  # BT: of a tile
    warps: int  # S
    weights: str  # where they lie: "registers", "shared", "memory"

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
    loads = sum(matrix.deep for matrix in recurrent(schedule)) * columns * bytes_a_number
    lanes = max((len(group.lanes) for group in schedule.groups), default=0)
    for warps in (4, 8):
        if loads / (128 * warps) + lanes * rows * columns / 32 <= REGISTERS:
            return Tiling(columns, programs, rows, warps, "registers")
    return Tiling(columns, programs, rows, 8, "shared" if loads <= SHARED else "memory")


def recurrent(schedule: Schedule) -> list:
    """The matrices that multiply something other than the input: what a program must hold."""
    return [
        matrix
        for group in schedule.groups
        for lane in group.lanes
        for operand, matrix in zip(lane.args, lane.attr, strict=True)
        if not (operand.op == "load" and operand.attr.buffer == "x")
    ]
