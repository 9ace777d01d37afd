"""Row sums of cooperating programs: each stores its part of all row sums of a group, then waits for the others'.

One exchange takes as long as a product, so a group has one for all of its row sums. The variance of a row needs its
mean first; instead of a second exchange, a program stores the sum of squares around the mean of its own columns, and
the parts are combined exactly (Chan, Golub & LeVeque 1979): Σ (v - m)² = Σ_p (M_p + n_p (mean_p - m)²).
"""

from ...ir.buffers import ROW_SUMS
from ...ir.nodes import Node
from ...plan.schedule import Group, Schedule
from ..row_sums import centred_squares
from .kernel_builder import KernelBuilder
from .operands import Operands
from .spin_wait import publish_constraints, publish_instructions, wait_constraints, wait_instructions

MOST_WORDS = 64  # registers that a thread fills in one wait


class RowExchange:
    """Writes the row sums of each group of a schedule."""

    def __init__(self, schedule: Schedule, builder: KernelBuilder, operands: Operands):
        self.schedule, self.builder, self.operands = schedule, builder, operands
        self.programs, self.shape = builder.tiling.programs, builder.shape
        self.combined: dict[Node, tuple[str, str]] = {}  # sum of squares → parts of the sums and of the squares
        self.regions: list[int] = []  # numbers per program and row that each exchange stores
        self.published: list[str] = []  # numbers that the current group stores
        self.waiting: list[tuple[str, Node]] = []  # those that are row sums themselves
        self.number = self.region = 0  # of the current exchange

    @property
    def width(self) -> int:
        """Numbers a row of the buffer of all exchanges."""
        return self.programs * sum(self.regions)

    def publish(self, group: Group) -> None:
        """Store this program's parts, where there is something to wait for."""
        self.waiting = []
        here = [node for node in group.rowsums if node not in self.combined]
        if self.programs == 1 or not here:
            return
        self.published = []
        for node in here:
            value, width = self._as_tile(node.args[0]), node.args[0].width
            name = self._local(f"part{node.index}", value, width, node.attr == "max")
            self.waiting.append((name, node))
        for node in self.schedule.rowsums:
            found = None if node in here or node in self.combined else centred_squares(node)
            if found is not None and all(value in self.operands.names for value in found[0]):
                self._publish_squares(node, found[0])
        self._store()

    def _local(self, name: str, value: str, width: int, largest: bool = False) -> str:
        self.builder.step.append(f"{name} = reduce_columns({value}, col < {width}, {largest}, {self.shape})")
        self.published.append(name)
        return name

    def _publish_squares(self, node: Node, values: list[Node]) -> None:
        """The sum of this program's columns of some values, and that of their squares around its own mean."""
        key, width, count = node.index, values[0].width, len(values)
        tiles = [self._as_tile(value) for value in values]
        plain = next((name for name, other in self.waiting if _sums_exactly(other, values)), None)
        total = plain or self._local(f"total{key}", " + ".join(tiles), width)
        own = f"own_columns(first_column, {width}, {self.builder.tiling.columns}) * {count}"
        self.builder.step.append(f"mean{key} = {total} / ({own})")
        squares = " + ".join(f"square({tile} - mean{key})" for tile in tiles)
        name = self._local(f"squares{key}", squares, width)
        self.combined[node] = (f"parts_{total}", f"parts_{name}")

    def _store(self) -> None:
        count = len(self.published)
        region = count if count < 3 else -(-count // 4) * 4
        names = [f"publishable({name})" for name in self.published]
        names += ["publishable(zero_row)"] * (region - count)
        number = len(self.regions)
        self.regions.append(region)
        pointer = self.builder.pointer(ROW_SUMS)
        # Regions lie one after another; {start} is filled in when all are known: those of the largest items come first.
        base = f"{pointer} + ({{start{number}}} * L.cast(steps, L.int64) * batch + at * {region}) * {self.programs}"
        self.builder.step.append(f"exchange{number} = {base}")
        here = f"own_part(exchange{number}, row, live, program, {region}, {self.programs})"
        self.builder.step.append(
            f'L.inline_asm_elementwise("{publish_instructions(region)}", "{publish_constraints(region)}",'
            f" [{', '.join([here, *names])}], L.int32, False, 1)"
        )
        self.number, self.region = number, region

    def wait(self, group: Group) -> None:
        """Wait for the parts of the other programs, and add them up."""
        if self.waiting:
            self._load()
        for node in group.rowsums:
            name = self.operands.names[node] = f"n{node.index}"
            if self.programs == 1:
                width, largest = node.args[0].width, node.attr == "max"
                value = self._as_tile(node.args[0])
                self.builder.step.append(f"{name} = reduce_columns({value}, col < {width}, {largest}, {self.shape})")
            elif node in self.combined:
                found = centred_squares(node)
                assert found is not None
                values, mean = found
                sums, squares = self.combined[node]
                self.builder.step.append(
                    f"{name} = combine_squares({sums}, {squares}, {self._as_tile(mean)}, {len(values)},"
                    f" {values[0].width}, {self.programs}, {self.shape})"
                )
            else:
                largest = node.attr == "max"
                self.builder.step.append(
                    f"{name} = combine_parts(parts_part{node.index}, first_row, batch, {self.programs}, {largest},"
                    f" {self.shape})"
                )

    def _load(self) -> None:
        tiling, region = self.builder.tiling, self.region
        elements = parts_of_a_thread(tiling.rows, tiling.columns, tiling.warps, self.programs)
        pack = elements
        while pack > 1 and pack * region > MOST_WORDS:
            pack //= 2
        words = [f"word{i}" for i in range(region)]
        at = f"part_pointers(exchange{self.number}, first_row, batch, {region}, {self.programs}, {self.shape})"
        self.builder.step.append(
            f'{", ".join(words)}{"," * (region == 1)} = L.inline_asm_elementwise("{wait_instructions(region, pack)}",'
            f' "{wait_constraints(region, pack)}", [{at}], ({"L.int32, " * region}), False, {pack})'
        )
        for name, word in zip(self.published, words, strict=False):
            self.builder.step.append(f"parts_{name} = {word}.to(L.float32, bitcast=True)")

    def _as_tile(self, node: Node) -> str:
        return self.operands.as_tile(node)

    def placed(self, text: str) -> str:
        """The source with the place of each exchange in the buffer."""
        order = sorted(range(len(self.regions)), key=lambda number: -self.regions[number])
        start = 0
        for number in order:
            text = text.replace(f"{{start{number}}}", str(start))
            start += self.regions[number]
        return text


def _sums_exactly(node: Node, values: list[Node]) -> bool:
    """Whether a row sum is that of these values."""
    if node.attr is not None:
        return False
    todo, found = [node.args[0]], []
    while todo:
        term = todo.pop()
        if term not in values and term.op == "add":
            todo += term.args
        else:
            found.append(term)
    return sorted(n.index for n in found) == sorted(n.index for n in values)


def parts_of_a_thread(rows: int, columns: int, warps: int, programs: int) -> int:
    """How many parts of row sums a thread loads, in `parts_layout`."""
    mine = min(columns, max(1, rows * columns // (32 * warps)))
    threads = min(32, columns // mine)
    of_row = max(1, (1 << (programs - 1).bit_length()) // threads)
    return of_row * max(1, rows // (32 // threads * warps))
