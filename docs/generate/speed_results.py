"""Measured training speed of a cell, from the committed benchmark results."""

import functools
import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@functools.cache
def _measured() -> dict[str, Any]:
    return json.loads((RESULTS / "speed.json").read_text(encoding="utf-8"))


def section(name: str) -> str:
    """Speed against the plain loop and other libraries, where it was measured."""
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
        f"## Measured speed\n\nTraining at (T, B, D, H) = {tuple(size)}, float32, {where}.\n\n"
        "| faster than | by |\n|---|---|\n" + "\n".join(rows)
    )
