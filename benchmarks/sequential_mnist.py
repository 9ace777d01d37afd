"""Sequential MNIST by pixels: deep stacks of linear recurrences, which a GPU runs as scans over time.

    python -m benchmarks.sequential_mnist --data FOLDER             on a GPU; writes results/sequential_mnist.{json,md}
    python -m benchmarks.sequential_mnist --data FOLDER --device cpu --subset 64 --steps 2 --out FOLDER      to try it

The network is that of the papers (Orvieto et al. 2023, Smith et al. 2023): an encoder of each pixel, blocks of layer
norm, recurrence, GELU, a gated linear unit, dropout and a residual, the mean over time, and a linear readout. The last
5,000 training images choose the epoch; the test images are read once, at the end, by the weights of that epoch. The
rate warms up and falls with a cosine of the share of epochs or of `--seconds` that has passed, whichever is larger.
The parameters of the recurrence have a rate of their own and no weight decay. Results are written after every epoch,
and with `--checkpoint` all that is needed to go on.
"""

import argparse
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import recurra as rc
from benchmarks.environment import environment
from recurra.data.readers.idx import array

RESULTS = Path(__file__).resolve().parent / "results"
VALIDATION = 5_000  # training images
PIXELS = 784
MEAN, DEVIATION = 0.1307, 0.3081  # of the training images' pixels
RECURRENT = {"nu", "theta", "gamma", "dt", "rho", "omega"}  # with the matrices b_re and b_im
OPTIONS = {
    "s5": {},
    "lru": {"smallest": 0.9, "largest": 0.999, "phase": math.pi / 10},
}
EVALUATED = 500  # images at once


# ---------------------------------------------------------------------------------------------------- data


def read(path: Path) -> dict[str, Tensor]:
    """Images (N, 784) and labels of both splits in 8 bits, from a folder of IDX files or from an npz file of arrays."""
    if path.is_dir():
        found = {}
        for split, prefix in (("train", "train"), ("test", "t10k")):
            found[f"{split}_images"] = array(next(path.glob(f"{prefix}-images*"))).flatten(1)
            found[f"{split}_labels"] = array(next(path.glob(f"{prefix}-labels*")))
        return found
    with np.load(path) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def pack(data: dict[str, Tensor], path: Path) -> None:
    """As one compressed file, which `--data` takes."""
    with path.open("wb") as file:
        np.savez_compressed(file, **{name: value.numpy() for name, value in data.items()})  # pyrefly: ignore


def batch_of(images: Tensor, index: Tensor) -> Tensor:
    """(784, B, 1), from bytes on the device."""
    return ((images[index].float() / 255 - MEAN) / DEVIATION).T.unsqueeze(-1)


# ---------------------------------------------------------------------------------------------------- the network


class Block(nn.Module):
    """Norm, recurrence, GELU, gated linear unit, dropout, residual."""

    def __init__(self, cell: str, width: int, modes: int, dropout: float):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.recurrence = rc.layer(cell, width, width, modes=modes, **OPTIONS[cell])
        self.mix, self.dropout = nn.Linear(width, 2 * width), nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.recurrence(self.norm(x))
        y = self.dropout(nn.functional.gelu(y))
        return x + self.dropout(nn.functional.glu(self.mix(y)))


class Network(nn.Module):
    """Scores (B, 10) of pixels (T, B, 1)."""

    def __init__(self, cell: str, width: int, modes: int, depth: int, dropout: float):
        super().__init__()
        self.encode = nn.Linear(1, width)
        self.blocks = nn.Sequential(*(Block(cell, width, modes, dropout) for _ in range(depth)))
        self.norm, self.readout = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.readout(self.norm(self.blocks(self.encode(x))).mean(0))


def optimiser_of(network: nn.Module, rate: float, recurrent: float, decay: float, fused: bool) -> torch.optim.AdamW:
    """Two groups; `initial_rate` is what the schedule multiplies."""
    own, others = [], []
    for name, parameter in network.named_parameters():
        parts = name.split(".")
        (own if RECURRENT & set(parts) or {"b_re", "b_im"} & set(parts) else others).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": own, "lr": recurrent, "initial_rate": recurrent, "weight_decay": 0.0},
            {"params": others, "lr": rate, "initial_rate": rate, "weight_decay": decay},
        ],
        fused=fused,
    )


def schedule(progress: float, warm_up: float) -> float:
    """A share of the rate: up in a line, down along a cosine."""
    if progress < warm_up:
        return max(progress / warm_up, 1e-2)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (progress - warm_up) / (1 - warm_up))))


# ---------------------------------------------------------------------------------------------------- training


class Run:
    """Data and network on a device, and what has been found so far."""

    def __init__(self, options: argparse.Namespace):
        self.options, self.began, self.before = options, time.perf_counter(), 0.0
        torch.manual_seed(options.seed)
        data = {name: value.to(options.device) for name, value in read(options.data).items()}
        held_out = min(VALIDATION, options.subset or VALIDATION)
        last = options.subset + held_out if options.subset else len(data["train_labels"])
        self.train = data["train_images"][: last - held_out], data["train_labels"][: last - held_out].long()
        self.validation = (
            data["train_images"][last - held_out : last],
            data["train_labels"][last - held_out : last].long(),
        )
        tested = options.subset or len(data["test_labels"])
        self.test = data["test_images"][:tested], data["test_labels"][:tested].long()
        self.network = Network(options.cell, options.width, options.modes, options.depth, options.dropout)
        self.network.to(options.device)
        fused = torch.device(options.device).type == "cuda"
        self.optimiser = optimiser_of(self.network, options.rate, options.recurrent_rate, options.decay, fused)
        self.history: list[dict[str, float]] = []
        self.best: dict[str, Tensor] = {}

    @property
    def seconds(self) -> float:
        """Since the beginning, reading and compiling included."""
        return self.before + time.perf_counter() - self.began

    @property
    def best_epoch(self) -> dict[str, float]:
        return max(self.history, key=lambda epoch: epoch["validation_accuracy"])

    def epoch(self, number: int) -> None:
        """Nothing in here waits for the device; the loss is read at the end."""
        options, (images, labels) = self.options, self.train
        self.network.train()
        order = torch.randperm(len(labels), device=images.device)
        batches = order.split(options.batch)
        batches = batches[: options.steps] if options.steps else batches[: max(1, len(labels) // options.batch)]
        total = torch.zeros((), device=images.device)
        for i, index in enumerate(batches):
            progress = max((number + i / len(batches)) / options.epochs, self.seconds / options.seconds)
            for group in self.optimiser.param_groups:
                group["lr"] = group["initial_rate"] * schedule(progress, options.warm_up)
            loss = nn.functional.cross_entropy(self.network(batch_of(images, index)), labels[index])
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            self.optimiser.step()
            total += loss.detach()
        found = {"epoch": number + 1, "training_loss": float(total) / len(batches)}
        found["validation_accuracy"] = self.accuracy(*self.validation)
        found["seconds"] = round(self.seconds, 1)
        self.history.append(found)
        if self.best_epoch is found:
            self.best = {name: value.detach().clone() for name, value in self.network.state_dict().items()}

    @torch.no_grad()
    def accuracy(self, images: Tensor, labels: Tensor) -> float:
        """Percent."""
        self.network.eval()
        right = torch.zeros((), dtype=torch.long, device=images.device)
        for index in torch.arange(len(labels), device=images.device).split(EVALUATED):
            right += (self.network(batch_of(images, index)).argmax(1) == labels[index]).sum()
        return 100 * int(right) / len(labels)

    def is_over(self) -> bool:
        """After the last epoch, or where another one would end after the time."""
        done, each = len(self.history), self.seconds / max(1, len(self.history))
        return done >= self.options.epochs or (done > 0 and self.seconds + 0.9 * each > self.options.seconds)

    # ------------------------------------------------------------------------------------------ files

    def save(self) -> None:
        state = {
            "network": self.network.state_dict(), "optimiser": self.optimiser.state_dict(), "best": self.best,
            "history": self.history, "seconds": self.seconds,
        }  # fmt: skip
        partial = self.options.checkpoint.with_suffix(".partial")
        torch.save(state, partial)
        os.replace(partial, self.options.checkpoint)

    def load(self) -> None:
        state = torch.load(self.options.checkpoint, map_location=self.options.device, weights_only=True)
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.best, self.history, self.before = state["best"], state["history"], state["seconds"]


# ---------------------------------------------------------------------------------------------------- results


def write(run: Run, test: float | None) -> None:
    """Both files, each replaced at once."""
    options = {name: str(value) if isinstance(value, Path) else value for name, value in vars(run.options).items()}
    for private in ("data", "out", "checkpoint", "pack"):
        options.pop(private)
    content: dict[str, Any] = {
        "environment": environment(),
        "options": options,
        "parameters": sum(p.numel() for p in run.network.parameters()),
        "best_epoch": run.best_epoch,
        "test_accuracy": test,
        "seconds": round(run.seconds, 1),
        "epochs": run.history,
    }
    for name, text in (("json", json.dumps(content, indent=1) + "\n"), ("md", page(content))):
        partial = run.options.out / f"sequential_mnist.{name}.partial"
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, run.options.out / f"sequential_mnist.{name}")


def page(content: dict[str, Any]) -> str:
    options, best, about = content["options"], content["best_epoch"], content["environment"]
    flags = " ".join(
        f"--{name.replace('_', '-')} {value}" for name, value in options.items() if value and name != "device"
    )
    test = "not read yet" if content["test_accuracy"] is None else f"{content['test_accuracy']:.2f} %"
    lines = [
        "# Sequential MNIST by pixels",
        "",
        f"`python -m benchmarks.sequential_mnist --data FOLDER {flags}`",
        "",
        f"{options['depth']} blocks of {options['cell']} with {options['width']} units and {options['modes']} modes, "
        f"{content['parameters']:,} parameters, on {about['device'] or about['processor']}, torch {about['torch']}. "
        f"Validation: {VALIDATION:,} training images, which choose the epoch; the test images are read once.",
        "",
        f"**Test accuracy {test}**, with the weights of epoch {best['epoch']} "
        f"({best['validation_accuracy']:.2f} % of the validation images). The run took {content['seconds']:.0f} s, "
        "reading, compilation and evaluation included.",
        "",
        "| epoch | training loss | validation accuracy, % | seconds |",
        "|---|---|---|---|",
    ]
    for epoch in content["epochs"]:
        numbers = f"{epoch['training_loss']:.4f} | {epoch['validation_accuracy']:.2f} | {epoch['seconds']:.0f}"
        lines.append(f"| {epoch['epoch']} | {numbers} |")
    return "\n".join(lines) + "\n"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a folder of IDX files, or an npz file")
    parser.add_argument("--pack", type=Path, help="write the data as this npz file, and end")
    parser.add_argument("--cell", choices=sorted(OPTIONS), default="s5")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--modes", type=int, default=64, help="complex states of a layer")
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=360.0)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--rate", type=float, default=4e-3)
    parser.add_argument("--recurrent-rate", type=float, default=1e-3)
    parser.add_argument("--decay", type=float, default=0.01)
    parser.add_argument("--warm-up", type=float, default=0.05, help="share of the run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--subset", type=int, default=0, help="training and test images; 0: all")
    parser.add_argument("--steps", type=int, default=0, help="of an epoch; 0: all")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--checkpoint", type=Path, help="written after every epoch; a run goes on from it")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.pack:
        pack(read(options.data), options.pack)
        return
    torch.set_float32_matmul_precision("high")
    run = Run(options)
    if options.checkpoint and options.checkpoint.exists():
        run.load()
    layer = run.network.blocks[0].recurrence
    print(rc.explain(layer, torch.zeros(PIXELS, options.batch, options.width, device=options.device)), flush=True)
    while not run.is_over():
        run.epoch(len(run.history))
        print(run.history[-1], flush=True)
        write(run, None)
        if options.checkpoint:
            run.save()
    run.network.load_state_dict(run.best)
    test = run.accuracy(*run.test)
    write(run, test)
    print(f"test accuracy {test:.2f} %, {run.seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
