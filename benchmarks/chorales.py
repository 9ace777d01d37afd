"""RNN-NADE on the JSB chorales: chords whose notes depend on each other (Boulanger-Lewandowski et al. 2012).

    python -m benchmarks.chorales                some minutes on one core
    python -m benchmarks.chorales --seeds 3

The score is the negative log-likelihood of the next chord in nats, averaged over all predicted steps of the test
pieces. Settings were chosen on the validation pieces, which also stop the training; the test pieces are scored once.
Writes results/chorales.json and results/chorales.md.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

import recurra as rc
from benchmarks.environment import environment
from recurra.data import Batches, SequenceSet, read_mat
from recurra.train import cosine, evaluate, fit

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PUBLISHED = {"RNN-NADE, SGD (2012)": 7.19, "RNN-NADE, Hessian-free (2012)": 5.56}
SETTINGS = {"hidden_size": 128, "nade_size": 128, "dropout": 0.5}


def run(parts: dict[str, SequenceSet], seed: int, epochs: int) -> dict[str, float]:
    """Train one model; its scores on validation and test pieces."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    model = rc.models.RNNNADE(88, **SETTINGS)
    frequencies = torch.cat([example.target for example in parts["train"]]).mean(0)
    with torch.no_grad():
        model.density.A.bias.copy_(torch.logit(frequencies, eps=1e-3))
    began = time.perf_counter()
    train, valid = Batches(parts["train"], 16, seed=seed), Batches(parts["valid"], 76, shuffle=False)
    options = {"lr": 5e-3, "schedule": cosine(warmup=20), "epochs": epochs, "patience": 12, "clip": 1.0}
    result = fit(model, train, valid, loss=rc.models.NextFrame(), device="cpu", progress=False, **options)
    seconds = time.perf_counter() - began
    test = evaluate(model, Batches(parts["test"], 77, shuffle=False), loss=rc.models.NextFrame(), device="cpu")
    found = {"seed": seed, "valid": float(result.best_loss or 0.0), "test": test["loss"]}
    return found | {"epochs": len(result.history), "seconds": round(seconds, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=60)
    options = parser.parse_args()
    path = options.data / "polyphonic_music" / "JSB_Chorales.mat"
    parts = {part: read_mat(path, part) for part in ("train", "valid", "test")}
    runs = []
    for seed in range(options.seeds):
        runs.append(run(parts, seed, options.epochs))
        print(runs[-1], flush=True)
    write(runs, f"python -m benchmarks.chorales --seeds {options.seeds} --epochs {options.epochs}")


def write(runs: list[dict[str, float]], command: str) -> None:
    content = {"command": command, "environment": environment(), "settings": SETTINGS, "runs": runs}
    content["published"] = PUBLISHED
    (RESULTS / "chorales.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    scores = [one["test"] for one in runs]
    lines = ["# RNN-NADE on the JSB chorales", "", f"`{command}`; nats per chord on the test pieces.", ""]
    lines += ["| model | nats |", "|---|---|", f"| RNN-NADE, LSTM-128, here | {statistics.mean(scores):.2f} |"]
    lines += [f"| {name} | {value:.2f} |" for name, value in PUBLISHED.items()]
    (RESULTS / "chorales.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
