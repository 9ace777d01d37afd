"""Who computes what on the card: how many columns and rows a program owns, on how many warps, where its weights lie.

Programs that share the columns must all run at once, for they wait for each other: there are never more of them than
the card has multiprocessors. Where the registers of one multiprocessor hold all weights, a program can have all columns
of a row to itself, and wait for nobody (`alone.py`).

Every tiling that fits is given a price, and the cheapest is taken: what a step costs is the way of a number from one
program to the others, what a program reads of the others' numbers, and what its tensor cores do; or, of a program
alone, its multiplications.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...ir.buffers import X
from ...ir.nodes import Node
from ...plan.schedule import Group, Schedule

COLUMNS, ROWS, WARPS = (8, 16, 32, 64), (16, 32, 64), (4, 8)  # the least the tensor cores take, and more
SHARED_BY = (2, 4)  # without tensor cores: threads that share the depth of a column
REGISTERS_ALONE, OTHERS = 240, 40  # of a thread, for weights, running sums and operands on their way; for all else
REGISTER_FILE = 65_536  # of a multiprocessor
REGISTERS = {2: 184, 4: 150}  # of the 255 of a thread, for a product; 32-bit numbers need more on the way
SPARE = 8_192  # bytes of shared memory that Triton may want for itself
# Measured on an H200, in cycles and bytes a cycle.
FAR, NEAR = 20, 128  # what a processor reads of the card's memory when all of them read; of its own shared memory
TRIP, CHAIN = 700, 33  # to memory and back; a product that waits for the one before
STAGE, NUMBER = 2400, 250  # what is always there; what is left to do for each number of a thread
WARP = 30  # what each warp adds where all of them meet
SPLIT = 2  # for each weight of a thread that is multiplied in three parts
CROWD = 4_000_000  # bytes from which on it pays to look for heralds
STAGE_ALONE, LANE, OPERAND, WEIGHT = 500, 70, 3, 1 / 110  # of a program alone; an operand's by the column


@dataclass(frozen=True)
class Tiling:
    columns: int  # U: of a program
    programs: int  # side by side, for a tile of the batch
    rows: int  # BT: of a tile
    warps: int  # S
    weights: str  # where they lie: "registers", "shared", "memory"
    depth: int = 8  # pieces of operands on their way at a time
    heralds: bool = False  # whether programs look for a sign of each other before they ask for everything

    @property
    def alone(self) -> bool:
        """Whether a program has all columns of its rows, and waits for nobody."""
        return self.rows == 1

    def tiles(self, batch: int) -> int:
        return -(-batch // self.rows)

    def abreast(self, batch: int, processors: int) -> int:
        """Tiles of the batch that run side by side; the rest follow. Who waits for nobody need not be there at once."""
        if self.alone:
            return self.tiles(batch)
        return min(self.tiles(batch), max(1, processors // self.programs))

    def passes(self, batch: int, processors: int) -> int:
        return -(-self.tiles(batch) // self.abreast(batch, processors))


def tiling(
    schedule: Schedule, bytes_a_number: int, batch: int, processors: int, shared_memory: int, way: str = ""
) -> Tiling | None:
    """The tiling for a batch, or None if the card is too small for any. A `way`, "alone" or "together", is taken if
    there is a tiling for it."""
    shapes = [*_alone(schedule), *_fitting(schedule, bytes_a_number, processors, shared_memory - SPARE)]
    asked_for = [shape for shape in shapes if way == ("alone" if shape.alone else "together")] or shapes
    best = min(asked_for, key=lambda s: _cycles(s, schedule, bytes_a_number, batch, processors), default=None)
    if best is None or best.alone:
        return best
    busiest = max((_read(best, group, bytes_a_number, batch, processors) for group in schedule.groups), default=0)
    return replace(best, heralds=busiest > CROWD)


def _alone(schedule: Schedule) -> Iterator[Tiling]:
    """All columns of a row for a program, if its registers have room for all weights."""
    wide = max((group.width for group in schedule.groups), default=1)
    columns = max(16, 1 << (wide - 1).bit_length())
    if recurrent(schedule) and _read_as_written(schedule):
        for shared_by in SHARED_BY:
            shape = Tiling(columns, 1, 1, columns * shared_by // 32, "registers")
            if shape.warps <= max(WARPS) and _registers_alone(shape, schedule) <= REGISTERS_ALONE:
                yield shape


def _registers_alone(shape: Tiling, schedule: Schedule) -> int:
    weights = len(recurrent(schedule)) * shape.columns**2 // (32 * shape.warps)
    return weights + max(4 * len(group.lanes) + 8 * len(_operands(group)) for group in schedule.groups)


def _read_as_written(schedule: Schedule) -> bool:
    """Whether products read pieces of states as they were written, a step before, and before they are written anew."""
    written = {
        (out.buffer, out.offset, out.node.width): number
        for number, group in enumerate(schedule.groups)
        for out in group.stores
    }
    return all(
        a.attr.lag == 1 and written.get((a.attr.buffer, a.attr.offset, a.width), -1) >= number
        for number, group in enumerate(schedule.groups)
        for lane in group.lanes
        for a in lane.args
        if a.op == "load" and not is_x(a)
    )


def _fitting(schedule: Schedule, size: int, processors: int, room: int) -> Iterator[Tiling]:
    wide = max((group.width for group in schedule.groups), default=1)
    for columns in COLUMNS:
        programs = -(-wide // columns)
        if programs <= processors:
            for rows in ROWS:
                for warps in WARPS:
                    for shape, shared in _placed(schedule, size, columns, programs, rows, warps):
                        if shared <= room:
                            yield shape


def _placed(
    schedule: Schedule, size: int, columns: int, programs: int, rows: int, warps: int
) -> Iterator[tuple[Tiling, int]]:
    """With the weights in each place where the registers have room for running sums and for operands on their way; and
    the shared memory it takes."""
    weights = sum(matrix.deep for matrix in recurrent(schedule)) * columns * size
    lanes = max((len(group.lanes) for group in schedule.groups), default=0)
    sums, piece = lanes * rows * columns // 32, rows // 2
    bench = lanes * warps * rows * columns * 4
    deepest = max((_pieces(group, size, warps) for group in schedule.groups), default=1)
    places = (("registers", weights // (128 * warps), 0), ("shared", columns, weights), ("memory", 2 * columns, 0))
    for place, held, shared in places:
        depth = min(max(1, deepest), (REGISTERS[size] - held - sums) // piece)
        if depth >= 1:
            yield Tiling(columns, programs, rows, warps, place, depth), bench + shared


def _cycles(shape: Tiling, schedule: Schedule, size: int, batch: int, processors: int) -> float:
    """What a step takes, about."""
    if shape.alone:
        return _cycles_alone(shape, schedule, batch, processors)
    total = 0.0
    for group in schedule.groups:
        pieces = _pieces(group, size, shape.warps)
        if not pieces:
            continue
        total += STAGE + WARP * shape.warps + TRIP * (-(-pieces // shape.depth) - 1) + pieces * 2 * CHAIN
        total += NUMBER * -(-shape.rows * shape.columns // (32 * shape.warps))
        total += _read(shape, group, size, batch, processors) / (FAR * processors)
        total += len(group.lanes) * shape.warps * shape.rows * shape.columns * 8 / NEAR  # shares meeting
        total += _held(group) * shape.columns * size / NEAR if shape.weights == "shared" else 0
        total += SPLIT * _held(group) * shape.columns / (32 * shape.warps) if size == 4 else 0
    return total * shape.passes(batch, processors)


def _cycles_alone(shape: Tiling, schedule: Schedule, batch: int, processors: int) -> float:
    """Programs on the same processor hide each other's waiting, but not all of their work."""
    stages = [group for group in schedule.groups if _operands(group)]
    work = WEIGHT * len(recurrent(schedule)) * shape.columns**2
    work += sum(LANE * len(group.lanes) + OPERAND * shape.columns * len(_operands(group)) for group in stages)
    of_one = 32 * shape.warps * (_registers_alone(shape, schedule) + OTHERS)
    programs = -(-batch // processors)  # of a processor
    at_once = min(programs, max(1, REGISTER_FILE // of_one))
    return (STAGE_ALONE * len(stages) + work * (1 + at_once) / 2) * -(-programs // at_once)


def _read(shape: Tiling, group: Group, size: int, batch: int, processors: int) -> int:
    """Bytes that all programs together read at a step."""
    own = sum(_operands(group).values()) * min(batch, shape.rows) * size
    own += 3 * _held(group) * shape.columns * size // 2 if shape.weights == "memory" else 0  # these nobody hides
    return own * shape.programs * shape.abreast(batch, processors)


def _held(group: Group) -> int:
    """Rows of the weights of a group."""
    pairs = ((a, m) for lane in group.lanes for a, m in zip(lane.args, lane.attr, strict=True))
    return sum(matrix.deep for operand, matrix in pairs if not is_x(operand))


def _operands(group: Group) -> dict[Node, int]:
    return {a: a.width for lane in group.lanes for a in lane.args if not is_x(a)}


def _pieces(group: Group, size: int, warps: int) -> int:
    """Pieces of the operands of a group that a warp takes one after the other."""
    return sum(-(-width * size // (64 * warps)) for width in _operands(group).values())


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
    return operand.op == "load" and operand.attr.buffer == X
