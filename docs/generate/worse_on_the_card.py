"""Where something else is ahead of recurra on a GPU, from the tables that are measured there."""

import json
from typing import Any

import recurra as rc

from . import speed_results

SLOW = 10  # times an LSTM's time, from which a cell is named
LIFS = ("lif", "recurrent_lif")  # our rows in the table of spiking layers


def lines() -> list[str]:
    """A line for each kind of call in which something else is ahead, or a goal was missed."""
    return [*_beside_cudnn(), *_calls(), *_matrix_states(), *_spiking(), *_slow_cells()]


def _read(name: str) -> dict[str, Any]:
    """A committed result; nothing if it has not been measured."""
    path = speed_results.RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _beside_cudnn() -> list[str]:
    ratio = "train / cuDNN LSTM fp16"
    found = _read("h200").get("rows", [])
    ours = [r for r in found if r["dtype"] == "bf16" and r["cell"] in rc.registry() and r.get(ratio)]
    rows = [row for row in ours if row[ratio] > 1]
    if not rows:
        return []
    worst = max(rows, key=lambda row: row[ratio])
    size = ", ".join(str(worst[axis]) for axis in "TBDH")
    return [
        f"**On an H200**, recurra in bfloat16 trains more slowly than cuDNN's LSTM in float16 for {len(rows)} of "
        f"{len(ours)} pairs of a cell and a size. The worst is `{worst['cell']}` at (T, B, D, H) = ({size}): "
        f"{worst[ratio]:.2f} × its time ([table](h200.md))."
    ]


def _calls() -> list[str]:
    rows = _read("h200_calls").get("rows", [])
    missed: dict[str, list[str]] = {}
    for row in rows:
        if not row["met"]:
            missed.setdefault(row["what"], []).append(f"({', '.join(str(row[axis]) for axis in 'TBDH')})")
    if not missed:
        return []
    head = (
        f"**Ordinary calls on an H200** miss the goal set for them in {sum(map(len, missed.values()))} of {len(rows)} "
        "cases ([table](h200_calls.md)). They are, with (T, B, D, H):"
    )
    return [_nested(head, [f"{what}: {', '.join(sizes)}" for what, sizes in missed.items()])]


def _nested(head: str, items: list[str]) -> str:
    return "\n  - ".join([head, *items])


def _matrix_states() -> list[str]:
    slower: dict[tuple[str, str], list[float]] = {}
    for name, sizes in _read("matrix_states_gpu").get("times", {}).items():
        for times in (times for passes in sizes.values() for times in passes.values()):
            for peer, time in times.items():
                if time < times.get("recurra", 0.0):
                    slower.setdefault((name, peer), []).append(times["recurra"] / time)
    if not slower:
        return []
    head = (
        "**Matrix memories on an H200**: kernels written for one cell are faster than recurra's at some sizes "
        "([table](matrix_states_gpu.md)). recurra's time as a multiple of theirs:"
    )
    return [_nested(head, [f"`{name}` beside `{peer}`: {_range(found)} ×" for (name, peer), found in slower.items()])]


def _range(ratios: list[float]) -> str:
    low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
    return low if low == high else f"{low} to {high}"


def _spiking() -> list[str]:
    rows = _read("spiking_h200").get("rows", [])
    ours = {row["kind"]: row["milliseconds"] for row in rows if row["layer"] == LIFS[0]}
    faster = [
        f"{row['layer']}, {row['kind']}"
        for row in rows
        if row["layer"] not in LIFS and row["milliseconds"] < ours.get(row["kind"], 0.0)
    ]
    if not faster:
        return []
    return [f"**Spiking layers on an H200**: faster than `lif` are {'; '.join(faster)} ([table](spiking_h200.md))."]


def _slow_cells() -> list[str]:
    """Cells that cost ten times an LSTM."""
    rows = _read("cell_speed_h200").get("cells", {})
    times = {name: row["train_ms"] / row["lstm_train_ms"] for name, row in rows.items() if "train_ms" in row}
    slow = sorted(((ratio, name) for name, ratio in times.items() if ratio > SLOW), reverse=True)
    named = ", ".join(f"[{name}](../cells/{name}.md) {ratio:.0f} ×" for ratio, name in slow)
    head = "**Cells that train in more than ten times an LSTM's time** on an H200"
    return [f"{head}: {named} ([table](cell_speed_h200.md))."] if slow else []
