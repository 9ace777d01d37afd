"""What a single step consists of on a card: stages, each some products and a kernel, over shelves in memory."""

from dataclasses import dataclass, field
from enum import Enum

from ...ir.buffers import BufferRef
from ...ir.nodes import Matrix, Node

COLUMNS, ROWS = 64, 8  # of a program's tile


class ShelfRole(Enum):
    """What a shelf holds."""

    OPERANDS = "operands"  # buffers side by side that are multiplied
    PRODUCT = "product"
    MATRIX = "matrix"  # of a product
    RING = "ring"  # a carried state, in two slots used in turn
    HANDED = "handed on"  # a value that a later group of the step reads
    ROW_SUM = "row sum"
    TABLE = "table"  # addresses of the caller's tensors
    CLOCK = "clock"  # the first step of the window, and how many steps there are
    ENDS = "ends"  # the length of each sequence


@dataclass(frozen=True)
class ShelfRef:
    """The key of a shelf."""

    role: ShelfRole
    buffers: tuple[BufferRef, ...] = ()  # of operands and of rings
    numbers: tuple[int, ...] = ()

    def __str__(self) -> str:
        return " ".join(map(str, (self.role.value, *self.buffers, *self.numbers)))


TABLE, CLOCK, ENDS = map(ShelfRef, (ShelfRole.TABLE, ShelfRole.CLOCK, ShelfRole.ENDS))

Spot = tuple[BufferRef, int, int]  # where a value lies: buffer, distance in steps, first column
ShelfSpot = tuple[ShelfRef, int, int]  # the same on a shelf


@dataclass(frozen=True)
class Shelf:
    """Memory of a window: `width` numbers for each row of the batch, in so many `slots`; or, for what is multiplied at
    other steps too, in a slot for each step and some `before` and `after` them."""

    width: int
    slots: int = 0
    before: int = 0
    after: int = 0
    wide: bool = True  # 32 bits, whatever the layer's dtype
    holds: tuple[tuple[BufferRef, int, int], ...] = ()  # buffers side by side that are multiplied: first column, width

    def count(self, steps: int) -> int:
        return self.slots or self.before + steps + self.after


@dataclass(frozen=True)
class Multiplication:
    """Columns of a shelf, at a distance of some steps, times a matrix put together from blocks."""

    shelf: ShelfRef
    shift: int
    offset: int
    blocks: tuple[tuple[Matrix, ...], ...]  # a row of them for each lane
    into: ShelfRef

    @property
    def wide(self) -> int:
        return sum(row[0].wide for row in self.blocks)

    @property
    def deep(self) -> int:
        return sum(matrix.deep for matrix in self.blocks[0])

    @property
    def flipped(self) -> bool:
        """Whether its matrix lies in memory as (deep, wide): as most of its blocks do."""
        return self.blocks[0][0].flipped


@dataclass
class Stage:
    """A group: its products, and the kernel that takes them further."""

    name: str
    width: int
    products: list[Multiplication] = field(default_factory=list)
    arguments: list[ShelfRef] = field(default_factory=list)  # shelves that pointers point to
    looked_up: list[str] = field(default_factory=list)  # lines that find what is outside
    lines: list[str] = field(default_factory=list)

    @property
    def columns(self) -> int:
        return min(COLUMNS, 1 << (self.width - 1).bit_length())

    @property
    def programs(self) -> int:
        """Side by side, for a tile of the batch."""
        return -(-self.width // self.columns)

    def function(self) -> list[str]:
        """The text of the kernel."""
        tile = f"{ROWS}, {self.columns}, 1"
        pointers = [*(f"a{i}" for i in range(len(self.arguments))), "table", "clock", "ends"]
        return [
            "",
            "",
            '@jit(do_not_specialize=["k", "turn", "batch"])',
            f"def {self.name}({', '.join(pointers)}, k, turn, batch):",
            *(f"    # a{i}: {shelf}" for i, shelf in enumerate(self.arguments)),
            f"    first_row = L.cast(L.program_id(0), L.int64) * {ROWS}",
            f"    first_column = L.program_id(1) * {self.columns}",
            f"    row, col = rows(first_row, {tile}), columns(first_column, {tile})",
            "    live = row < batch",
            f"    here, zero = live & (col < {self.width}), zeros({tile})",
            "    at = L.cast(k, L.int64) * batch",
            "    now, next = turn * batch, (1 - turn) * batch",
            "    t, steps = L.load(clock) + k, L.load(clock + 1)",
            "    far = L.cast(t, L.int64) * batch",
            "    end = L.load(ends + row, mask=live, other=0)",
            "    run = live & (t < end)",
            *("    " + line for line in (*self.looked_up, *self.lines)),
        ]


@dataclass
class Stepwise:
    """All of a step. `arguments`, `lanes` and `exchanged` are what `Rendered` has."""

    text: str
    stages: list[Stage]
    shelves: dict[ShelfRef, Shelf]
    arguments: list[BufferRef]  # what each address of the table points to
    carried: list[tuple[ShelfRef, BufferRef, int, int]]  # (shelf, buffer, offset, width): written anew at each step
    written: set[BufferRef]  # those on shelves with a slot a step that the kernels fill; others are filled from outside
    lanes: list[tuple[Node, int]]
    exchanged: frozenset[BufferRef] = frozenset()
