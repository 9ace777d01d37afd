"""The text of a kernel as it grows: its arguments, and the lines before, in and after the loop over time."""

from dataclasses import dataclass, field

from ...ir.buffers import BufferRef
from ..math_functions import preamble
from .tiling import Tiling


@dataclass(frozen=True)
class Kind:
    """What a kernel is for, beside its schedule and its tiles."""

    backward: bool
    ragged: bool
    trains: bool
    interpreted: bool = False  # in the words of `tiles_triton.py`
    by_warp: bool = True  # warps wait each for themselves, which takes a Hopper or later; else the whole program waits
    bits: int = 16
    precision: str = "tf32"


@dataclass
class Text:
    tiling: Tiling
    kind: Kind
    arguments: list[BufferRef] = field(default_factory=list)  # what each pointer points to
    before: list[str] = field(default_factory=list)  # before everything: weights
    first: list[str] = field(default_factory=list)  # before the loop, for each tile of the batch
    loads: list[tuple[str, str]] = field(default_factory=list)  # (variable, expression of `tn` and `next_at`)
    step: list[str] = field(default_factory=list)
    last: list[str] = field(default_factory=list)  # after the loop
    ahead: dict[object, str] = field(default_factory=dict)  # loaded a step ahead → the variable

    @property
    def shape(self) -> str:
        return f"{self.tiling.rows}, {self.tiling.columns}, {self.tiling.warps}"

    def pointer(self, buffer: BufferRef) -> str:
        if buffer not in self.arguments:
            self.arguments.append(buffer)
        return f"a{self.arguments.index(buffer)}"

    # ------------------------------------------------------------------------------------------ tiles in memory

    def tile(self, base: str, stride: int | str, offset: int, width: int, mask: str) -> tuple[str, str]:
        """(address, mask) of this program's columns; of a single column, the same for everybody."""
        if width == 1:
            return f"{base} + row * {stride} + {offset}", mask
        whole = self.tiling.programs * self.tiling.columns == width
        return f"{base} + row * {stride} + {offset} + col", mask if whole else f"{mask} & (col < {width})"

    def own(self, width: int, mask: str) -> str:
        """Who writes: a single column is computed by everybody, and written by the first."""
        return mask if width > 1 else f"{mask} & (row * 0 + mine == 0)"

    def read(self, base: str, stride: int | str, offset: int, width: int, mask: str) -> str:
        return f"read({', '.join(self.tile(base, stride, offset, width, mask))})"

    def soon(self, key: object, base: str, stride: int | str, offset: int, width: int) -> str:
        """A value from outside, loaded a step ahead; `base` speaks of `tn` and `next_at`."""
        if key not in self.ahead:
            name = f"f{len(self.loads)}"
            self.loads.append((name, f"fetch({', '.join(self.tile(base, stride, offset, width, 'soon'))})"))
            self.ahead[key] = name.replace("f", "v", 1)
        return self.ahead[key]

    # ------------------------------------------------------------------------------------------ the whole

    def whole(self, furniture: list[str]) -> str:
        """`furniture`: lines that set up shared memory."""
        return "\n".join([*self._head(), *self._before_the_loop(furniture), *self._loop()]) + "\n"

    def _head(self) -> list[str]:
        dialect = "triton" if self.kind.interpreted else "gluon"
        return [
            f"from recurra.engine.gpu.tiles_{dialect} import *",
            f"from recurra.engine.gpu.tiles_{dialect} import L, constexpr, jit",
            "",
            preamble(exact=self.kind.bits == 32),
            "",
            '@jit(do_not_specialize=["steps", "batch", "tiles"])',
            f"def kernel({', '.join([*(f'a{i}' for i in range(len(self.arguments))), 'steps', 'batch', 'tiles'])}):",
            *(f"    # a{i}: {buffer}" for i, buffer in enumerate(self.arguments)),
        ]

    def _before_the_loop(self, furniture: list[str]) -> list[str]:
        return [
            "    mine = L.program_id(0)",
            f"    first_column = mine * {self.tiling.columns}",
            f"    col = columns(first_column, {self.shape})",
            f"    zero = zeros({self.shape})",
            *("    " + line for line in (*furniture, *self.before)),
            "    for tile in range(L.program_id(1), tiles, L.num_programs(1)):",
            f"        first_row = tile * {self.tiling.rows}",
            f"        row = rows(first_row, {self.shape})",
            "        live = row < batch",
            "        zero_row = L.where(live, 0.0, 0.0)",
            *("        " + line for line in self.first),
        ]

    def _loop(self) -> list[str]:
        turn = ["t = L.cast(s, L.int32)", "tn = t + 1"]
        first, soon = "0", "live & (row * 0 + tn < steps)"
        if self.kind.backward:
            turn = ["t = steps - 1 - L.cast(s, L.int32)", "tn = t - 1"]
            first, soon = "steps - 1", "live & (row * 0 + tn >= 0)"
        return [
            f"        tn = {first}",
            "        next_at = L.cast(tn, L.int64) * batch",
            "        soon = live",
            *(f"        {name} = {expression}" for name, expression in self.loads),
            "        for s in range(steps):",
            *("            " + line for line in turn),
            "            at = L.cast(t, L.int64) * batch",
            f"            run = live{' & (t < length)' if self.kind.ragged else ''}",
            "            next_at = L.cast(tn, L.int64) * batch",
            f"            soon = {soon}",
            *(f"            {name.replace('f', 'v', 1)} = {name}.to(L.float32)" for name, _ in self.loads),
            *(f"            {name} = {expression}" for name, expression in self.loads),
            *("            " + line for line in self.step),
            *("        " + line for line in self.last),
        ]
