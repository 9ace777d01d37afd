"""A training script as a user has one: it is started, killed, interrupted and started again by the tests.

    python worker.py FOLDER '{"case": "streams", "pause": 0.01}'

`pause` seconds pass in every step and every validation batch. When the phase `phase` begins, the file `marker` appears
(with the rank at its end) and the run waits for the file `marker.go`, so that a test acts in that phase, however slow
the machine is. `die`, `halt`, `spoil` and `poison` are what goes wrong, see `mishap`.
"""

import errno
import json
import math
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn

import recurra as rc
from recurra.data import Batches, SequenceSet, Streams, read
from recurra.data.readers import table_sources
from recurra.train import Checkpoints, FitResult, Run, checkpoint, cosine, evaluate, fit

torch.set_num_threads(1)
State = tuple[Tensor, Tensor]


def wait_at(marker: str) -> None:
    """Say that the phase has begun and wait for the test, once."""
    own = Path(marker + os.environ.get("RANK", ""))
    if own.exists():
        return
    own.touch()
    while not Path(f"{marker}.go").exists():
        time.sleep(0.005)


class Net(nn.Module):
    """A recurrent layer with dropout and a head; it may be slow, and say when it has begun."""

    def __init__(self, inputs: int, hidden: int, outputs: int, pause: float = 0.0, phase: str = "", marker: str = ""):
        super().__init__()
        self.rnn, self.drop, self.head = rc.LSTM(inputs, hidden), nn.Dropout(0.2), nn.Linear(hidden, outputs)
        self.pause, self.phase, self.marker = pause, phase, marker

    def forward(self, x: Tensor, state: State | None = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        if self.marker and self.phase == ("training" if self.training else "evaluation"):
            wait_at(self.marker)
        time.sleep(self.pause)
        y, state = self.rnn(x, state, lengths=lengths)
        if self.training:  # every generator that is saved takes part
            y = y * (1 + 0.1 * random.random() + 0.1 * numpy.random.random())  # noqa: NPY002
        return self.head(self.drop(y)), state


class Normalised(Net):
    """With batch normalisation, whose running statistics are those of the batches of one process."""

    def __init__(self, inputs: int, hidden: int, outputs: int, pause: float = 0.0):
        super().__init__(inputs, hidden, outputs, pause)
        self.norm = nn.BatchNorm1d(outputs)

    def forward(self, x: Tensor, state: State | None = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        y, state = super().forward(x, state, lengths)
        return self.norm(y.flatten(0, 1)).view_as(y), state


class Plain(Net):
    """Without any noise, in double precision."""

    def forward(self, x: Tensor, state: State | None = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        y, state = self.rnn(x.double(), state, lengths=lengths)
        return self.head(y), state


class SlowStart(Streams):
    """Data that waits for the test before the first batch."""

    marker = ""

    def epoch(self, epoch: int, start: int = 0):
        wait_at(self.marker)
        yield from super().epoch(epoch, start)


SlowStart.__name__ = Streams.__name__  # the run is resumed with the data alone, which are the same


def streams() -> tuple[Streams, Streams]:
    wave = torch.randn(601, 2, generator=torch.Generator().manual_seed(1)).cumsum(0) * 0.1
    return Streams(wave[:481], batch_size=4, chunk=10), Streams(wave[480:], batch_size=2, chunk=20)


def batches() -> tuple[Batches, Batches]:
    """Ragged sequences with a class a step: an uneven last batch, and one whose share is empty in process 1."""
    random = torch.Generator().manual_seed(2)
    lengths = torch.randint(3, 12, (60,), generator=random).tolist()
    inputs = [torch.randn(n, 2, generator=random) for n in lengths]
    labels = [(x[:, 0].cumsum(0) > 0).long() for x in inputs]
    data = SequenceSet.from_arrays(inputs, labels, "tagging")
    return Batches(data.select(range(47)), 7, seed=3), Batches(data.select(range(47, 60)), 6, shuffle=False)


def parquet(folder: str) -> tuple[Batches, Batches]:
    """Sequences of a folder of Parquet files, of which the cache holds a small part."""
    table_sources.CACHE_BYTES = 8000
    data = read(folder, id="id", time="t", features=("x", "y"), label="label", task="tagging")
    train, held_out = data.split(0.8, 0.2)
    return Batches(train, 6, seed=5), Batches(held_out, 6, shuffle=False)


def mishap(folder: str, options: dict[str, Any]):
    """Process 1 is killed after step `die`; after step 2, process `spoil` cannot write and `poison` puts out nan.

    After `halt` steps of this process it goes no further: a test that kills it never comes too late.
    """
    rank, begun = int(os.environ.get("RANK", 0)), []

    def callback(event: str, run: Run) -> None:
        if event == "step" and "halt" in options:
            begun.append(run.progress.step)
            while len(begun) >= options["halt"]:
                time.sleep(60)
        if event != "step" or run.progress.step != options.get("die", 2):
            return
        if "die" in options and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if options.get("spoil") == rank:
            checkpoint.save_tree = fail
        if options.get("poison") == rank:
            run.model.rnn.register_forward_hook(lambda module, x, output: (output[0] * float("nan"), output[1]))

    return callback


def fail(*arguments: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def train(folder: str | Path, options: dict[str, Any]) -> FitResult:
    case, phase, marker = options.get("case", "streams"), options.get("phase", ""), options.get("marker", "")
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)  # noqa: NPY002
    model = Net(2, 8, 2, options.get("pause", 0.0), phase, marker)
    if options.get("norm"):
        model = Normalised(2, 8, 2, options.get("pause", 0.0))
    if options.get("plain"):  # nothing random, and enough digits to compare sums in another order
        model = Plain(2, 8, 2).double()
    if case == "parquet":
        data, held_out = parquet(options["data"])
    else:
        data, held_out = streams() if case == "streams" else batches()
    if phase == "warm-up":
        data = SlowStart(data.sequences, data.batch_size, data.chunk)
        SlowStart.marker = marker  # on the class, since processes rebuild their share of the data
    result = fit(
        model,
        data,
        held_out,
        epochs=options.get("epochs", 3),
        accumulate=1 if case == "streams" else 2,
        lr=0.02,
        clip=1.0,
        schedule=cosine(warmup=3),
        patience=10,
        checkpoints=Checkpoints(folder, every=options.get("every", 3)),
        callbacks=[mishap(str(folder), options)] if {"die", "halt", "spoil", "poison"} & options.keys() else [],
    )
    if options.get("plain"):  # the processes meet again after fit; the best weights are back in place
        assert math.isclose(evaluate(model, held_out)["loss"], result.best_loss, abs_tol=1e-12)
    return result


if __name__ == "__main__":
    result = train(sys.argv[1], json.loads(sys.argv[2]))
    print(json.dumps(result.history))
