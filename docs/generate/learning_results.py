"""What a cell learned in the comparison at equal parameters and time, from the committed results."""

import functools
import json
from pathlib import Path
from statistics import mean, stdev
from typing import Any

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@functools.cache
def _measured() -> dict[str, Any]:
    return json.loads((RESULTS / "which_cell.json").read_text(encoding="utf-8"))


def section(name: str) -> str:
    """The scores of a cell beside the LSTM's (an LSTM's beside the GRU's), where it was compared."""
    about = _measured()
    beside = "gru" if name == "lstm" else "lstm"
    rows = [_row(task, name, beside) for task in about["tasks"].values() if name in task["cells"]]
    if not rows:
        return ""
    settings = about["settings"]
    head = f"| task | measure | {name} | {beside} |\n|---|---|---|---|\n"
    return (
        f"## What it learned\n\nAbout {settings['parameters']:,} parameters, {settings['seconds']:g} s of processor "
        f"time, {settings['seeds']} seeds: mean ± standard deviation. [All cells](../../which_cell.md).\n\n"
        + head
        + "\n".join(rows)
    )


def _row(task: dict[str, Any], name: str, beside: str) -> str:
    measure = f"{task['metric']}, {task['better']} is better"
    return f"| {task['says']} | {measure} | {_score(task, name)} | {_score(task, beside)} |"


def _score(task: dict[str, Any], name: str) -> str:
    scores = task["cells"][name]["scores"]
    return f"{mean(scores):.3g} ± {stdev(scores):.2g}"
