"""Text columns as inputs: one-hot columns, which the input matrix of a cell embeds, against a narrow embedding first.

A made-up task in which categories matter through a hidden group: K categories belong to two groups, a sequence has 12
of them beside a column of noise. A label for the sequence says which group is more frequent; a label for every step
whether the groups of this step and of the one two steps before are equal. Both ways of reading have the same GRU, the
same batches and the same seeds; nothing is tuned.

    python benchmarks/categories.py            # writes benchmarks/results/categories.md
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import recurra as rc
from recurra.data.batching import Batches
from recurra.data.sequences import SequenceSet
from recurra.estimators.embedded_columns import EmbeddedColumns
from recurra.readout import Readout

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.environment import environment

SIZES, SEEDS, STEPS, TRAIN, TEST = (4, 16, 64), 5, 12, 300, 500
RESULTS = Path(__file__).parent / "results" / "categories.md"


class Reader(nn.Module):
    """A front that turns (T, B, 2) of codes and noise to inputs, a GRU, and a class at every step."""

    def __init__(self, front: nn.Module, width: int):
        super().__init__()
        self.front, self.recurrent = front, rc.GRU(width, 32)
        self.readout = Readout(self.recurrent, 2)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return self.readout(self.recurrent(self.front(x), lengths=lengths)[0])  # (T, B, 2)


class OneHot(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        codes = nn.functional.one_hot(x[..., 0].long() - 1, self.size).to(x.dtype)
        return torch.cat([codes, x[..., 1:]], dim=-1)


def sequences(size: int, count: int, random: np.random.Generator, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(count, STEPS, 2) of codes and noise, and the groups (count, STEPS)."""
    codes = random.integers(0, size, (count, STEPS))
    return np.stack([codes + 1.0, random.normal(size=codes.shape)], axis=-1), groups[codes]


def labels(of: np.ndarray, task: str) -> np.ndarray:
    """(count, STEPS) of classes; -100 where there is none."""
    if task == "per step":
        found = np.full(of.shape, -100)
        found[:, 2:] = of[:, 2:] == of[:, :-2]
        return found
    found = np.full(of.shape, -100)
    found[:, -1] = of[:, :-1].sum(axis=1) > (STEPS - 1) / 2
    return found


def accuracy(size: int, task: str, way: str, seed: int) -> float:
    random = np.random.default_rng(seed)
    groups = random.permutation(np.arange(size) % 2)
    (x, of), (x_test, of_test) = (sequences(size, n, random, groups) for n in (TRAIN, TEST))
    torch.manual_seed(seed)
    embedded = EmbeddedColumns((size, 0))
    model = Reader(*((embedded, embedded.width) if way == "embedded" else (OneHot(size), size + 1)))
    data = SequenceSet.from_arrays(
        torch.tensor(x).float(), torch.tensor(labels(of, task)), "tagging", classes=("0", "1")
    )
    rc.train.fit(model, Batches(data, 32, seed=seed), epochs=15, lr=1e-2, progress=False)
    model.eval()
    with torch.no_grad():
        inputs = torch.tensor(x_test).float().transpose(0, 1)
        found = model(inputs, torch.full((TEST,), STEPS)).argmax(dim=-1).T.numpy()
    truth = labels(of_test, task)
    return float((found == truth)[truth >= 0].mean())


def main() -> None:
    rows: list[str] = []
    for task in ("per sequence", "per step"):
        for size in SIZES:
            cells: list[str] = []
            for way in ("one-hot", "embedded"):
                found = [accuracy(size, task, way, seed) for seed in range(SEEDS)]
                cells.append(f"{100 * np.mean(found):.1f} ± {100 * np.std(found):.1f}")
            rows.append(f"| {task} | {size} | {cells[0]} | {cells[1]} |")
            print(rows[-1], flush=True)
    RESULTS.write_text(_page(rows), encoding="utf-8")


def _page(rows: list[str]) -> str:
    about = ", ".join(f"{name} {value}" for name, value in environment().items() if value)
    head = ["# Categories as inputs", "", *(__doc__ or "").split("\n\n")[1].splitlines(), ""]
    table = ["| label | categories | one-hot | embedded first |", "|---|---|---|---|", *rows]
    measured = f"Accuracy on {TEST} sequences in %, mean and standard deviation over {SEEDS} seeds."
    return "\n".join([*head, measured, f"`python benchmarks/categories.py`; {about}.", "", *table, ""])


if __name__ == "__main__":
    main()
