"""Tables of the results that are committed as JSON alone."""

import json
from collections.abc import Callable
from typing import Any

from .speed_results import RESULTS, beside_lstm


def from_json(known: set[str]) -> dict[str, str]:
    """Name → Markdown, for results without a table of their own."""
    makers: dict[str, Callable[[dict[str, Any]], str]] = {
        "speed": _speed,
        "cell_speed": _cell_speed,
        "cell_speed_h200": _cell_speed_h200,
        "larger_than_memory": _larger_than_memory,
        "reservoir_gpu": _reservoir_gpu,
    }
    return {
        name: make(json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")))
        for name, make in makers.items()
        if name not in known and (RESULTS / f"{name}.json").is_file()
    }


def _table(heads: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, ["---"] * len(heads), *rows])


def _speed(found: dict[str, Any]) -> str:
    """Times as fast as torch.nn, where torch has the cell."""
    rows = [row for row in found["rows"] if row["against torch.nn"]]
    sizes = list(dict.fromkeys(tuple(row["size"]) for row in rows))
    shown = []
    for cell in dict.fromkeys(row["cell"] for row in rows):
        for kind in ("inference", "training"):
            times = {tuple(r["size"]): r["against torch.nn"] for r in rows if r["cell"] == cell and r["kind"] == kind}
            shown.append([cell, kind, *(f"{times[size]:.2f}" if size in times else "" for size in sizes)])
    table = _table(["cell", "", *map(str, sizes)], shown)
    return (
        "# Speed beside torch.nn, by size\n\nTimes as fast as `torch.nn`, by the clock, at (T, B, D, H). Below 1, "
        f"recurra is slower. {found['threads']} threads; `make bench`.\n\n{table}\n"
    )


def _cell_speed(found: dict[str, Any]) -> str:
    rows = [
        [name, f"{row['milliseconds']:.2f}", "" if (times := beside_lstm(name)) is None else f"{times:.2f}"]
        for name, row in found["cells"].items()
        if "milliseconds" in row
    ]
    return (
        "# Training time of every cell\n\nMilliseconds of processor time of a forward and backward pass on one thread, "
        f"(T, B, D, H) = {tuple(found['size'])}, float32, and the same as a multiple of an LSTM's.\n\n"
        + _table(["cell", "ms", "LSTM = 1"], rows)
        + "\n"
    )


def _cell_speed_h200(found: dict[str, Any]) -> str:
    rows, errors = [], []
    for name, row in found["cells"].items():
        if "error" in row:
            errors.append(f"- `{name}`: {row['error']}")
            continue
        times = [f"{row[key]:.2f}" for key in ("forward_ms", "train_ms")]
        ratios = [f"{row[key] / row[f'lstm_{key}']:.2f}" for key in ("forward_ms", "train_ms")]
        rows.append([name, row["dtype"], *times, *ratios])
    heads = ["cell", "dtype", "forward, ms", "training step, ms", "forward, LSTM = 1", "training, LSTM = 1"]
    missing = "\n\n".join(["", "Not measured, with what was said:", "\n".join(errors)]) if errors else ""
    return (
        f"# Every cell on an H200\n\nMilliseconds at (T, B, D, H) = {tuple(found['size'])}, and as a multiple of "
        f"recurra's LSTM in the same run.\n\n{_table(heads, rows)}{missing}\n"
    )


def _larger_than_memory(found: dict[str, Any]) -> str:
    whole, resumed = found["uninterrupted"], found["resumed"]
    rows = [
        ["on disk, GB", f"{found['gigabytes_on_disk']}", ""],
        ["sequences", f"{whole['sequences']:,}", f"{resumed['sequences']:,}"],
        ["most memory, GB", f"{whole['peak']}", f"{resumed['peak']}"],
        ["seconds to open the files", f"{whole['seconds_to_open']}", f"{resumed['seconds_to_open']}"],
        ["seconds to train", f"{whole['seconds_to_train']}", f"{resumed['seconds_to_train']}"],
        ["loss", f"{whole['loss']:.6f}", f"{resumed['loss']:.6f}"],
    ]
    same = "The same bits." if found["same_bits"] else "The bits differ."
    return (
        f"# Training on a table larger than memory\n\n{found['files']} Parquet files, {found['steps']} updates; the "
        f"second run was killed after {found['killed_after']} and resumed. {same}\n\n"
        + _table(["", "in one go", "killed and resumed"], rows)
        + "\n"
    )


def _reservoir_gpu(found: dict[str, Any]) -> str:
    about = found["results"]
    rows = []
    for key, name in (("device", "GPU"), ("cpu_sparse", "CPU, sparse matrix")):
        steps = [f"{about[f'microseconds_a_step_{key}_batch_{batch}']:,}" for batch in (1, 16)]
        series = about[f"mackey_glass_{key}"]
        rows.append([name, *steps, f"{series['seconds']}", f"{series['nrmse']:.3g}"])
    heads = ["", "µs a step", "µs a step, batch of 16", "Mackey–Glass: seconds", "normalised error"]
    return (
        f"# A reservoir of {about['units']:,} units\n\n`python -m benchmarks.reservoir_gpu`; density "
        f"{about['density']:g}. The states of both differ by at most {about['greatest_difference']:.2g}.\n\n"
        + _table(heads, rows)
        + "\n"
    )
