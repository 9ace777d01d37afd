"""The rule of 1997 on two tasks of its paper, until at most 3 of 2,560 new sequences are wrong.

Networks, biases and criteria are the paper's (Hochreiter & Schmidhuber 1997, tasks 4 and 6a); batches of 32 and Adam
are not: the paper changed the weights after each sequence, by plain gradient descent.
"""

import torch
from torch import Tensor

import recurra as rc
from benchmarks.proofs.common import Clock, Row, set_rate
from recurra.data import tasks
from recurra.data.batching import generator
from recurra.data.sequences import Batch
from recurra.train import OriginalLSTMRule, Predictor

BATCH, LOOK = 32, 1600  # sequences between two looks at the 2,560


def original(kind: str, seed: int, minutes: float) -> Row:
    clock, adding = Clock(minutes), kind == "adding"
    torch.manual_seed(seed)
    task = tasks.adding(length=100) if adding else tasks.temporal_order()
    model = Predictor(rc.layer("original_lstm", task.input_size, 4, squash="1997", block_size=2), task.output_size)
    gates = model.layer.cell_list[0]
    with torch.no_grad():  # closed input gates, as in 1997; output gates neutral
        gates.i.b_raw.copy_(torch.tensor([-3.0, -6.0] if adding else [-2.0, -4.0]))  # pyrefly: ignore
        gates.o.b_raw.zero_()  # pyrefly: ignore
    learner = OriginalLSTMRule(model, "mse" if adding else "cross_entropy", "adam", 0.02)
    test = task.draw(2560, generator(10_000 + seed))
    seen, wrong = 0, 2560
    while wrong > 3 and not clock.over:
        for batch in task.batches(BATCH, LOOK // BATCH, seed=seed).epoch(seen // LOOK):
            set_rate(learner, 0.02 * 0.5 ** max(0.0, (seen - 20_000) / 20_000))
            learner.step(*(as_in_1997(batch) if adding else (batch.inputs, batch.targets)), batch.mask)
            seen += BATCH
        wrong = _wrong(model, test, adding)
    print(kind, seed, seen, wrong, round(clock.seconds), flush=True)
    return {"seed": seed, "sequences": seen, "wrong": wrong, "seconds": round(clock.seconds)}


def as_in_1997(batch: Batch) -> tuple[Tensor, Tensor]:
    """The adding task in the paper's numbers: values v in [-1, 1], and 1/2 + (v + v') / 4 is wanted."""
    values, marks = batch.inputs.unbind(-1)
    return torch.stack([2 * values - 1, marks], -1), batch.targets / 2


@torch.no_grad()
def _wrong(model: Predictor, batch: Batch, adding: bool) -> int:
    """Adding: off by more than 0.04. Temporal order: any output off by more than 0.3."""
    inputs, targets = as_in_1997(batch) if adding else (batch.inputs, batch.targets)
    h = model.layer(inputs, lengths=batch.lengths)[0]
    last = model.head(h[batch.lengths - 1, torch.arange(h.shape[1])])
    if adding:
        return int(((last - targets).abs() > 0.04).sum())
    wanted = torch.nn.functional.one_hot(targets, 4).to(last)
    return int(((last.softmax(-1) - wanted).abs() > 0.3).any(-1).sum())
