"""Speed against torch's own modules, the plain loop and the machine's matrix product, in one interleaved run.

    python benchmarks/speed.py [--all] [--threads N] [--rounds N]

Shares are of the rate of a 2048³ matrix product timed in the same rounds; ratios are to the torch.nn module of the same
equations, where there is one. Medians over interleaved rounds; nothing here decides a test.
"""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch
from torch import Tensor, nn

import recurra as rc
from recurra.engine import compiled
from recurra.engine.scan import Sequences, choose, set_backend

SIZES = ((256, 64, 128, 256), (50, 16, 512, 512), (100, 32, 64, 128), (784, 16, 1, 128), (256, 1, 128, 256))
CELLS = (
    "lstm",
    "vanilla_lstm",
    "gru",
    "rnn",
    "mgu",
    "leaky_rnn",
    "projection_lstm",
    "scrn",
    "janet",
    "lem",
    "slstm",
    "indrnn",
)
TWINS = {"lstm": nn.LSTM, "gru(reset_after=True)": nn.GRU, "rnn": nn.RNN}
RESULTS = Path(__file__).parent / "results"


def build(name: str, inputs: int, units: int) -> rc.Recurrent:
    plain, _, option = name.partition("(")
    options = {"reset_after": True} if "reset_after" in option else {}
    return rc.layer(plain, inputs, units, **options)


def matrix_job() -> tuple[Callable[[], object], float]:
    a, b = torch.randn(2, 2048, 2048)
    return lambda: a @ b, 2.0 * 2048**3


def operations(layer: rc.Recurrent, x: Tensor) -> tuple[float, float]:
    """(forward, training) floating point operations of the products; the gradient of x is not asked for."""
    cell = layer.sheets[0]
    given = Sequences(x, cell.initial_state(x.shape[1], x), cell.draw_masks(x.shape[0], x.shape[1], x))
    choice = choose(cell, given)
    if not choice.key:
        return float("nan"), float("nan")
    plan = compiled.PLANS[choice.key].plan
    rows = x.shape[0] * x.shape[1]
    every = sum(p.matrix.wide * p.matrix.deep for p in plan.products)
    of_x = sum(p.matrix.wide * p.matrix.deep for p in plan.products if p.operand.buffer == "x")
    return 2.0 * rows * every, 2.0 * rows * (3 * every - of_x)


def jobs(module: nn.Module, x: Tensor) -> dict[str, Callable[[], object]]:
    def infer() -> None:
        with torch.no_grad():
            module(x)

    cotangent = torch.randn_like(module(x)[0])

    def train() -> None:
        module.zero_grad(set_to_none=True)
        module(x)[0].backward(cotangent)

    return {"inference": infer, "training": train}


def timed(job: Callable[[], object]) -> float:
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def measure(cells: tuple[str, ...], size: tuple[int, ...], rounds: int) -> list[dict]:
    steps, batch, inputs, units = size
    x = torch.randn(steps, batch, inputs)
    matrix, matrix_operations = matrix_job()
    table: dict[tuple[str, str, str], Callable[[], object]] = {("matrix", "", ""): matrix}
    counts = {}
    for name in cells:
        layer = build(name, inputs, units)
        counts[name] = operations(layer, x)
        table |= {(name, "recurra", kind): job for kind, job in jobs(layer, x).items()}
        if name in TWINS:
            table |= {(name, "torch.nn", kind): job for kind, job in jobs(TWINS[name](inputs, units), x).items()}
    times: dict[tuple[str, str, str], list[float]] = {key: [] for key in table}
    for number in range(rounds + 1):
        for key, job in table.items():
            seconds = timed(job)
            if number:  # the first round warms up
                times[key].append(seconds)
    medians = {key: statistics.median(values) for key, values in times.items()}
    rate = matrix_operations / medians["matrix", "", ""]
    return [_row(name, kind, size, medians, counts[name], rate) for name in cells for kind in ("inference", "training")]


def _row(name: str, kind: str, size: tuple[int, ...], medians: dict, counts: tuple[float, float], rate: float) -> dict:
    seconds = medians[name, "recurra", kind]
    twin = medians.get((name, "torch.nn", kind))
    return {
        "cell": name,
        "kind": kind,
        "size": list(size),
        "seconds": seconds,
        "share": counts[kind == "training"] / seconds / rate,
        "against torch.nn": twin / seconds if twin else None,
        "matrix rate": rate,
    }


def loop_ratio(rounds: int) -> float:
    """How much faster than the plain loop, at one size."""
    layer, x = build("vanilla_lstm", 64, 128), torch.randn(100, 32, 64)
    job = jobs(layer, x)["training"]
    fast = statistics.median(timed(job) for _ in range(rounds))
    with set_backend("reference"):
        slow = statistics.median(timed(job) for _ in range(3))
    return slow / fast


def picture(rows: list[dict], path: Path) -> None:
    """Training shares as an HTML page."""
    import plotly.graph_objects as go

    sizes = sorted({tuple(row["size"]) for row in rows}, reverse=True)
    figure = go.Figure()
    for size in sizes:
        chosen = [r for r in rows if tuple(r["size"]) == size and r["kind"] == "training"]
        shares = [round(100 * r["share"]) for r in chosen]
        figure.add_bar(name=f"T, B, D, H = {size}", x=[r["cell"] for r in chosen], y=shares)
    figure.update_layout(
        title="Training: percent of the machine's matrix product", yaxis_title="%", template="plotly_white"
    )
    figure.write_html(path)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--all", action="store_true", help="every cell of the registry")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--rounds", type=int, default=7)
    given = arguments.parse_args()
    torch.set_num_threads(given.threads)
    known = tuple(name for name in CELLS if name in rc.registry())
    cells = tuple(sorted(rc.registry())) if given.all else (*known, "gru(reset_after=True)")
    rows: list[dict] = []
    for size in SIZES:
        print(f"\n(T, B, D, H) = {size}; load {os.getloadavg()[0]:.1f}")
        rows += (found := measure(cells, size, given.rounds))
        for row in found:
            ratio = f"{row['against torch.nn']:5.2f} × torch.nn" if row["against torch.nn"] else ""
            share, seconds = 100 * row["share"], 1e3 * row["seconds"]
            print(f"  {row['cell']:24}{row['kind']:10} {seconds:9.2f} ms {share:5.0f} %  {ratio}")
    ratio = loop_ratio(given.rounds)
    print(f"\nvanilla_lstm, training at (100, 32, 64, 128): {ratio:.1f} × the plain loop")
    RESULTS.mkdir(exist_ok=True)
    about = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "threads": given.threads,
        "load": os.getloadavg(),
        "loop ratio": ratio,
    }
    (RESULTS / "speed.json").write_text(json.dumps(about | {"rows": rows}, indent=1))
    picture(rows, RESULTS / "speed.html")


if __name__ == "__main__":
    main()
