"""JSB Chorales: the next chord from those before, as in Chung et al. 2014 (arXiv:1412.3555, table 2).

    python benchmarks/jsb_chorales.py --data ../shared/data --seeds 5 --results benchmarks/results

The score is the negative log-likelihood in nats: summed over the 88 keys, averaged over all predicted steps of all test
pieces (every chord but a piece's first). Model: one recurrent layer of the paper's size and a linear readout, whose
bias starts at the log-odds of each key in the training pieces. Training: Adam, early stopping on the validation pieces.
"""

import argparse
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from environment import environment  # pyrefly: ignore
from torch import Tensor, nn

import recurra as rc
from recurra.data import Batches, SequenceSet, read_mat
from recurra.train import constant, evaluate, fit


@dataclass(frozen=True)
class Entry:
    """One row: a layer, how fast it learns, what is asked of it, and what the paper reports."""

    name: str
    cell: str
    hidden: int
    rate: float
    bound: float
    paper: float


ENTRIES = (
    Entry("GRU", "gru", 46, 1e-2, 8.80, 8.54),
    Entry("LSTM", "lstm", 36, 1e-2, 8.80, 8.67),
    Entry("tanh", "rnn", 100, 3e-3, 8.95, 9.10),
)


class NextChord(nn.Module):
    """A recurrent layer and a readout: (T, B, 88) chords → (T, B, 88) logits of the next ones."""

    def __init__(self, cell: str, hidden: int, frequencies: Tensor):
        super().__init__()
        self.rnn, self.head = rc.layer(cell, 88, hidden), nn.Linear(hidden, 88)
        with torch.no_grad():
            self.head.bias.copy_(torch.logit(frequencies, eps=1e-3))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        y, _ = self.rnn(x, lengths=lengths)  # (T, B, hidden)
        return self.head(y)


def key_frequencies(pieces: SequenceSet) -> Tensor:
    """How often each key sounds among the targets: (88,)."""
    return torch.cat([example.target for example in pieces]).mean(0)


def score(entry: Entry, parts: dict[str, SequenceSet], seed: int) -> tuple[float, int]:
    """The test score of one training run, and the number of its weights."""
    torch.manual_seed(seed)
    model = NextChord(entry.cell, entry.hidden, key_frequencies(parts["train"]))
    fit(
        model,
        Batches(parts["train"], 8, seed=seed),
        Batches(parts["valid"], 76, shuffle=False),
        loss="binary_cross_entropy",
        lr=entry.rate,
        schedule=constant(warmup=20),
        epochs=60,
        patience=8,
        device="cpu",
    )
    tested = evaluate(model, Batches(parts["test"], 77, shuffle=False), loss="binary_cross_entropy", device="cpu")
    return tested["loss"], sum(p.numel() for p in model.rnn.parameters())


def row(entry: Entry, parts: dict[str, SequenceSet], seeds: int) -> tuple[str, bool]:
    since = time.perf_counter()
    results = [score(entry, parts, seed) for seed in range(seeds)]
    scores = [value for value, _ in results]
    mean, spread = statistics.mean(scores), statistics.stdev(scores) if seeds > 1 else 0.0
    seconds = (time.perf_counter() - since) / seeds
    cells = [f"{entry.name}-{entry.hidden}", f"{results[0][1]:,}", f"{mean:.3f} ± {spread:.3f}"]
    cells += [
        f"{min(scores):.3f} – {max(scores):.3f}",
        f"≤ {entry.bound:.2f}",
        f"{entry.paper:.2f}",
        f"{seconds:.0f} s",
    ]
    return f"| {' | '.join(cells)} |", max(scores) <= entry.bound


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder that holds polyphonic_music")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=None, help="folder for the table, jsb_chorales.md")
    options = parser.parse_args()
    path = options.data / "polyphonic_music" / "JSB_Chorales.mat"
    parts = {part: read_mat(path, part) for part in ("train", "valid", "test")}
    print(f"{', '.join(f'{len(pieces)} {part}' for part, pieces in parts.items())} pieces")
    rows = []
    for entry in ENTRIES:
        rows.append(row(entry, parts, options.seeds))
        print(rows[-1][0], flush=True)
    if options.results is not None:
        write(options.results / "jsb_chorales.md", [text for text, _ in rows], options.seeds)
    return 0 if all(good for _, good in rows) else 1


def write(path: Path, rows: list[str], seeds: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    head = "| model | recurrent weights | NLL (mean ± sd) | lowest – highest | asked | Chung 2014 | a run |"
    lines = [
        "# JSB Chorales, next chord",
        "",
        f"Negative log-likelihood on the test pieces, nats: sum over 88 keys, mean over all steps; {seeds} seeds.",
        f"{', '.join(f'{name} {value}' for name, value in environment().items() if value)};",
        f"{torch.get_num_threads()} thread(s). Made by",
        "",
        f"    python benchmarks/jsb_chorales.py {' '.join(sys.argv[1:])}",
        "",
        head,
        "|" + "---|" * head.count(" | ") + "---|",
        *rows,
        "",
    ]
    path.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
