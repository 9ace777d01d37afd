"""Which cell for which data: tasks × cells at equal parameters and equal processor time, over seeds.

    python -m benchmarks.which_cell                      all of it: about 13 minutes of one core
    python -m benchmarks.which_cell adding vowels        some tasks; the others keep their results

Every layer has about as many parameters (`PARAMETERS`), every fit the same processor time of one thread, compilation
not counted. The learning rate is chosen for each task and cell by short fits on training data alone: generated tasks
are judged on a validation batch, data sets on a fifth of the training sequences. Then each seed trains from scratch,
and test data are scored once. Writes results/which_cell.json and results/which_cell.md.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import recurra as rc
from benchmarks.environment import environment
from recurra.compare.parameter_budget import count_parameters, nearest_size
from recurra.data import Batch, Batches, SequenceSet, tasks
from recurra.data.tasks import CanonicalTask
from recurra.train.objective import auto

RESULTS = Path(__file__).resolve().parent / "results"
CELLS = ("rnn", "orthogonal_rnn", "indrnn", "lem", "lstm", "gru", "mgu", "nbrc", "min_gru")
PARAMETERS = 6000
RATES = (2e-3, 8e-3, 2.5e-2)
SECONDS, TRIAL_SECONDS, SEEDS = 3.0, 1.0, 3
BATCH, POOL = 32, 120  # sequences a batch, and batches drawn before the clock starts


@dataclass(frozen=True)
class Question:
    """A task: batches to train on, to choose on, to test on, and how an answer is scored."""

    says: str
    metric: str
    better: str
    trivial: float
    inputs: int
    outputs: int
    train: list[Batch]
    part: list[Batch]  # what a trial fit trains on
    valid: Batch
    test: Batch
    score: Callable[[Tensor, Batch], float]


def generated(task: CanonicalTask, says: str, metric: str = "", score: Any = None, trivial: Any = None) -> Question:
    pool = list(task.batches(BATCH, POOL, seed=1).epoch(0))
    valid, test = (next(task.batches(512, 1, seed=seed).epoch(0)) for seed in (2, 3))
    better = "higher" if metric == "accuracy" else task.better
    baseline = task.baseline if trivial is None else trivial
    names = metric or task.metric, better, baseline, task.input_size, task.output_size
    return Question(says, *names, pool, pool, valid, test, score or task.score)


def recorded(load: Callable[[Any], Any], says: str, classes: int) -> Question:
    """A data set of the package: one class per sequence; a fifth of the training sequences is held out for trials."""
    (sequences, labels), (test_sequences, test_labels) = (load(split)[:2] for split in ("train", "test"))
    mean, std = (f(torch.cat(sequences), 0) for f in (torch.mean, torch.std))

    def batches(xs: list[Tensor], ys: Tensor, size: int = BATCH, epochs: int = 8) -> list[Batch]:
        data = SequenceSet.from_arrays([(x - mean) / (std + 0.1) for x in xs], ys, "classification")
        return [batch for epoch in range(epochs) for batch in Batches(data, size, seed=1).epoch(epoch)]

    order = torch.randperm(len(sequences), generator=torch.Generator().manual_seed(0)).tolist()
    held, kept = order[: len(order) // 5], order[len(order) // 5 :]
    (valid,) = batches([sequences[i] for i in held], labels[held], 2000, 1)
    (test,) = batches(test_sequences, test_labels, 2000, 1)
    part = batches([sequences[i] for i in kept], labels[kept])
    most = float(torch.bincount(test_labels).max() / len(test_labels))
    facts = "accuracy", "higher", most, sequences[0].shape[1], classes
    return Question(says, *facts, batches(sequences, labels), part, valid, test, last_accuracy)


def last_accuracy(outputs: Tensor, batch: Batch) -> float:
    return float((outputs.argmax(-1) == batch.targets).double().mean())


def recalled(outputs: Tensor, batch: Batch) -> float:
    """The share of symbols that are right after the delimiter."""
    return last_accuracy(outputs[-5:], Batch(batch.inputs, batch.targets[-5:], batch.lengths, batch.ids))


QUESTIONS: dict[str, Callable[[], Question]] = {
    "adding": lambda: generated(tasks.adding(60), "add the two marked numbers among 60"),
    "copy": lambda: generated(
        tasks.copy_memory(lag=30, items=5), "repeat 5 symbols after 30 blanks", "accuracy", recalled, 1 / 8
    ),
    "parity": lambda: generated(tasks.parity(20), "is the number of ones so far odd, 20 bits"),
    "mackey_glass": lambda: generated(
        tasks.mackey_glass(length=150, horizon=20, washout=150), "a chaotic series, 20 steps ahead"
    ),
    "vowels": lambda: recorded(rc.data.japanese_vowels, "nine speakers, by 7 to 29 frames of speech", 9),
    "open_quotes": lambda: recorded(rc.data.open_quotes, "does a line of code end inside a string?", 2),
}


class Network(nn.Module):
    """A layer and a linear readout: of every step, or of the last one where there is one answer per sequence."""

    def __init__(self, cell: str, question: Question):
        super().__init__()
        size = nearest_size(lambda units: count_parameters(rc.layer(cell, question.inputs, units)), PARAMETERS)
        self.layer = rc.layer(cell, question.inputs, size)
        self.head = rc.Readout(self.layer.output_size, question.outputs)
        self.per_step = question.test.targets.shape[:2] == question.test.inputs.shape[:2]

    def forward(self, batch: Batch) -> Tensor:
        y, _ = self.layer(batch.inputs, lengths=batch.lengths)  # (T, B, H)
        return self.head(y if self.per_step else y[batch.lengths - 1, torch.arange(len(batch))])


def loss_of(network: Network, batch: Batch) -> Tensor:
    outputs, targets = network(batch), batch.targets
    if network.per_step:
        counted = batch.mask if targets.is_floating_point() else batch.mask & (targets >= 0)
        outputs, targets = outputs[counted], targets[counted]
    return auto(outputs, targets)


def trained(cell: str, question: Question, pool: list[Batch], rate: float, seconds: float, seed: int) -> Network:
    """Adam with clipping; the rate falls to zero along a cosine over the processor time that is given."""
    torch.manual_seed(seed)
    network = Network(cell, question)
    optimizer = torch.optim.Adam(network.parameters(), rate)
    loss_of(network, pool[0]).backward()  # compiles
    batches, began = endless(pool, seed), time.process_time()
    while (used := (time.process_time() - began) / seconds) < 1:
        optimizer.param_groups[0]["lr"] = rate * (1 + math.cos(math.pi * used)) / 2
        optimizer.zero_grad()
        loss_of(network, next(batches)).backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    return network


def endless(pool: list[Batch], seed: int) -> Iterator[Batch]:
    random = torch.Generator().manual_seed(seed)
    while True:
        for place in torch.randperm(len(pool), generator=random).tolist():
            yield pool[place]


@torch.no_grad()
def scored(network: Network, question: Question, batch: Batch) -> float:
    return question.score(network(batch), batch)


def measure(cell: str, question: Question) -> dict[str, Any]:
    """The scores of a cell on a task, with the learning rate that did best in short fits."""
    sign = 1 if question.better == "higher" else -1
    trials = {
        rate: scored(trained(cell, question, question.part, rate, TRIAL_SECONDS, 100), question, question.valid)
        for rate in RATES
    }
    rate = max(trials, key=lambda r: sign * trials[r] if math.isfinite(trials[r]) else -math.inf)
    networks = [trained(cell, question, question.train, rate, SECONDS, seed) for seed in range(SEEDS)]
    scores = [scored(network, question, question.test) for network in networks]
    found = {"scores": scores, "rate": rate, "trials": list(trials.values())}
    return found | {"units": networks[0].layer.hidden_size, "parameters": count_parameters(networks[0].layer)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tasks", nargs="*", choices=[[], *QUESTIONS], default=[])
    chosen = parser.parse_args().tasks or list(QUESTIONS)
    torch.set_num_threads(1)
    out = RESULTS / "which_cell.json"
    known = json.loads(out.read_text(encoding="utf-8"))["tasks"] if out.exists() else {}
    for name in chosen:
        question = QUESTIONS[name]()
        facts = {key: getattr(question, key) for key in ("says", "metric", "better", "trivial")}
        known[name] = facts | {"cells": {}}
        for cell in CELLS:
            known[name]["cells"][cell] = measure(cell, question)
            print(name, cell, known[name]["cells"][cell], flush=True)
        write({key: known[key] for key in QUESTIONS if key in known}, out)


def write(results: dict[str, Any], out: Path) -> None:
    settings = {"parameters": PARAMETERS, "rates": RATES, "seconds": SECONDS, "seeds": SEEDS, "batch": BATCH}
    content = {"command": "python -m benchmarks.which_cell", "environment": environment(), "settings": settings}
    out.write_text(json.dumps(content | {"tasks": results}, indent=1) + "\n", encoding="utf-8")
    out.with_suffix(".md").write_text(table(results, content["environment"]), encoding="utf-8")


def table(results: dict[str, Any], where: dict[str, Any]) -> str:
    """Mean and spread of every cell on every task; the best mean of a task, and those within its spread, are bold."""
    lines = ["# Which cell for which data", ""]
    lines += [f"`python -m benchmarks.which_cell`, {where['processor']}, one thread, torch {where['torch']}.", ""]
    lines += [
        f"Layers of about {PARAMETERS:,} parameters, {SECONDS:g} s of processor time a fit, Adam with a learning rate "
        f"chosen on training data from {', '.join(f'{r:g}' for r in RATES)}; mean of {SEEDS} seeds ± half the distance "
        "from the lowest to the highest. Bold: the best mean, and means within the spread of it.", ""
    ]  # fmt: skip
    lines += [
        "| | "
        + " | ".join(f"{n}: {r['metric']} {'↑' if r['better'] == 'higher' else '↓'}" for n, r in results.items())
        + " |"
    ]
    lines += ["|---" * (len(results) + 1) + "|"]
    columns = {name: column(result) for name, result in results.items()}
    lines += [f"| {cell} | " + " | ".join(columns[name][cell] for name in results) + " |" for cell in CELLS]
    lines += ["| trivial answer | " + " | ".join(f"{r['trivial']:.3g}" for r in results.values()) + " |", ""]
    lines += [
        f"- {name}: {result['says']}{'.' * (not result['says'].endswith('?'))}" for name, result in results.items()
    ]
    return "\n".join(lines) + "\n"


def column(result: dict[str, Any]) -> dict[str, str]:
    sign = 1 if result["better"] == "higher" else -1
    found = {cell: (statistics.mean(r["scores"]), spread(r["scores"])) for cell, r in result["cells"].items()}
    best, around = max(found.values(), key=lambda pair: sign * pair[0])
    cells = {}
    for cell, (mean, around_it) in found.items():
        text = f"{mean:.3f} ± {around_it:.3f}" if mean >= 0.01 else f"{mean:.5f} ± {around_it:.5f}"
        cells[cell] = f"**{text}**" if sign * (best - mean) <= around + around_it else text
    return cells


def spread(scores: list[float]) -> float:
    return (max(scores) - min(scores)) / 2


if __name__ == "__main__":
    main()
