"""Train one model in several processes, on one machine or many; killed and started again, it goes on where it was.

    torchrun --nproc-per-node 2 examples/train_distributed.py
    python examples/train_distributed.py                             # the same model in one process

There is nothing distributed in the code: under `torchrun`, `rc.train.fit` gives each process its share of every batch,
sums the gradients, and lets one process write checkpoints and progress. Without dropout the weights are those of one
process but for rounding. On GPUs torch's NCCL carries the gradients, on CPUs gloo.
"""

import argparse
import os
from pathlib import Path

import torch
from torch import Tensor, nn

import recurra as rc

FIRST = os.environ.get("RANK", "0") == "0"  # torchrun numbers the processes


class Adder(nn.Module):
    """A GRU that reads two columns and answers with one number after the last step."""

    def __init__(self, units: int):
        super().__init__()
        self.layer, self.readout = rc.GRU(2, units), rc.Readout(units, 1)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        _, h = self.layer(x, lengths=lengths)
        return self.readout(h[-1])  # (B, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=64)
    parser.add_argument("--sequences", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--folder", type=Path, help="checkpoints; a run that is there is continued")
    chosen = parser.parse_args()

    torch.manual_seed(0)  # all processes start with the same weights
    task = rc.data.tasks.adding(length=50)
    train, test = task.sequences(chosen.sequences, seed=1), task.sequences(500, seed=2)
    model = Adder(chosen.units)
    result = rc.train.fit(
        model,
        train,
        epochs=chosen.epochs,
        batch_size=64,
        lr=0.01,
        clip=1.0,
        schedule=rc.train.cosine(warmup=50),
        checkpoints=chosen.folder,
        progress=FIRST,
    )
    error = rc.train.evaluate(model, test)["loss"]  # all processes take part, and all get the same number
    if FIRST:
        processes = os.environ.get("WORLD_SIZE", "1")
        print(f"{processes} process(es), {result.steps} updates on {result.device}")
        print(f"squared error {error:.5f}; the mean as an answer has {task.baseline:.3f}")


if __name__ == "__main__":
    main()
