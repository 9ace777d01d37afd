"""Measured training speed of a cell, from the committed benchmark results."""

import functools
import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@functools.cache
def _measured() -> dict[str, Any]:
    return json.loads((RESULTS / "speed.json").read_text(encoding="utf-8"))


@functools.cache
def _every_cell() -> dict[str, Any]:
    return json.loads((RESULTS / "cell_speed.json").read_text(encoding="utf-8"))


@functools.cache
def _on_the_card() -> dict[str, Any]:
    return json.loads((RESULTS / "h200.json").read_text(encoding="utf-8"))


@functools.cache
def every_cell_on_the_card() -> dict[str, Any]:
    """Of all cells at one size; nothing if it has not been measured."""
    path = RESULTS / "cell_speed_h200.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"cells": {}}


def beside_lstm(name: str) -> float | None:
    """Training time as a multiple of the LSTM's, on one thread of a CPU."""
    row = _every_cell()["cells"].get(name, {})
    if name == "lstm":
        return 1.0
    return row["milliseconds"] / row["lstm"] if "lstm" in row else None


def beside_lstm_on_the_card(name: str) -> float | None:
    """The same on a GPU."""
    row = every_cell_on_the_card()["cells"].get(name, {})
    if name == "lstm" and row:
        return 1.0
    return row["train_ms"] / row["lstm_train_ms"] if "train_ms" in row else None


def in_words(times: float) -> str:
    """A multiple with as many digits as mean something."""
    return f"{times:.2f}" if times < 100 else f"{times:.0f}"


def products(name: str) -> int | None:
    """Matrix products of a step."""
    return _every_cell()["cells"].get(name, {}).get("products")


def section(name: str) -> str:
    """Speed beside the LSTM, on a card where it was measured, and against the plain loop and other libraries."""
    parts = [part for part in (_cpu(name), _card(name), _others(name)) if part]
    return "## Measured speed\n\n" + "\n\n".join(parts) if parts else ""


def _cpu(name: str) -> str:
    times, about = beside_lstm(name), _every_cell()
    if times is None:
        return ""
    row = about["cells"][name]
    engine = "compiled" if row["compiled"] else "as the plain loop of torch operations"
    beside = f"**{times:.2f} ×** the time of an LSTM: {row['milliseconds']:.2f} ms beside {row['lstm']:.2f} ms"
    took = f"{row['milliseconds']:.2f} ms" if name == "lstm" else beside
    return (
        f"On a CPU, training takes {took}, {engine}. Processor time of one thread, (T, B, D, H) = "
        f"{tuple(about['size'])}, float32, {about['processor']}, torch {about['torch']}, {about['when'][:10]}."
    )


def _card(name: str) -> str:
    parts = (_card_beside_lstm(name), _card_beside_cudnn(name), _matrix_states(name))
    return "\n\n".join(part for part in parts if part) or "On an H200 this cell has not been measured."


def _card_beside_lstm(name: str) -> str:
    about = every_cell_on_the_card()
    row = about["cells"].get(name)
    if row is None:
        return ""
    at = f"(T, B, D, H) = {tuple(about['size'])}"
    of = f"torch {about['torch']}, {about['when'][:10]}"
    if "error" in row:
        return f"On an {_device(about)} this cell could not be measured at {at}: {_code(row['error'])} ({of})."
    took = f"{row['forward_ms']:.2f} ms forward and {row['train_ms']:.2f} ms for a training step"
    if (times := beside_lstm_on_the_card(name)) and name != "lstm":
        of_lstm = f"{row['lstm_forward_ms']:.2f} and {row['lstm_train_ms']:.2f} ms"
        took = f"a training step takes **{in_words(times)} ×** the time of an LSTM: {took}, beside {of_lstm}"
    dtype = {"bf16": "bfloat16", "fp32": "float32"}[row["dtype"]]
    said = f"On an {_device(about)}, {took}. {at}, {dtype}, {of}."
    return f"{said} The engine said: {_code(row['note'])}" if "note" in row else said


def _device(about: dict[str, Any]) -> str:
    return about["device"].removeprefix("NVIDIA ")


def _code(message: str) -> str:
    return "`" + " ".join(message.replace("`", "'").split()) + "`"


def _card_beside_cudnn(name: str) -> str:
    about = _on_the_card()
    rows = [row for row in about["rows"] if row["cell"] == name and row["dtype"] == "bf16"]
    lines = [
        f"| ({r['T']}, {r['B']}, {r['D']}, {r['H']}) | {r['forward_ms']:.2f} | {r['train_ms']:.2f} "
        f"| {r['train / cuDNN LSTM fp16']:.2f} × |"
        for r in rows
        if r.get("train / cuDNN LSTM fp16")
    ]
    if not lines:
        return ""
    head = "| (T, B, D, H) | forward, ms | training, ms | training beside cuDNN's LSTM in fp16 |\n|---|---|---|---|\n"
    where = f"On an {_device(about)} in bfloat16, torch {about['torch']}, {about['when'][:10]}:"
    return f"{where}\n\n{head}" + "\n".join(lines)


def _matrix_states(name: str) -> str:
    """Of a cell with a matrix memory on a card, beside kernels written for it."""
    path = RESULTS / "matrix_states_gpu.json"
    about = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    lines = [
        f"| {size} | {what} | {times['recurra']:.2f} | {', '.join(f'{peer} {t:.2f}' for peer, t in others.items())} |"
        for size, passes in about.get("times", {}).get(name, {}).items()
        for what, times in passes.items()
        if "recurra" in times
        for others in [{peer: t for peer, t in times.items() if peer != "recurra"}]
    ]
    if not lines:
        return ""
    of = about["environment"]
    where = f"On an {_device(of)}, torch {of['torch']}, milliseconds of a whole layer:"
    head = "| (T, B, heads, keys = values) | pass | recurra | kernels for this cell |\n|---|---|---|---|\n"
    return f"{where}\n\n{head}" + "\n".join(lines)


def _others(name: str) -> str:
    results = _measured()
    rows = [
        f"| {peer} | {times:.1f} × |"
        for each in results["loops"]
        if each["cell"] == name
        for peer, times in each["times faster than"].items()
    ]
    if not rows:
        return ""
    size = next(each["size"] for each in results["loops"] if each["cell"] == name)
    where = f"{results['processor']}, {results['threads']} threads, torch {results['torch']}"
    return (
        f"Training beside other ways to run the same equations, (T, B, D, H) = {tuple(size)}, float32, {where}:\n\n"
        "| faster than | by |\n|---|---|\n" + "\n".join(rows)
    )
