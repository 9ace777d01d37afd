"""What the learning algorithms learn, beside the papers' numbers.

python -m benchmarks.learning NAME [--seeds N] [--minutes M]     one experiment → benchmarks/results/learning_NAME.json
python -m benchmarks.learning table                               all of them → benchmarks/results/learning.md
"""

import argparse
import json
import statistics
from collections.abc import Callable

import torch

from benchmarks.environment import environment
from benchmarks.proofs.common import RESULTS, Row
from benchmarks.proofs.counting import counting_bptt, counting_dekf
from benchmarks.proofs.evolution import evolino, evolved
from benchmarks.proofs.original_rule import original
from benchmarks.proofs.reber import fewer_symbols, reber

EXPERIMENTS: dict[str, Callable[[int, float], Row]] = {
    "adding": lambda seed, minutes: original("adding", seed, minutes),
    "temporal_order": lambda seed, minutes: original("temporal_order", seed, minutes),
    "reber_forget_gate": lambda seed, minutes: reber("lstm", seed, minutes),
    "reber_no_forget_gate": lambda seed, minutes: reber("original_lstm", seed, minutes),
    "symbols_dekf": lambda seed, minutes: fewer_symbols("dekf", seed, minutes),
    "symbols_gradient": lambda seed, minutes: fewer_symbols("gradient", seed, minutes),
    "anbn_dekf": counting_dekf,
    "evolino_sines": lambda seed, minutes: evolino("sines", seed, minutes),
    "evolino_sines_published": lambda seed, minutes: evolino("sines_published", seed, minutes),
    "evolino_sines_no_factor": lambda seed, minutes: evolino("sines_no_factor", seed, minutes),
    "evoke_sines": lambda seed, minutes: evolino("evoke", seed, minutes),
    "evolino_mackey_glass": lambda seed, minutes: evolino("mackey_glass", seed, minutes),
    "evolved": evolved,
}
#: all seeds at once
TOGETHER: dict[str, Callable[[list[int], float], list[Row]]] = {"anbn_bptt": counting_bptt}


def run(name: str, seeds: int, minutes: float) -> None:
    """Each seed for so many minutes; what is done is written after every seed."""
    if name in TOGETHER:
        write(name, TOGETHER[name](list(range(seeds)), minutes * seeds), minutes)
        return
    rows: list[Row] = []
    for seed in range(seeds):
        rows.append(EXPERIMENTS[name](seed, minutes))
        write(name, rows, minutes)


def write(name: str, rows: list[Row], minutes: float) -> None:
    command = f"python -m benchmarks.learning {name} --seeds {len(rows)} --minutes {minutes:g}"
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"command": command, "environment": environment(), "rows": rows}, indent=1)
    (RESULTS / f"learning_{name}.json").write_text(text + "\n", encoding="utf-8")


WANTED = {
    "adding": "≤ 3 of 2,560 wrong (1997: 74,000 sequences)",
    "temporal_order": "≤ 3 of 2,560 wrong (1997: 31,390 sequences)",
    "reber_forget_gate": "≥ 0.98 of outer predictions",
    "reber_no_forget_gate": "the same without a forget gate, reported",
    "symbols_dekf": "fewer symbols than the gradient rule",
    "symbols_gradient": "what the filter is compared with",
    "anbn_bptt": "best ≥ 500",
    "anbn_dekf": "best ≥ 500",
    "evolino_sines": "NRMSE ≤ 0.1 over 400 steps",
    "evolino_sines_published": "NRMSE ≤ 0.1 over 300 steps, the cells of the paper, settings of its authors' example",
    "evolino_sines_no_factor": "the same without the factor of 0.001 on what is fed back, reported",
    "evoke_sines": "two sines, 10 cells, support vectors: NRMSE ≤ 0.1 over 300 steps in the median",
    "evolino_mackey_glass": "NRMSE_84 ≤ 1e-2 (2007: 1.9e-3)",
    "evolved": "better than the best cell of its starting population",
}


def table() -> str:
    """One line an experiment."""
    columns = "| experiment | per seed: median (least to most) | wanted | seconds | command |"
    lines = [(__doc__ or "").splitlines()[0], "", columns, "|---|---|---|---|---|"]
    for name in WANTED:
        path = RESULTS / f"learning_{name}.json"
        if path.exists():
            data = json.loads(path.read_text(encoding="utf-8"))
            rows = data["rows"]
            seconds = _spread([row["seconds"] for row in rows])
            lines.append(f"| {name} | {_summary(rows)} | {WANTED[name]} | {seconds} | `{data['command']}` |")
    return "\n".join(lines) + "\n"


def _summary(rows: list[Row]) -> str:
    if "held_out" in rows[0]:
        parts = {n: [loss for loss, _ in v] for n, v in rows[0]["held_out"].items()}
        means = "; ".join(f"{n} {statistics.mean(v):.4f} ± {statistics.stdev(v):.4f}" for n, v in parts.items())
        return f"held-out cross-entropy: {means}"
    measured = [key for key in rows[0] if key not in ("seed", "seconds")]
    each = {key: [row[key] for row in rows] for key in measured}
    return "; ".join(f"{k} {_each(values)}" for k, values in each.items())


def _each(values: list[float | None]) -> str:
    """All of them and their spread; what is the same in all, once."""
    if len(set(values)) == 1:
        return _number(values[0])
    return f"{' · '.join(map(_number, values))}: {_spread(values)}"


def _spread(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return _number(known[0] if known else None)
    return f"{_number(statistics.median(known))} ({_number(min(known))} to {_number(max(known))})"


def _number(value: float | None) -> str:
    if value is None:
        return "never"
    return f"{value:.4g}" if isinstance(value, float) and abs(value) < 1000 else f"{value:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[*WANTED, "table"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=5.0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.name == "table":
        (RESULTS / "learning.md").write_text(table(), encoding="utf-8")
    else:
        run(given.name, given.seeds, given.minutes)


if __name__ == "__main__":
    main()
