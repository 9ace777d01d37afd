"""The eight LSTM variants of Greff et al. 2015 on the chorales and on Nottingham, with equal budgets.

    python -m benchmarks.greff             both, some minutes on one core; rerun to go on where it was stopped
    python -m benchmarks.greff figure      the picture and the table from the numbers that are there

Every variant gets the same random settings (a learning rate and a size each, log-uniform), the same start, N(0, 0.1²)
as in the paper, weight for weight, and the same limit of epochs; as there, training stops where the validation pieces
are predicted best, and the network of that epoch is scored once on the test pieces. The budget is small beside the
paper's 200 settings a variant; Nottingham is learned from its first pieces alone.
Writes results/greff.json, results/greff.md and results/greff.svg.
"""

import argparse
import json
import math
import random
import statistics
import time
import zlib
from pathlib import Path
from typing import Any

import torch

import recurra as rc
from benchmarks.environment import environment
from recurra.data import Batches, SequenceSet, read_mat
from recurra.train import Predictor, constant, evaluate, fit

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
#: Greff's name, the registered cell, what it leaves out or changes
VARIANTS = (
    ("V", "vanilla_lstm", "peepholes, all gates"),
    ("NIG", "lstm_nig", "no input gate"),
    ("NFG", "lstm_nfg", "no forget gate"),
    ("NOG", "lstm_nog", "no output gate"),
    ("NIAF", "lstm_niaf", "no input activation"),
    ("NOAF", "lstm_noaf", "no output activation"),
    ("CIFG", "lstm_cifg", "input gate = 1 - forget gate"),
    ("NP", "lstm_np", "no peepholes"),
)
#: file, training pieces
DATA = {"JSB chorales": ("JSB_Chorales.mat", 229), "Nottingham": ("Nottingham.mat", 150)}
PIECE, BATCH = 60, 16  # training pieces are cut to so many steps
EPOCHS, PATIENCE = 40, 4


def settings(number: int) -> dict[str, float]:
    """The same random settings for every variant."""
    draw = random.Random(number)
    return {"rate": round(10 ** draw.uniform(-2.3, -1.5), 5), "hidden": round(2 ** draw.uniform(5, 6.6))}


def cut(pieces: SequenceSet, count: int) -> SequenceSet:
    """The first pieces in parts of PIECE steps."""
    parts = [(e.inputs.split(PIECE), e.target.split(PIECE)) for e in list(pieces)[:count]]
    inputs, targets = ([part for piece in side for part in piece] for side in zip(*parts, strict=True))
    return SequenceSet.from_arrays(inputs, targets, "forecasting")


@torch.no_grad()
def start(model: Predictor, number: int, train: SequenceSet) -> None:
    """N(0, 0.1²) for all weights, drawn by name: those that two variants share start with the same numbers.

    The readout's bias starts at how often each note sounds.
    """
    for name, weight in model.named_parameters():
        weight.normal_(0.0, 0.1, generator=torch.Generator().manual_seed(zlib.crc32(f"{number} {name}".encode())))
    model.head.b.copy_(torch.logit(torch.cat([e.target for e in train]).mean(0), eps=1e-3))  # pyrefly: ignore


def run(cell: str, number: int, train: SequenceSet, valid: SequenceSet, test: SequenceSet) -> dict[str, Any]:
    """One variant with one of the settings: nats per step on the test pieces."""
    chosen, began = settings(number), time.process_time()
    torch.manual_seed(number)
    model = Predictor(rc.layer(cell, 88, int(chosen["hidden"])), 88)
    start(model, number, train)
    options: dict[str, Any] = {"loss": "binary_cross_entropy", "lr": chosen["rate"], "clip": 1.0}
    options |= {
        "schedule": constant(warmup=20),
        "epochs": EPOCHS,
        "patience": PATIENCE,
        "device": "cpu",
        "progress": False,
    }
    fitted = fit(model, Batches(train, BATCH, seed=number), Batches(valid, BATCH, shuffle=False), **options)
    found = evaluate(model, Batches(test, BATCH, shuffle=False), loss="binary_cross_entropy", device="cpu")["loss"]
    seconds = round(time.process_time() - began, 1)
    return chosen | {"nats": round(found, 4), "best epoch": fitted.best_epoch, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("all", "figure"), default="all")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "polyphonic_music")
    parser.add_argument("--settings", type=int, default=5, help="random settings a variant")
    options = parser.parse_args()
    torch.set_num_threads(1)
    path = RESULTS / "greff.json"
    if options.what == "all":
        known = read(path, f"python -m benchmarks.greff --settings {options.settings}")
        for name in DATA:
            for number in range(len(known["results"][name]["V"]), options.settings):
                compare(name, number, options.data, known["results"][name])
                path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    known = json.loads(path.read_text(encoding="utf-8"))
    (RESULTS / "greff.svg").write_text(picture(known["results"]), encoding="utf-8")
    (RESULTS / "greff.md").write_text(table(known), encoding="utf-8")


def read(path: Path, command: str) -> dict[str, Any]:
    """What an earlier run of this command has measured at this commit."""
    fresh = {name: {short: [] for short, _, _ in VARIANTS} for name in DATA}
    content: dict[str, Any] = {"command": command, "environment": environment(), "results": fresh}
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else content
    same = known["command"] == command and known["environment"]["commit"] == content["environment"]["commit"]
    return known if same else content


def compare(name: str, number: int, folder: Path, found: dict[str, list[dict[str, Any]]]) -> None:
    """All variants with one of the settings."""
    file, pieces = DATA[name]
    train = cut(read_mat(folder / file, "train"), pieces)
    valid, test = (read_mat(folder / file, part) for part in ("valid", "test"))
    for short, cell, _ in VARIANTS:
        found[short].append(run(cell, number, train, valid, test))
        print(name, short, found[short][-1], flush=True)


def table(known: dict[str, Any]) -> str:
    results = known["results"]
    names = list(results)
    count = len(results[names[0]]["V"])
    lines = ["# Eight variants of LSTM, equal budgets", "", f"`{known['command']}`; nats per step on the test pieces,"]
    lines += [f"mean of {count} random settings (lowest to highest), the same settings and start for all variants."]
    lines += ["Beside it how much more than V's, setting by setting: the mean and its standard error.", ""]
    lines += [f"| variant | | {' | '.join(f'{name} | more than V' for name in names)} |"]
    lines += ["|---|---|" + "---|---|" * len(names)]
    for short, _, about in VARIANTS:
        cells = [cell for name in names for cell in _beside_v(results[name], short)]
        lines.append(f"| {short} | {about} | {' | '.join(cells)} |")
    sizes = ", ".join(f"{one['rate']:g} with {one['hidden']} cells" for one in results[names[0]]["V"])
    lines += ["", "![The same as a picture](greff.svg)", "", f"Rates and sizes: {sizes}.", BUDGET]
    return "\n".join(lines) + "\n"


def _beside_v(found: dict[str, list[dict[str, Any]]], short: str) -> tuple[str, str]:
    nats = [one["nats"] for one in found[short]]
    mean = f"{statistics.mean(nats):.3f} ({min(nats):.3f} to {max(nats):.3f})"
    if short == "V":
        return mean, ""
    more = [one - v["nats"] for one, v in zip(nats, found["V"], strict=True)]
    return mean, f"{statistics.mean(more):+.3f} ± {statistics.stdev(more) / len(more) ** 0.5:.3f}"


BUDGET = (
    "Greff et al. give each variant 200 random settings;\nhere it is a few. A mean difference within twice its "
    "standard error says nothing about the variants."
)


def picture(results: dict[str, dict[str, list[dict[str, Any]]]]) -> str:
    """A panel for each set of pieces: every setting as a dot, a box from lowest to highest, a line at the median."""
    width, height, left, top, bottom = 420, 300, 60, 40, 40
    parts = []
    for panel, (name, found) in enumerate(results.items()):
        every = [one["nats"] for runs in found.values() for one in runs]
        low, high = math.floor(min(every) * 5) / 5, math.ceil(max(every) * 5) / 5
        start, step = panel * width + left, (width - left - 10) / len(found)

        def y(value: float, low: float = low, high: float = high) -> float:
            return top + (high - value) / (high - low) * (height - top - bottom)

        parts.append(f'<text x="{start}" y="22" font-size="14">{name}, nats per step</text>')
        for k in range(5):
            tick = low + k * (high - low) / 4
            ends = f'x1="{start}" x2="{(panel + 1) * width - 10}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"'
            parts.append(f'<line {ends} stroke="#ddd"/>')
            parts.append(f'<text x="{start - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:.2f}</text>')
        for k, (short, runs) in enumerate(found.items()):
            parts += _box(start + (k + 0.5) * step, 0.3 * step, [one["nats"] for one in runs], y)
            middle = start + (k + 0.5) * step
            parts.append(f'<text x="{middle:.1f}" y="{height - 20}" text-anchor="middle">{short}</text>')
    size = f'viewBox="0 0 {width * len(results)} {height}" font-family="sans-serif" font-size="11"'
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', '<rect width="100%" height="100%" fill="white"/>']
    return "\n".join([*head, *parts, "</svg>\n"])


def _box(x: float, half: float, values: list[float], y: Any) -> list[str]:
    top, bottom, middle = y(max(values)), y(min(values)), y(statistics.median(values))
    area = f'x="{x - half:.1f}" y="{top:.1f}" width="{2 * half:.1f}" height="{max(bottom - top, 1):.1f}"'
    line = f'x1="{x - half:.1f}" x2="{x + half:.1f}" y1="{middle:.1f}" y2="{middle:.1f}"'
    dots = [f'<circle cx="{x:.1f}" cy="{y(v):.1f}" r="2.5" fill="#D55E00"/>' for v in values]
    return [
        f'<rect {area} fill="#56B4E9" fill-opacity="0.4" stroke="#0072B2"/>',
        f'<line {line} stroke="#0072B2" stroke-width="2"/>',
        *dots,
    ]


if __name__ == "__main__":
    main()
