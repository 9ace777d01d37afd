"""Speed against torch's own modules, another library, the plain loop and the machine's matrix product.

    python benchmarks/speed.py [--all | --zoo] [--threads N] [--rounds N] [--device cuda [--part PART] [--runs N]]

Shares are of the rate of a 2048³ matrix product timed in the same rounds; for cells without an H×H product, of the
time their product with x and a copy of x and y would take. Ratios are to the module of the same equations. Medians over
interleaved rounds; nothing here decides a test. A share above 100 % says that torch's product is below what the core
can do, not that work was left out: one thread of an AMD EPYC with AVX-512 gave 120 GFLOP/s by torch.mm, 138 by NumPy's
product and 238 in a layer.
"""

import argparse
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import calls_gpu  # pyrefly: ignore
import cells_gpu  # pyrefly: ignore
import speed_gpu  # pyrefly: ignore
import torch
from bars import bar_chart  # pyrefly: ignore
from environment import environment  # pyrefly: ignore
from timing import Clock, Job, barrier_seconds, copy_job, interleaved, matrix_job  # pyrefly: ignore
from torch import Tensor, nn
from unseen_cells import UNSEEN  # pyrefly: ignore

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.engine.dispatch import Sequences, choose
from recurra.engine.ir.buffers import X

SIZES = ((256, 64, 128, 256), (50, 16, 512, 512), (100, 32, 64, 128), (784, 16, 1, 128), (256, 1, 128, 256))
AFTER = "gru(reset_after=True)"
CELLS = ("lstm", "vanilla_lstm", "gru", AFTER, "rnn", "mgu", "leaky_rnn", "projection_lstm", "scrn", "janet", "lem")
MORE = ("slstm", "indrnn")
# Ten cells with products from the families that no other library compiles, at the two large sizes.
ZOO = (
    "sgu", "li_gru", "nbrc", "multiplicative_lstm", "nas", "residual_lstm", "rhn", "mogrifier_lstm", "ctrnn",
    "recurrent_lif",
)  # fmt: skip
ZOO_SIZES = SIZES[:2]
TWINS = {"lstm": nn.LSTM, AFTER: nn.GRU, "rnn": nn.RNN}
# torchrecurrent's classes of the same equations; its MUT2 is the survey's GRU by mistake.
PEERS = {"vanilla_lstm": "PeepholeLSTM", "mgu": "MGU", "janet": "JANET", "indrnn": "IndRNN", "gru": "MUT2"}
LOOPED = ("lstm", "vanilla_lstm", "gru", "mgu")  # timed against the plain loop too
SMALL = SIZES[2]
RESULTS = Path(__file__).parent / "results"


# ---------------------------------------------------------------------------------------------------- contestants


def build(name: str, inputs: int, units: int) -> rc.Recurrent:
    if name in UNSEEN:
        return rc.Recurrent(UNSEEN[name], inputs, units)
    plain, _, option = name.partition("(")
    return rc.layer(plain, inputs, units, **({"reset_after": True} if option else {}))


def operations(layer: rc.Recurrent, x: Tensor) -> tuple[float, float]:
    """(forward, training) floating point operations of the products; the gradient of x is not asked for."""
    products = _products(layer, x)
    rows = x.shape[0] * x.shape[1]
    every = sum(wide * deep for wide, deep, _ in products)
    of_x = sum(wide * deep for wide, deep, reads_x in products if reads_x)
    return 2.0 * rows * every, 2.0 * rows * (3 * every - of_x)


def _products(layer: rc.Recurrent, x: Tensor) -> list[tuple[int, int, bool]]:
    cell = layer.cell_list[0]
    given = Sequences(x, cell.initial_state(x.shape[1], x), cell.draw_masks(x.shape[0], x.shape[1], x))
    choice = choose(cell, given)
    if choice.executor is None:
        return []
    plan = choice.executor.plan
    return [(p.matrix.wide, p.matrix.deep, p.operand.buffer == X) for p in plan.products]


def jobs(module: nn.Module, x: Tensor) -> dict[str, Job]:
    def infer() -> None:
        with torch.no_grad():
            module(x)

    cotangent = torch.randn_like(module(x)[0])

    def train() -> None:
        module.zero_grad(set_to_none=True)
        module(x)[0].backward(cotangent)

    return {"inference": infer, "training": train}


# ---------------------------------------------------------------------------------------------------- one size


def measure(cells: tuple[str, ...], size: tuple[int, ...], rounds: int, clock: Clock = time.perf_counter) -> list[dict]:
    steps, batch, inputs, units = size
    x = torch.randn(steps, batch, inputs)
    matrix, matrix_operations = matrix_job()
    table: dict[tuple[str, str, str], Job] = {("matrix", "", ""): matrix}
    copy, copy_bytes = copy_job()
    table["copy", "", ""] = copy
    counts = {}
    for name in cells:
        layer = build(name, inputs, units)
        counts[name] = (*operations(layer, x), any(not of_x for *_, of_x in _products(layer, x)))
        table |= {(name, "recurra", kind): job for kind, job in jobs(layer, x).items()}
        if name in TWINS:
            twin = TWINS[name](inputs, units)
            table |= {(name, "torch.nn", kind): job for kind, job in jobs(twin, x).items()}
    medians = interleaved(table, rounds, clock)
    rates = matrix_operations / medians["matrix", "", ""], copy_bytes / medians["copy", "", ""]
    kinds = ("inference", "training")
    return [_row(name, kind, size, medians, counts[name], rates) for name in cells for kind in kinds]


def zoo(rounds: int) -> list[dict]:
    """Rows of the ten cells of `ZOO`, printed; on one thread by processor time, which a busy machine distorts less."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    rows: list[dict] = []
    for size in ZOO_SIZES:
        print(f"\nten cells of the wider zoo, (T, B, D, H) = {size}; load {os.getloadavg()[0]:.1f}", flush=True)
        rows += (found := measure(ZOO, size, rounds, clock))
        print("\n".join(map(show, found)), flush=True)
    return rows


def write_zoo(rows: list[dict], threads: int, rounds: int) -> None:
    command = f"python benchmarks/speed.py --zoo --threads {threads} --rounds {rounds}"
    about = {"command": command, **environment(), "threads": threads, "load": os.getloadavg(), "rows": rows}
    (RESULTS / "zoo_speed.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    (RESULTS / "zoo_speed.md").write_text(zoo_table(about), encoding="utf-8")


def zoo_table(about: dict) -> str:
    """The shares of `ZOO` as Markdown, a row for each cell."""
    clock = "processor time on one thread" if about["threads"] == 1 else f"wall time on {about['threads']} threads"
    shares = {(row["cell"], *row["size"], row["kind"]): row["share"] for row in about["rows"]}
    kinds = [(*size, kind) for size in ZOO_SIZES for kind in ("inference", "training")]
    head = [f"({', '.join(map(str, key[:4]))}) {key[4]}" for key in kinds]
    lines = ["# Ten cells of the wider zoo beside the machine's matrix product", ""]
    lines += [
        f"`{about['command']}`: {about['processor']}, {clock}, torch {about['torch']}, "
        f"load {about['load'][0]:.1f}. Shares of the rate of torch's 2048³ product, timed in the same rounds, that a "
        "call of a layer reaches, counting its products alone; above 100 % a kernel is faster than that product. The "
        "goal is 75 % in training.",
        "",
        f"| (T, B, D, H) | {' | '.join(head)} |",
        f"|---|{'---|' * len(head)}",
    ]
    lines += [f"| {cell} | {' | '.join(f'{100 * shares[cell, *key]:.0f} %' for key in kinds)} |" for cell in ZOO]
    return "\n".join(lines) + "\n"


def products_alone(size: tuple[int, ...], rounds: int) -> dict:
    """What torch.mm itself makes of an LSTM's products in training, all steps at once as no recurrence would allow: as
    a share of the same 2048³ product, and so what is to be expected of any share above."""
    steps, batch, inputs, units = size
    operands, delta = torch.randn(steps * batch, inputs + units), torch.randn(steps * batch, 4 * units)
    weights, recurrent = torch.randn(inputs + units, 4 * units), torch.randn(4 * units, units)

    def products() -> None:
        torch.mm(operands, weights)
        torch.mm(delta, recurrent)
        torch.mm(delta.t(), operands)

    matrix, operations_of_matrix = matrix_job()
    medians = interleaved({"products": products, "matrix": matrix}, rounds)
    rate = operations_of_matrix / medians["matrix"]
    needed = 2.0 * steps * batch * 4 * units * (2 * (inputs + units) + units)
    return {"size": list(size), "share": needed / rate / medians["products"]}


def _row(name: str, kind: str, size: tuple[int, ...], medians: dict, counts: tuple, rates: tuple[float, float]) -> dict:
    seconds = medians[name, "recurra", kind]
    twin = medians.get((name, "torch.nn", kind))
    steps, batch, inputs, units = size
    moved = 4.0 * steps * batch * (inputs + units) * (3 if kind == "training" else 1)  # x in and y out, at the least
    least = counts[kind == "training"] / rates[0] + (0.0 if counts[2] else moved / rates[1])
    return {
        "cell": name,
        "kind": kind,
        "size": list(size),
        "seconds": seconds,
        "share": least / seconds,
        "share of": "the matrix product" if counts[2] else "product and copy",
        "against torch.nn": twin / seconds if twin else None,
        "matrix rate": rates[0],
    }


# ---------------------------------------------------------------------------------------------------- the slow ones


def against_loops(rounds: int) -> list[dict]:
    """Training at the small size against the plain loop, and against torchrecurrent where it is installed."""
    steps, batch, inputs, units = SMALL
    x, found = torch.randn(steps, batch, inputs), []
    for name in (*LOOPED, *(n for n in PEERS if n not in LOOPED)):
        train = jobs(build(name, inputs, units), x)["training"]
        contestants: dict[str, Job] = {"recurra": train}
        if name in LOOPED:
            contestants["the plain loop"] = _looping(train)
        peer = _peer(name, inputs, units)
        if peer is not None:
            contestants["torchrecurrent"] = jobs(peer, x)["training"]
        medians = interleaved(contestants, max(2, rounds // 3))
        ratios = {other: medians[other] / medians["recurra"] for other in contestants if other != "recurra"}
        found.append({"cell": name, "size": list(SMALL), "times faster than": ratios})
    return found


def _looping(job: Job) -> Job:
    def run() -> None:
        with set_backend("reference"):
            job()

    return run


def _peer(name: str, inputs: int, units: int) -> nn.Module | None:
    if name not in PEERS:
        return None
    try:
        import torchrecurrent
    except ModuleNotFoundError:
        return None
    return getattr(torchrecurrent, PEERS[name])(inputs, units)


def step_seconds(rounds: int) -> dict[str, float]:
    """One step of a stream, B = 1, H = 128, beside nn.LSTMCell's: each begins from the states of the one before."""
    layer, theirs, x = rc.layer("lstm", 128, 128), nn.LSTMCell(128, 128), torch.randn(1, 128)
    started = layer.step(x)[1]

    @torch.no_grad()
    def ours_streamed() -> None:
        state = started
        for _ in range(200):
            _, state = layer.step(x, state)

    @torch.no_grad()
    def theirs_streamed() -> None:
        state = started[0][0], started[1][0]
        for _ in range(200):
            state = theirs(x, state)

    found = interleaved({"layer.step": ours_streamed, "nn.LSTMCell": theirs_streamed}, rounds)
    return {str(name): seconds / 200 for name, seconds in found.items()}


# ---------------------------------------------------------------------------------------------------- the run


def picture(rows: list[dict], path: Path) -> None:
    """Training shares, for the README."""
    sizes = sorted({tuple(row["size"]) for row in rows if row["size"][1] > 1}, key=SIZES.index)
    chosen = [r for r in rows if r["kind"] == "training" and r["share of"] == "the matrix product"]
    cells = list(dict.fromkeys(r["cell"] for r in chosen))
    shares = {(r["cell"], tuple(r["size"])): 100 * r["share"] for r in chosen}
    series = {f"T, B, D, H = {', '.join(map(str, s))}": [shares[c, s] for c in cells] for s in sizes}
    title = "Training any cell, as a share of the machine's own matrix product"
    path.write_text(bar_chart(title, " %", cells, series))


def show(row: dict) -> str:
    ratio = f"{row['against torch.nn']:5.2f} × torch.nn" if row["against torch.nn"] else ""
    of = "" if row["share of"] == "the matrix product" else f"of {row['share of']}"
    return f"  {row['cell']:22}{row['kind']:10} {1e3 * row['seconds']:9.2f} ms {100 * row['share']:5.0f} % {of} {ratio}"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--all", action="store_true", help="every cell of the registry")
    arguments.add_argument("--zoo", action="store_true", help="only ten cells of the wider zoo, at the large sizes")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments.add_argument("--part", choices=("layers", "calls", "cells"), help="on a CUDA device: only this table")
    arguments.add_argument("--runs", type=int, default=3, help="on a CUDA device: runs of every row of the calls")
    arguments.add_argument("--seconds", type=float, default=540.0, help="on a CUDA device: after which no cell begins")
    arguments.add_argument("--cells", default="", help="with --part cells: only these, measured anew, as a,b")
    given = arguments.parse_args()
    if given.device == "cuda":
        parts = {"layers": speed_gpu.main, "calls": lambda: calls_gpu.main(runs=given.runs)}
        parts["cells"] = lambda: cells_gpu.main(given.seconds, [name for name in given.cells.split(",") if name])
        for part in [given.part] if given.part else parts:
            parts[part]()
        return
    torch.set_num_threads(given.threads)
    if given.zoo:
        write_zoo(zoo(given.rounds), given.threads, given.rounds)
        return
    cells = tuple(sorted(rc.registry())) if given.all else (*CELLS, *MORE)
    rows: list[dict] = []
    barriers = [barrier_seconds(given.threads)]
    for size in SIZES:
        print(f"\n(T, B, D, H) = {size}; load {os.getloadavg()[0]:.1f}", flush=True)
        rows += (found := measure((*cells, *UNSEEN), size, given.rounds))
        print("\n".join(map(show, found)), flush=True)
    write_zoo(zoo(given.rounds), given.threads, given.rounds)
    alone = [products_alone(size, given.rounds) for size in SIZES]
    about: dict[str, Any] = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        **environment("torchrecurrent"),
        "threads": given.threads,
        "load": os.getloadavg(),
    }
    barriers.append(barrier_seconds(given.threads))
    about |= {"barrier seconds": barriers, "loops": against_loops(given.rounds), "step": step_seconds(given.rounds)}
    about["products alone"] = alone
    print("  an LSTM's products alone, all steps at once, by torch.mm:", *(f"{100 * a['share']:.0f} %" for a in alone))
    for loop in about["loops"]:
        print(f"  {loop['cell']:22} training", *(f"{r:.1f} × {n}" for n, r in loop["times faster than"].items()))
    print("  one streamed step:", *(f"{n} {1e6 * s:.0f} µs" for n, s in about["step"].items()))
    print("  threads meet in", *(f"{1e9 * s:.0f} ns" for s in barriers))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "speed.json").write_text(json.dumps(about | {"rows": rows}, indent=1))
    picture(rows, RESULTS / "speed.svg")


if __name__ == "__main__":
    main()
