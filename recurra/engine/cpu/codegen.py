"""Generate C++ from a schedule: one function per group, and a step function that calls them.

The source contains no sizes, so one binary serves every batch, length and width. `Tables` lists what a call provides.
"""

from dataclasses import dataclass
from pathlib import Path

from ..ir.nodes import Load
from ..plan.schedule import Group, Schedule
from .group_writer import GroupWriter, Tables
from .nest_writer import NestWriter

KERNELS = Path(__file__).parent / "kernels"


@dataclass
class Rendered:
    """The generated functions of a program, and the tables they index."""

    body: str
    tables: Tables

    def source(self, real: str) -> str:
        return _text(real, "elementwise.h", "loop.h") + self.body


def products_source(real: str) -> str:
    """Source of the library that all programs of a dtype share: matrix products and packing."""
    return _text(real, "products.h")


def _text(real: str, *names: str) -> str:
    return "\n".join(
        (f"#define REAL {real}", *((KERNELS / n).read_text(encoding="utf-8") for n in ("vectors.h", *names)))
    )


def render(schedule: Schedule, shrinking: bool) -> Rendered:
    """`shrinking`: the program runs backward in time, where fewer rows may be active at the step before."""
    tables = Tables(groups=schedule.groups)
    if shrinking:
        tables.lags = sorted({load.lag for load in _loads(schedule) if load.lag} | {1})
    parts = [
        (NestWriter if group.axes else GroupWriter)(group, i, schedule, tables, shrinking).function()
        for i, group in enumerate(schedule.groups)
    ]
    return Rendered("\n".join([*parts, _step(schedule, tables)]), tables)


def _loads(schedule: Schedule) -> list[Load]:
    operands = [a for g in schedule.groups for lane in (*g.lanes, *g.reductions) for a in lane.args]
    return [n.attr for n in (*operands, *(n for g in schedule.groups for n in g.body)) if n.op == "load"]


def _step(schedule: Schedule, tables: Tables) -> str:
    """The function of one step; backward, the rows are split where the number of active rows changes."""
    lines = [
        "static void step(const Call& c, int64_t s, int64_t low, int64_t high, int64_t me, int64_t threads,"
        " real* sums) {"
    ]
    count = len(tables.lags)
    lines.append(f"  int64_t cuts[{count + 1}]; int pieces = 0;")
    lines += [
        f"  if (c.active[s - {lag}] > (pieces ? cuts[pieces - 1] : low) && c.active[s - {lag}] < high)"
        f" cuts[pieces++] = c.active[s - {lag}];"
        for lag in reversed(tables.lags)  # a larger lag is later in the sequence: fewer rows
    ]
    lines.append("  cuts[pieces++] = high;")
    index = 0
    for level in schedule.levels:
        for _ in level:
            lines += _tiles(schedule.groups[index], index)
            index += 1
        if not schedule.has_independent_columns:
            lines.append("  if (threads > 1) barrier(c, me, threads);")
    return "\n".join([*lines, "}"])


def _tiles(group: Group, index: int) -> list[str]:
    """Lines that run the tiles of a group: a thread's own, or by work stealing. Row sums exclude stealing, which would
    change the order of additions."""

    def of(first: str, last: str, part: str = "me") -> str:
        return (
            "for (int p = 0; p < pieces; ++p)"
            f" group_{index}(c, s, p ? cuts[p - 1] : low, cuts[p], {first}, {last}, {part}, sums);"
        )

    own = of("tiles * me / threads", "tiles * (me + 1) / threads")
    if group.rowsums:  # added up in the same order, however many threads there are
        part = of("tiles * part / c.rowsum_parts", "tiles * (part + 1) / c.rowsum_parts", "part")
        own = f"for (int64_t part = me; part < c.rowsum_parts; part += threads) {part}"
    return [
        "  {",
        f"    const int64_t vectors = (c.widths[{index}] + W - 1) / W, tile = c.tiles[{index}];",
        "    const int64_t tiles = (vectors + tile - 1) / tile;",
        *(
            [f"    {own}"]
            if group.rowsums
            else [
                "    if (c.work_stealing) {",
                "      const TileScheduler scheduler(c, tiles, me, threads, c.exceeds_cache && s & 1);",
                f"      for (int64_t first, last; scheduler.take(first, last);) {of('first', 'last')}",
                "    } else {",
                f"      {own}",
                "    }",
            ]
        ),
        "  }",
    ]
