"""What the learning algorithms learn, beside the papers' numbers.

python -m benchmarks.learning NAME [--seeds 3] [--minutes 5]     one experiment → benchmarks/results/learning_NAME.json
python -m benchmarks.learning table                               all of them → benchmarks/results/learning.md
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import recurra as rc
from recurra.data import tasks
from recurra.data.batching import generator
from recurra.engine.scan import set_backend
from recurra.train import BPTT, DEKF, Evolino, EvolinoCell, Evolution, OriginalLSTMRule, Predictor, Trial
from recurra.train.evolve_cells import languages, try_cell, width

RESULTS = Path(__file__).parent / "results"
Row = dict[str, Any]


class Clock:
    """How long an experiment may take, and how long it took: processor time of one core, whatever else runs."""

    def __init__(self, minutes: float):
        self.start, self.limit = time.process_time(), 60 * minutes

    @property
    def seconds(self) -> float:
        return time.process_time() - self.start

    @property
    def over(self) -> bool:
        return self.seconds > self.limit


def set_rate(learner: Any, rate: float) -> None:
    for group in learner.optimizer.param_groups:
        group["lr"] = rate


# ---------------------------------------------------------------------------------------------------- the rule of 1997


def original(kind: str, seed: int, minutes: float) -> Row:
    """Adding T = 100 or temporal order, in batches of 32, until at most 3 of 2,560 new sequences are wrong."""
    clock, adding = Clock(minutes), kind == "adding"
    torch.manual_seed(seed)
    task = tasks.adding(length=100) if adding else tasks.temporal_order()
    layer = rc.layer("original_lstm", task.input_size, 8 if adding else 4, squash="1997", block_size=2)
    model = Predictor(layer, task.output_size)
    gates: Any = layer.cells[0]
    with torch.no_grad():  # closed input gates, as in 1997; output gates neutral
        closed = torch.tensor([-3.0, -6.0, -3.0, -6.0] if adding else [-2.0, -4.0])
        gates.i.b_raw.copy_(closed)
        gates.o.b_raw.zero_()
    learner = OriginalLSTMRule(model, "mse" if adding else "cross_entropy", "adam", 0.02)
    test = task.draw(2560, generator(10_000 + seed))
    seen, wrong = 0, 2560
    while wrong > 3 and not clock.over:
        for batch in task.batches(32, 100, seed=seed).epoch(seen // 3200):
            set_rate(learner, 0.02 * 0.1 ** max(0.0, (seen - 25_000) / 20_000))
            learner.step(batch.inputs, batch.targets, batch.mask)
            seen += 32
        wrong = _wrong(model, test, adding)
        print(kind, seed, seen, wrong, round(clock.seconds), flush=True)
    return {"seed": seed, "sequences": seen, "wrong": wrong, "seconds": round(clock.seconds)}


@torch.no_grad()
def _wrong(model: Predictor, batch: Any, adding: bool) -> int:
    """Adding: off by more than 0.04. Temporal order: any output off by more than 0.3."""
    with set_backend("reference"):
        h = model.layer(batch.inputs, lengths=batch.lengths)[0]
    last = model.head(h[batch.lengths - 1, torch.arange(h.shape[1])])
    if adding:
        return int(((last - batch.targets).abs() > 0.04).sum())
    wanted = torch.nn.functional.one_hot(batch.targets, 4).to(last)
    return int(((last.softmax(-1) - wanted).abs() > 0.3).any(-1).sum())


# ---------------------------------------------------------------------------------------------------- continual Reber


def streams(count: int, steps: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless embedded Reber strings, `count` beside each other, in pieces of `steps`."""
    task = tasks.continual_reber(length=6000)
    for number in range(10_000):
        batch = task.draw(count, generator(seed, number))
        for start in range(0, 6000, steps):
            yield batch.inputs[start : start + steps], batch.targets[start : start + steps]


@torch.no_grad()
def outer_accuracy(model: Predictor, seed: int, length: int = 3000) -> float:
    task = tasks.continual_reber(length=length)
    batch = task.draw(8, generator(77_000 + seed))
    with set_backend("reference"):
        return task.score(model(batch.inputs)[0], batch)


def reber(cell: str, seed: int, minutes: float) -> Row:
    """The original rule on 32 unsegmented streams: outer predictions right after training."""
    clock = Clock(minutes)
    torch.manual_seed(seed)
    model = Predictor(rc.layer(cell, 7, 8), 7)
    learner = OriginalLSTMRule(model, "cross_entropy", "adam", 0.01, carry=True, clip=1.0)
    best, symbols, best_at = 0.0, 0, 0
    for number, (x, target) in enumerate(streams(32, 30, seed)):
        set_rate(learner, 0.01 * 0.5 ** (number / 800))
        learner.step(x, target)
        symbols += target.numel()
        if number % 200 == 199:
            score = outer_accuracy(model, seed)
            best, best_at = max((best, best_at), (score, symbols))
            print(cell, seed, symbols, round(score, 4), round(clock.seconds), flush=True)
        if clock.over or best >= 0.999:
            break
    return {"seed": seed, "cell": cell, "accuracy": best, "symbols": best_at, "seconds": round(clock.seconds)}


def fewer_symbols(rule: str, seed: int, minutes: float) -> Row:
    """One stream, symbol by symbol, an LSTM of 8 cells: symbols until 98 % of outer predictions are right."""
    clock = Clock(minutes)
    torch.manual_seed(seed)
    model = Predictor(rc.layer("lstm", 7, 8), 7)
    if rule == "dekf":
        learner: Any = DEKF(model, "cross_entropy", derivatives="snap1", carry=True, r=(100.0, 3.0), anneal=2000)
    else:
        learner = OriginalLSTMRule(model, "cross_entropy", "adam", 0.005, update="step", carry=True, clip=1.0)
    symbols, score = 0, 0.0
    for x, target in streams(1, 500, seed):
        learner.step(x, target)
        symbols += len(x)
        score = outer_accuracy(model, seed, 1000)
        print(rule, seed, symbols, round(score, 4), round(clock.seconds), flush=True)
        if score >= 0.98 or clock.over:
            break
    return {"seed": seed, "rule": rule, "symbols": symbols, "accuracy": score, "seconds": round(clock.seconds)}


# ---------------------------------------------------------------------------------------------------- counting


@torch.no_grad()
def largest_n(model: Predictor, highest: int = 1000, step: int = 20) -> int:
    """The largest n up to which every string aⁿbⁿ asked is predicted without a fault: all to 40, then every 20th."""
    asked = [*range(1, 41), *range(60, highest + 1, step)]
    right = 0
    for n in asked:
        task = tasks.anbn(low=n, high=n)
        batch = task.draw(1, generator(0))
        with set_backend("reference"):
            if task.score(model(batch.inputs)[0], batch) < 1:
                break
        right = n
    return right


def counting(rule: str, seed: int, minutes: float) -> Row:
    """aⁿbⁿ with n ≤ 10, a peephole LSTM of 3 cells: the largest n generalised to, the best seen while training."""
    clock = Clock(minutes)
    torch.manual_seed(seed)
    model = Predictor(rc.layer("vanilla_lstm", 3, 3), 3)
    task = tasks.anbn(high=10)
    if rule == "dekf":
        learner: Any = DEKF(model, "cross_entropy", groups="node", r=(100.0, 3.0), q=(1e-3, 1e-6), anneal=1500)
    else:
        learner = BPTT(model, "cross_entropy", "adam", 0.02, clip=1.0)
    best, strings, size = 0, 0, 1 if rule == "dekf" else 10
    for number, batch in enumerate(task.batches(size, 100_000, seed=seed).epoch(0)):
        if rule == "bptt":
            set_rate(learner, 0.02 * 0.5 ** (number / 600))
        with set_backend("reference"):
            learner.step(batch.inputs, batch.targets, batch.mask)
        strings += size
        if number % 50 == 49:
            best = max(best, largest_n(model))
        if clock.over or best >= 1000:
            break
    print(rule, seed, strings, best, round(clock.seconds), flush=True)
    return {"seed": seed, "rule": rule, "largest_n": best, "strings": strings, "seconds": round(clock.seconds)}


# ---------------------------------------------------------------------------------------------------- evolution


def evolino(kind: str, seed: int, minutes: float) -> Row:
    """Three sines generated 400 steps on, or Mackey-Glass 84 steps on from 100 places: the NRMSE."""
    clock = Clock(minutes)
    torch.manual_seed(seed)
    sines = kind == "sines"
    model = Predictor(rc.Recurrent(EvolinoCell, 1, 20 if sines else 200, dtype=torch.float64), 1)
    series, told = _series(sines, seed)
    train = series[: told + 1]
    near_linear = {"ridge": 1e-15, "spread": 1.0, "scale": 0.01, "population": 12}
    nonlinear = {"ridge": 1e-9, "spread": 0.2, "scale": 3.0, "population": 4}
    settings: dict[str, Any] = near_linear if sines else nonlinear
    learner = Evolino(model, washout=100, horizon=200, trials=1, mutation=0.01, seed=seed, **settings)
    goal = 0.1 if sines else 1e-2
    score = float("inf")
    while score > goal and not clock.over:
        learner.step(train[:-1], train[1:])
        learner.refit(train[:-1], train[1:])
        score = _sines_ahead(learner, series, told) if sines else _mackey_glass_84(learner, series, told)
        print(kind, seed, learner.steps, learner.best, score, round(clock.seconds), flush=True)
    return {"seed": seed, "nrmse": score, "generations": learner.steps, "seconds": round(clock.seconds)}


def _series(sines: bool, seed: int) -> tuple[Tensor, int]:
    random = generator(500 + seed)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        if sines:
            batch = tasks.sines(components=3, length=1200).draw(1, random)
            return batch.inputs, 700
        series = tasks.mackey_glass().series(3200, 1, random)[..., None]
        return series - series[:2000].mean(), 2000
    finally:
        torch.set_default_dtype(before)


def _sines_ahead(learner: Evolino, series: Tensor, told: int) -> float:
    wanted = series[told + 1 : told + 401]
    made = learner.generate(series[:told], 401)[1:]
    return float(((made - wanted).square().mean() / wanted.var()).sqrt())


def _mackey_glass_84(learner: Evolino, series: Tensor, told: int) -> float:
    starts = torch.arange(told + 200, told + 1100, 9)
    seen = torch.stack([series[int(s) - 200 : int(s), 0] for s in starts], 1)
    wanted = torch.stack([series[int(s) + 83, 0, 0] for s in starts])
    made = learner.generate(seen, 84)[-1, :, 0]
    return float(((made - wanted).square().mean() / series.var()).sqrt())


def evolved(seed: int, minutes: float) -> Row:
    """A cell evolved on aⁿbⁿ and aⁿbⁿcⁿ against the best of its starting population, on seeds neither has seen."""
    clock = Clock(minutes)
    trial = Trial(weights=400, steps=80, batch=32, rate=0.03)
    evolution = Evolution(population=6, trial=trial, seed=seed)
    while clock.seconds < 0.65 * clock.limit:
        evolution.generation()
        best = evolution.best(1)
        print("evolved", evolution.generations, best.genome.digest, best.objectives, round(clock.seconds), flush=True)
    language = languages()[1]
    founder = min(evolution.founders, key=lambda m: m.objectives[1]).genome
    found = evolution.best(1).genome
    found.save(RESULTS / "evolved_cell.json")
    held_out: dict[str, list[tuple[float, float]]] = {"founder": [], "evolved": []}
    for new_seed in range(100, 110):
        if clock.over and new_seed > 104:
            break
        for name, genome in (("founder", founder), ("evolved", found)):
            held_out[name].append(try_cell(genome, language, trial, new_seed))
        print("held out", new_seed, held_out["founder"][-1], held_out["evolved"][-1], flush=True)
    return {
        "seed": seed,
        "generations": evolution.generations,
        "tried": len(evolution.known),
        "held_out": held_out,
        "founder": founder.source(),
        "evolved": found.source(),
        "widths": [width(g, language, trial.weights) for g in (founder, found)],
        "equations": found.equations(),
        "seconds": round(clock.seconds),
    }


# ---------------------------------------------------------------------------------------------------- running


EXPERIMENTS: dict[str, Callable[[int, float], Row]] = {
    "adding": lambda seed, minutes: original("adding", seed, minutes),
    "temporal_order": lambda seed, minutes: original("temporal_order", seed, minutes),
    "reber_forget_gate": lambda seed, minutes: reber("lstm", seed, minutes),
    "reber_no_forget_gate": lambda seed, minutes: reber("original_lstm", seed, minutes),
    "symbols_dekf": lambda seed, minutes: fewer_symbols("dekf", seed, minutes),
    "symbols_gradient": lambda seed, minutes: fewer_symbols("gradient", seed, minutes),
    "anbn_bptt": lambda seed, minutes: counting("bptt", seed, minutes),
    "anbn_dekf": lambda seed, minutes: counting("dekf", seed, minutes),
    "evolino_sines": lambda seed, minutes: evolino("sines", seed, minutes),
    "evolino_mackey_glass": lambda seed, minutes: evolino("mackey_glass", seed, minutes),
    "evolved": evolved,
}


def run(name: str, seeds: int, minutes: float) -> None:
    """Each seed for so many minutes; what is done is written after every seed."""
    rows: list[Row] = []
    for seed in range(seeds):
        rows.append(EXPERIMENTS[name](seed, minutes))
        command = f"python -m benchmarks.learning {name} --seeds {seeds} --minutes {minutes:g}"
        RESULTS.mkdir(exist_ok=True)
        text = json.dumps({"command": command, "rows": rows}, indent=1)
        (RESULTS / f"learning_{name}.json").write_text(text + "\n", encoding="utf-8")


def table() -> str:
    """One line an experiment."""
    lines = [__doc__.splitlines()[0], "", "| experiment | per seed | seconds | command |", "|---|---|---|---|"]
    for name in EXPERIMENTS:
        path = RESULTS / f"learning_{name}.json"
        if path.exists():
            data = json.loads(path.read_text(encoding="utf-8"))
            lines.append(f"| {name} | {_summary(data['rows'])} | {_seconds(data['rows'])} | `{data['command']}` |")
    return "\n".join(lines) + "\n"


def _summary(rows: list[Row]) -> str:
    if "held_out" in rows[0]:
        parts = {n: [loss for loss, _ in v] for n, v in rows[0]["held_out"].items()}
        means = "; ".join(f"{n} {statistics.mean(v):.4f} ± {statistics.stdev(v):.4f}" for n, v in parts.items())
        return f"held-out cross-entropy: {means}"
    skipped = {"seed", "seconds", "cell", "rule"}
    return "; ".join(
        f"{key} {', '.join(f'{row[key]:.4g}' if isinstance(row[key], float) else str(row[key]) for row in rows)}"
        for key in rows[0]
        if key not in skipped
    )


def _seconds(rows: list[Row]) -> str:
    return ", ".join(str(row["seconds"]) for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[*EXPERIMENTS, "table"])
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
