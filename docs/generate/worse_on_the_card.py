"""Where something else is ahead of recurra on a GPU, from the tables that are measured there."""

import json
from typing import Any

import recurra as rc

from . import speed_results

LIFS = ("lif", "recurrent_lif")  # our rows in the table of spiking layers


def lines() -> list[str]:
    """A line for each kind of call in which something else is ahead, or a goal was missed."""
    return [*_beside_cudnn(), *_calls(), *_matrix_states(), *_spiking()]


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
    missed = [f"{row['what']} at ({', '.join(str(row[axis]) for axis in 'TBDH')})" for row in rows if not row["met"]]
    if not missed:
        return []
    return [
        f"**Ordinary calls on an H200** miss the goal set for them in {len(missed)} of {len(rows)} cases: "
        f"{'; '.join(missed)} ([table](h200_calls.md))."
    ]


def _matrix_states() -> list[str]:
    slower = [
        f"{name}, {what} at {size}: {peer}, {own / times[peer]:.2f} ×"
        for name, sizes in _read("matrix_states_gpu").get("times", {}).items()
        for size, passes in sizes.items()
        for what, times in passes.items()
        if (own := times.get("recurra"))
        for peer in times
        if times[peer] < own
    ]
    if not slower:
        return []
    return [
        "**Matrix memories on an H200**: kernels written for one cell are faster than recurra's. recurra's time as a "
        f"multiple of theirs: {'; '.join(slower)} ([table](matrix_states_gpu.md))."
    ]


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
