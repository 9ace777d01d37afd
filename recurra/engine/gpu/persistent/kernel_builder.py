"""Collects the source of a persistent kernel: arguments, and lines before, inside and after the loop over time."""

from dataclasses import dataclass, field

from ...ir.buffers import BufferRef
from ..math_functions import preamble
from .tiling import Tiling


@dataclass(frozen=True)
class KernelSpec:
    """The properties of a kernel beside its schedule and its tiling."""

    backward: bool
    ragged: bool
    trains: bool
    interpreted: bool = False  # calls `tiles_triton.py`, for Triton's interpreter
    warps_wait: bool = True  # each warp spins by itself (Hopper or later); else the whole program does
    bits: int = 16  # of an element
    precision: str = "tf32"
    single_step: bool = False  # nothing is computed before the loop, and no step follows


@dataclass
class KernelBuilder:
    """Lines of a kernel by section; the writers append to them."""

    tiling: Tiling
    spec: KernelSpec
    arguments: list[BufferRef] = field(default_factory=list)  # the buffer of each pointer
    setup: list[str] = field(default_factory=list)  # once per program: weights
    tile_setup: list[str] = field(default_factory=list)  # before the loop, per tile of the batch
    loads: list[tuple[str, str]] = field(default_factory=list)  # (variable, expression in `tn` and `next_at`)
    step: list[str] = field(default_factory=list)
    padding: list[str] = field(default_factory=list)  # at every step after the last one of a tile
    tile_end: list[str] = field(default_factory=list)  # after the loop, per tile of the batch
    prefetched: dict[object, str] = field(default_factory=dict)  # key of a prefetched value → the variable

    @property
    def shape(self) -> str:
        return f"{self.tiling.rows}, {self.tiling.columns}, {self.tiling.warps}"

    @property
    def ends(self) -> str:
        """Steps of a tile: as many as its longest row has."""
        return "ends" if self.spec.ragged else "steps"

    def pointer(self, buffer: BufferRef) -> str:
        if buffer not in self.arguments:
            self.arguments.append(buffer)
        return f"a{self.arguments.index(buffer)}"

    # ------------------------------------------------------------------------------------------ tiles in memory

    def address(self, base: str, stride: int | str, offset: int, width: int, mask: str) -> tuple[str, str]:
        """(address, mask) of this program's columns; a single column has the same address in all programs."""
        if width == 1:
            return f"{base} + row * {stride} + {offset}", mask
        whole = self.tiling.programs * self.tiling.columns == width
        return f"{base} + row * {stride} + {offset} + col", mask if whole else f"{mask} & (col < {width})"

    def writer_mask(self, width: int, mask: str) -> str:
        """The mask for a store: a single column is computed by all programs and stored by the first."""
        return mask if width > 1 else f"{mask} & (row * 0 + program == 0)"

    def load(self, base: str, stride: int | str, offset: int, width: int, mask: str) -> str:
        return f"load_f32({', '.join(self.address(base, stride, offset, width, mask))})"

    def prefetch(self, key: object, base: str, stride: int | str, offset: int, width: int) -> str:
        """The variable of a value that is loaded one step ahead; `base` is an expression in `tn` and `next_at`."""
        if key not in self.prefetched:
            name = f"f{len(self.loads)}"
            self.loads.append((name, f"load_raw({', '.join(self.address(base, stride, offset, width, 'next_live'))})"))
            self.prefetched[key] = name.replace("f", "v", 1)
        return self.prefetched[key]

    # ------------------------------------------------------------------------------------------ source

    def source(self, shared_memory_setup: list[str]) -> str:
        """The source of the kernel; `shared_memory_setup`: lines that allocate shared memory."""
        return "\n".join([*self._head(), *self._setup(shared_memory_setup), *self._loop()]) + "\n"

    def _head(self) -> list[str]:
        dialect = "triton" if self.spec.interpreted else "gluon"
        return [
            f"from recurra.engine.gpu.tiles_{dialect} import *",
            f"from recurra.engine.gpu.tiles_{dialect} import L, constexpr, jit",
            "",
            preamble(self.spec.bits == 32, "\n".join([*self.setup, *self.tile_setup, *self.step, *self.tile_end])),
            "",
            '@jit(do_not_specialize=["steps", "batch", "tiles"])',
            f"def kernel({', '.join([*(f'a{i}' for i in range(len(self.arguments))), 'steps', 'batch', 'tiles'])}):",
            *(f"    # a{i}: {buffer}" for i, buffer in enumerate(self.arguments)),
        ]

    def _setup(self, shared_memory_setup: list[str]) -> list[str]:
        return [
            "    program = L.program_id(0)",
            f"    first_column = program * {self.tiling.columns}",
            f"    col = columns(first_column, {self.shape})",
            f"    zero = zeros({self.shape})",
            *("    " + line for line in (*shared_memory_setup, *self.setup)),
            "    for tile in range(L.program_id(1), tiles, L.num_programs(1)):",
            f"        first_row = tile * {self.tiling.rows}",
            f"        row = rows(first_row, {self.shape})",
            "        live = row < batch",
            "        zero_row = L.where(live, 0.0, 0.0)",
            *("        " + line for line in self.tile_setup),
        ]

    def _loop(self) -> list[str]:
        ends = self.ends
        time = ["t = L.cast(s, L.int32)", "tn = t + 1"]
        first, next_live = "0", f"live & (row * 0 + tn < {ends})"
        if self.spec.backward:
            time = [f"t = {ends} - 1 - L.cast(s, L.int32)", "tn = t - 1"]
            first, next_live = f"L.maximum({ends} - 1, 0)", "live & (row * 0 + tn >= 0)"
        return [
            f"        tn = {first}",
            "        next_at = L.cast(tn, L.int64) * batch",
            "        next_live = live",
            *(f"        {name} = {expression}" for name, expression in self.loads),
            f"        for s in range({ends}):",
            *("            " + line for line in time),
            "            at = L.cast(t, L.int64) * batch",
            f"            run = live{' & (t < length)' if self.spec.ragged else ''}",
            "            next_at = L.cast(tn, L.int64) * batch",
            f"            next_live = {next_live}",
            *(f"            {name.replace('f', 'v', 1)} = {name}.to(L.float32)" for name, _ in self.loads),
            *(f"            {name} = {expression}" for name, expression in self.loads),
            *("            " + line for line in self.step),
            *(("        " + line for line in self._fill_padding()) if self.padding else ()),
            *("        " + line for line in self.tile_end),
        ]

    def _fill_padding(self) -> list[str]:
        return [
            f"for s in range(steps - {self.ends}):",
            f"    at = L.cast({self.ends} + L.cast(s, L.int32), L.int64) * batch",
            *("    " + line for line in self.padding),
        ]
