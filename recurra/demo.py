"""`make demo`: a dozen cells learn to tell nine speakers apart, and a table says how well.

Japanese Vowels: 270 training and 370 test utterances, 7 to 29 frames of 12 numbers each, as one ragged batch each.
"""

import time
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor, nn

from .data import SequenceSet, japanese_vowels
from .layers import Readout, layer
from .train import Run, evaluate, fit

CELLS = (
    *("rnn", "orthogonal_rnn", "delay_rnn", "leaky_rnn", "scrn", "lstm"),
    *("vanilla_lstm", "lstm_cifg", "gru", "mgu", "min_gru", "slstm"),
)
HIDDEN, EPOCHS, BATCH, RATE, SPEAKERS = 32, 30, 45, 1e-2, 9


class Classifier(nn.Module):
    """One recurrent layer, averaged over each sequence's own length, and a linear readout."""

    def __init__(self, cell: str, features: int, classes: int):
        super().__init__()
        self.recurrent = layer(cell, features, HIDDEN)
        self.readout = Readout(self.recurrent, classes)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        y, _ = self.recurrent(x, lengths=lengths)  # (T, B, H), zero past each end
        return self.readout(y.sum(dim=0) / lengths[:, None])


@dataclass(frozen=True)
class Result:
    cell: str
    parameters: int
    seconds: float
    accuracy: float


def main() -> None:
    console = Console()
    train, test = speakers()
    console.print(
        f"\n[bold]Japanese Vowels[/]: {len(train)} utterances to learn from, {len(test)} to be tested on, "
        f"{SPEAKERS} speakers. {len(CELLS)} cells of {HIDDEN} units, {EPOCHS} epochs each.\n"
    )
    bar = Progress(
        TextColumn("{task.description:>14}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        console=console,
    )
    with bar:
        overall = bar.add_task("all cells", total=len(CELLS), note="")
        results = []
        for cell in CELLS:
            results.append(compete(cell, train, test, bar))
            bar.advance(overall)
    console.print(leaderboard(results))


def speakers() -> tuple[SequenceSet, SequenceSet]:
    """Both splits, every feature scaled to mean 0 and variance 1 over the training frames."""
    frames = torch.cat(japanese_vowels("train").sequences)
    mean, std = frames.mean(dim=0), frames.std(dim=0)
    splits = (japanese_vowels("train"), japanese_vowels("test"))
    train, test = (
        SequenceSet.from_arrays([(s - mean) / std for s in split.sequences], split.labels, "classification")
        for split in splits
    )
    return train, test


def compete(cell: str, train: SequenceSet, test: SequenceSet, bar: Progress) -> Result:
    """Train one cell and test it."""
    torch.manual_seed(0)
    model = Classifier(cell, train.input_size, SPEAKERS)
    task = bar.add_task(cell, total=EPOCHS, note="")
    started = time.perf_counter()
    fit(
        *(model, train),
        loss="cross_entropy",
        optimizer="adam",
        lr=RATE,
        epochs=EPOCHS,
        batch_size=BATCH,
        clip=1.0,
        progress=False,
        callbacks=[lambda event, run: _move(bar, task, event, run)],
    )
    seconds = time.perf_counter() - started
    score = evaluate(model, test, loss="cross_entropy", metrics={"accuracy": accuracy}, batch_size=len(test))
    bar.remove_task(task)
    return Result(cell, sum(p.numel() for p in model.parameters()), seconds, score["accuracy"])


def _move(bar: Progress, task: TaskID, event: str, run: Run) -> None:
    if event == "epoch":
        bar.update(task, advance=1, note=f"loss {run.loss:.3f}")


def accuracy(output: Tensor, target: Tensor) -> Tensor:
    return (output.argmax(dim=-1) == target).double().mean()


def leaderboard(results: list[Result]) -> Table:
    """Best first."""
    table = Table(title="Who is speaking?", title_justify="left")
    for heading in ("cell", "parameters", "seconds", "test accuracy"):
        table.add_column(heading, justify="left" if heading == "cell" else "right")
    for place, result in enumerate(sorted(results, key=lambda r: (-r.accuracy, r.parameters))):
        row = (result.cell, f"{result.parameters:,}", f"{result.seconds:.1f}", f"{result.accuracy:.1%}")
        table.add_row(*row, style="bold green" if place == 0 else "")
    return table


if __name__ == "__main__":
    main()
