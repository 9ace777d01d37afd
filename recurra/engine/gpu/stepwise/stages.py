"""Data structures of a single step: stages of matrix products and a kernel, over the buffers of a window."""

from dataclasses import dataclass, field
from enum import Enum

from ...ir.buffers import BufferRef
from ...ir.nodes import Matrix, Node
from .gathers import Tables

COLUMNS, ROWS = 64, 8  # of a program's tile, at most


class WindowBufferRole(Enum):
    """What a window buffer holds."""

    OPERANDS = "operands"  # adjacent operands of products
    PRODUCT = "product"
    MATRIX = "matrix"  # of a product
    RING = "ring"  # a carried state, double-buffered
    VALUE = "value"  # read by a later group of the step
    ROW_SUM = "row sum"
    TABLE = "table"  # addresses of the caller's tensors
    CLOCK = "clock"  # the first step of the window, and how many steps there are
    ENDS = "ends"  # the length of each sequence
    MAPS = "maps"  # the places that gathers read
    LITERALS = "literals"  # rows of constants


@dataclass(frozen=True)
class WindowBufferRef:
    """The key of a window buffer."""

    role: WindowBufferRole
    buffers: tuple[BufferRef, ...] = ()  # of operands and of rings
    numbers: tuple[int, ...] = ()

    def __str__(self) -> str:
        return " ".join(map(str, (self.role.value, *self.buffers, *self.numbers)))


TABLE, CLOCK, ENDS = map(WindowBufferRef, (WindowBufferRole.TABLE, WindowBufferRole.CLOCK, WindowBufferRole.ENDS))
MAPS, LITERALS = map(WindowBufferRef, (WindowBufferRole.MAPS, WindowBufferRole.LITERALS))

Location = tuple[BufferRef, int, int]  # buffer, shift in steps, first column
WindowLocation = tuple[WindowBufferRef, int, int]  # the same in a window buffer


@dataclass(frozen=True)
class WindowBuffer:
    """Memory of a window, `width` elements per row of the batch: in `slots` slots, or, if slots is 0, one slot per step
    and `before` and `after` more for the neighbouring steps."""

    width: int
    slots: int = 0
    before: int = 0
    after: int = 0
    wide: bool = True  # float32, whatever the layer's dtype
    holds: tuple[tuple[BufferRef, int, int], ...] = ()  # operands: first column, width

    def count(self, steps: int) -> int:
        return self.slots or self.before + steps + self.after


@dataclass(frozen=True)
class Multiplication:
    """Columns of a window buffer, `shift` steps away, times a matrix assembled from blocks."""

    operand: WindowBufferRef
    shift: int
    offset: int
    blocks: tuple[tuple[Matrix, ...], ...]  # one row per lane
    into: WindowBufferRef

    @property
    def wide(self) -> int:
        return sum(row[0].wide for row in self.blocks)

    @property
    def deep(self) -> int:
        return sum(matrix.deep for matrix in self.blocks[0])

    @property
    def flipped(self) -> bool:
        """Whether its matrix is stored as (deep, wide), like its first block."""
        return self.blocks[0][0].flipped


@dataclass
class Stage:
    """A group: its products, and the kernel that consumes them."""

    name: str
    width: int
    products: list[Multiplication] = field(default_factory=list)
    arguments: list[WindowBufferRef] = field(default_factory=list)  # the window buffer of each pointer
    pointer_lines: list[str] = field(default_factory=list)  # lines that read pointers of the caller from the table
    lines: list[str] = field(default_factory=list)

    @property
    def columns(self) -> int:
        return min(COLUMNS, 1 << (self.width - 1).bit_length())

    @property
    def programs(self) -> int:
        """Programs per tile of the batch."""
        return -(-self.width // self.columns)

    def function(self) -> list[str]:
        """The source lines of the kernel."""
        tile = f"{ROWS}, {self.columns}, 1"
        pointers = [*(f"a{i}" for i in range(len(self.arguments))), "table", "clock", "ends"]
        return [
            "",
            "",
            '@jit(do_not_specialize=["k", "parity", "batch"])',
            f"def {self.name}({', '.join(pointers)}, k, parity, batch):",
            *(f"    # a{i}: {buffer}" for i, buffer in enumerate(self.arguments)),
            f"    first_row = L.cast(L.program_id(0), L.int64) * {ROWS}",
            f"    first_column = L.program_id(1) * {self.columns}",
            f"    row, col = rows(first_row, {tile}), columns(first_column, {tile})",
            "    live = row < batch",
            f"    here, zero = live & (col < {self.width}), zeros({tile})",
            "    at = L.cast(k, L.int64) * batch",
            "    current, following = parity * batch, (1 - parity) * batch",
            "    t, steps = L.load(clock) + k, L.load(clock + 1)",
            "    step_row = L.cast(t, L.int64) * batch",
            "    end = L.load(ends + row, mask=live, other=0)",
            "    run = live & (t < end)",
            *("    " + line for line in (*self.pointer_lines, *self.lines)),
        ]


@dataclass
class StepSource:
    """A generated step. `arguments`, `lanes` and `exchanged` are as in `KernelSource`."""

    text: str
    stages: list[Stage]
    window_buffers: dict[WindowBufferRef, WindowBuffer]
    arguments: list[BufferRef]  # the buffer of each address of the table
    carried: list[tuple[WindowBufferRef, BufferRef, int, int]]  # (window buffer, buffer, offset, width)
    written: set[BufferRef]  # operands that the kernels store; others are copied in
    lanes: list[tuple[Node, int]]
    exchanged: frozenset[BufferRef] = frozenset()
    as_written: bool = False  # without fused multiply-adds
    tables: Tables = field(default_factory=Tables)
