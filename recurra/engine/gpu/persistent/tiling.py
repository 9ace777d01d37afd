"""The tiling of a persistent kernel: rows, columns and warps of a program, and where its weights are kept.

Two modes. Cooperative: the programs of a tile of the batch share its columns. They wait for each other, so all must be
resident at once: there are never more of them than multiprocessors. One program per row: where the registers of one
multiprocessor hold all weights, a program owns all columns of a row and waits for no other.

A cost model estimates the cycles per step of every tiling that fits, and the cheapest is chosen. In cooperative mode it
counts the round trip of a value between programs, the bytes read and the tensor-core instructions; with one program per
row, the multiplications.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...ir.buffers import Role
from ...ir.nodes import Matrix, Node
from ...plan.schedule import Group, Schedule

COOPERATIVE, ROW_PER_PROGRAM = "cooperative", "row_per_program"
COLUMNS, ROWS, WARPS = (8, 16, 32, 64), (16, 32, 64), (4, 8)  # from the smallest tensor-core instruction on
SHARED_BY = (2, 4)  # one program per row: threads that share the depth of a column
REGISTERS_ROW_PER_PROGRAM = 240  # per thread, for weights, running sums and operands
REGISTERS_OTHER = 40  # per thread, for everything else
REGISTER_FILE = 65_536  # of a multiprocessor
REGISTERS = {2: 184, 4: 150}  # per thread of 255, for a product, by element size; float32 needs more temporaries
SPARE = 8_192  # bytes of shared memory left to Triton
# Measured on an H200, in cycles and bytes per cycle.
GLOBAL_RATE = 20  # bytes a multiprocessor reads from device memory while all of them read
SHARED_RATE = 128  # bytes it reads from its shared memory
ROUND_TRIP, DEPENDENT_MMA = 700, 33  # a load from device memory; a tensor-core instruction that waits for the last
STAGE, NUMBER, SUM = 2400, 255, 15  # fixed cost of a stage; per element of a thread, and for each product of it
HIDDEN, OPERATION = 20, 3  # operations of a group after row sums while it waits for them; each further one, per element
WARP = 30  # per warp, for the reduction over warps
SPLIT = 2  # per weight of a thread that is multiplied in three TF32 products
PROBE_BYTES = 4_000_000  # read per step by all programs, from which on probing first pays
POLLS = 3  # times that a program loads the parts of row sums before all are there
STAGE_ROW_PER_PROGRAM, LANE, OPERAND, WEIGHT = 500, 70, 3, 1 / 110  # one program per row; OPERAND: per column


@dataclass(frozen=True)
class Tiling:
    """Sizes of a persistent kernel's programs."""

    columns: int  # U: of a program
    programs: int  # per tile of the batch
    rows: int  # BT: of a tile
    warps: int  # S
    weights: str  # where they are kept: "registers", "shared", "memory"
    depth: int = 8  # operand pieces in flight at a time
    probe_first: bool = False  # a warp polls one vector per program before it loads whole operands

    @property
    def row_per_program(self) -> bool:
        """Whether a program owns all columns of a row, and waits for no other program."""
        return self.rows == 1

    def tiles(self, batch: int) -> int:
        return -(-batch // self.rows)

    def concurrent_tiles(self, batch: int, processors: int) -> int:
        """Tiles of the batch that are resident at once; programs that wait for no other need not be."""
        if self.row_per_program:
            return self.tiles(batch)
        return min(self.tiles(batch), max(1, processors // self.programs))

    def passes(self, batch: int, processors: int) -> int:
        return -(-self.tiles(batch) // self.concurrent_tiles(batch, processors))


def tiling(
    schedule: Schedule, bytes_a_number: int, batch: int, processors: int, shared_memory: int, mode: str = ""
) -> Tiling | None:
    """The tiling for a batch, or None if the card is too small for any. `mode`, COOPERATIVE or ROW_PER_PROGRAM, is
    honoured if there is a tiling for it."""
    shapes = [*_row_per_program(schedule), *_fitting(schedule, bytes_a_number, processors, shared_memory - SPARE)]
    modes = {shape: ROW_PER_PROGRAM if shape.row_per_program else COOPERATIVE for shape in shapes}
    candidates = [shape for shape in shapes if modes[shape] == mode] or shapes
    best = min(candidates, key=lambda s: estimated_cycles(s, schedule, bytes_a_number, batch, processors), default=None)
    if best is None or best.row_per_program:
        return best
    busiest = max((_read(best, group, bytes_a_number, batch, processors) for group in schedule.groups), default=0)
    return replace(best, probe_first=busiest > PROBE_BYTES)


def step_tiling(schedule: Schedule, processors: int) -> Tiling:
    """The tiling for a single step: the weights are read once, so by as many programs as possible."""
    wide = max((group.width for group in schedule.groups), default=1)
    columns = next((columns for columns in COLUMNS if -(-wide // columns) <= processors), COLUMNS[-1])
    return Tiling(columns, -(-wide // columns), ROWS[0], WARPS[-1], "memory", depth=4)


def _row_per_program(schedule: Schedule) -> Iterator[Tiling]:
    """Tilings with one program per row, if its registers hold all weights."""
    wide = max((group.width for group in schedule.groups), default=1)
    columns = max(16, 1 << (wide - 1).bit_length())
    if recurrent(schedule) and _reads_whole_pieces(schedule):
        for shared_by in SHARED_BY:
            shape = Tiling(columns, 1, 1, columns * shared_by // 32, "registers")
            if shape.warps <= max(WARPS) and _registers_row_per_program(shape, schedule) <= REGISTERS_ROW_PER_PROGRAM:
                yield shape


def _registers_row_per_program(shape: Tiling, schedule: Schedule) -> int:
    weights = len(recurrent(schedule)) * shape.columns**2 // (32 * shape.warps)
    return weights + max(4 * len(group.lanes) + 8 * len(_operands(group)) for group in schedule.groups)


def _reads_whole_pieces(schedule: Schedule) -> bool:
    """Whether products read states in the pieces in which the step before stored them, before they are overwritten."""
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


def _fitting(schedule: Schedule, size: int, processors: int, available: int) -> Iterator[Tiling]:
    wide = max((group.width for group in schedule.groups), default=1)
    for columns in COLUMNS:
        programs = -(-wide // columns)
        if programs <= processors:
            for rows in ROWS:
                for warps in WARPS:
                    for shape, shared in _placed(schedule, size, columns, programs, rows, warps):
                        if shared <= available:
                            yield shape


def _placed(
    schedule: Schedule, size: int, columns: int, programs: int, rows: int, warps: int
) -> Iterator[tuple[Tiling, int]]:
    """(tiling, bytes of shared memory) for each place of the weights that leaves registers for sums and operands."""
    weights = sum(depth_of(matrix, columns) for matrix in recurrent(schedule)) * columns * size
    lanes = max((len(group.lanes) for group in schedule.groups), default=0)
    sums, piece = lanes * rows * columns // 32, rows // 2
    partials = lanes * warps * rows * columns * 4
    deepest = max((_pieces(group, size, warps, columns) for group in schedule.groups), default=1)
    places = (("registers", weights // (128 * warps), 0), ("shared", columns, weights), ("memory", 2 * columns, 0))
    for place, held, shared in places:
        depth = min(max(1, deepest), (REGISTERS[size] - held - sums) // piece)
        if depth >= 1:
            yield Tiling(columns, programs, rows, warps, place, depth), partials + shared


def estimated_cycles(shape: Tiling, schedule: Schedule, size: int, batch: int, processors: int) -> float:
    """Estimated cycles of a step."""
    if shape.row_per_program:
        return _cycles_row_per_program(shape, schedule, batch, processors)
    total = 0.0
    for group in schedule.groups:
        parts = shape.programs**2 * shape.rows * shape.concurrent_tiles(batch, processors) * len(group.rowsums)
        total += POLLS * 4 * parts / (GLOBAL_RATE * processors)
        pieces = _pieces(group, size, shape.warps, shape.columns)
        elements = -(-shape.rows * shape.columns // (32 * shape.warps)) if group.width > 1 else 0
        if not pieces:
            total += OPERATION * max(0, sum(not node.is_leaf for node in group.body) - HIDDEN) * elements
            continue
        total += STAGE + WARP * shape.warps + ROUND_TRIP * (-(-pieces // shape.depth) - 1) + pieces * 2 * DEPENDENT_MMA
        total += (NUMBER + SUM * sum(not all(map(is_x, lane.args)) for lane in group.lanes)) * elements
        total += _read(shape, group, size, batch, processors) / (GLOBAL_RATE * processors)
        total += len(group.lanes) * shape.warps * shape.rows * shape.columns * 8 / SHARED_RATE  # reduction over warps
        total += _held(group, shape.columns) * shape.columns * size / SHARED_RATE if shape.weights == "shared" else 0
        total += SPLIT * _held(group, shape.columns) * shape.columns / (32 * shape.warps) if size == 4 else 0
    return total * shape.passes(batch, processors)


def _cycles_row_per_program(shape: Tiling, schedule: Schedule, batch: int, processors: int) -> float:
    """Estimated cycles of a step; programs on one multiprocessor hide latency, and half of the work, of each other."""
    stages = [group for group in schedule.groups if _operands(group)]
    work = WEIGHT * len(recurrent(schedule)) * shape.columns**2
    work += sum(LANE * len(group.lanes) + OPERAND * shape.columns * len(_operands(group)) for group in stages)
    of_one = 32 * shape.warps * (_registers_row_per_program(shape, schedule) + REGISTERS_OTHER)
    programs = -(-batch // processors)  # per multiprocessor
    at_once = min(programs, max(1, REGISTER_FILE // of_one))
    return (STAGE_ROW_PER_PROGRAM * len(stages) + work * (1 + at_once) / 2) * -(-programs // at_once)


def exchanged_bytes(shape: Tiling, schedule: Schedule, size: int, batch: int, processors: int) -> int:
    """Bytes that all programs together read per step from each other, and of weights that do not stay on the chip."""
    if shape.row_per_program:
        return 0
    return sum(_read(shape, group, size, batch, processors) for group in schedule.groups)


def _read(shape: Tiling, group: Group, size: int, batch: int, processors: int) -> int:
    """Bytes that all programs together read per step."""
    own = sum(_operands(group, shape.columns).values()) * min(batch, shape.rows) * size
    own += (
        3 * _held(group, shape.columns) * shape.columns * size // 2 if shape.weights == "memory" else 0
    )  # loads that nothing hides
    return own * shape.programs * shape.concurrent_tiles(batch, processors)


def depth_of(matrix: Matrix, columns: int) -> int:
    """Inputs that a program with so many columns multiplies: those of one diagonal block, if it is inside one."""
    first, wide, below, deep = matrix.bands
    inside = wide > 0 and wide % columns == 0 and not first % wide and not below % deep and not matrix.wide % wide
    return deep if inside else matrix.deep


def _held(group: Group, columns: int) -> int:
    """Rows of the recurrent weights of a group."""
    pairs = ((a, m) for lane in group.lanes for a, m in zip(lane.args, lane.attr, strict=True))
    return sum(depth_of(matrix, columns) for operand, matrix in pairs if not is_x(operand))


def _operands(group: Group, columns: int = 0) -> dict[Node, int]:
    """The operands of a group, and how many of their numbers a program with so many columns reads."""
    found: dict[Node, int] = {}
    for lane in group.lanes:
        for operand, matrix in zip(lane.args, lane.attr, strict=True):
            if not is_x(operand):
                deep = depth_of(matrix, columns) if columns else operand.width
                found[operand] = max(found.get(operand, 0), deep)
    return found


def _pieces(group: Group, size: int, warps: int, columns: int) -> int:
    """Pieces of the operands of a group that a warp loads."""
    return sum(-(-width * size // (64 * warps)) for width in _operands(group, columns).values())


def recurrent(schedule: Schedule) -> list:
    """The matrices that multiply something other than x: the weights a program holds."""
    return [
        matrix
        for group in schedule.groups
        for lane in group.lanes
        for operand, matrix in zip(lane.args, lane.attr, strict=True)
        if not is_x(operand)
    ]


def is_x(operand: Node) -> bool:
    """Whether it is x, or was computed from x before the loop."""
    return operand.op == "load" and operand.attr.buffer.role in (Role.X, Role.INPUT)
