"""RNN-NADE and RNN-RBM on the JSB chorales: notes of a chord depend on each other (Boulanger-Lewandowski et al. 2012).

    python -m benchmarks.chorales --seeds 3      both, a quarter of an hour on one core
    python -m benchmarks.chorales rbm            one of them

The score is the negative log-likelihood of the next chord in nats, averaged over all predicted steps of the test
pieces. The settings of RNN-NADE were set once; those of RNN-RBM are the best of some ten short runs on the validation
pieces. The validation pieces stop the training of RNN-NADE; the test pieces are scored once. The likelihood of RNN-RBM
is estimated by annealed importance sampling; its error is that of the mean over all chords. Writes
results/chorales.json and results/chorales.md.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

import recurra as rc
from benchmarks.environment import environment
from recurra.data import Batches, SequenceSet, read_mat
from recurra.train import cosine, evaluate, fit

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PUBLISHED = {"RNN-NADE, SGD (2012)": 7.19, "RNN-NADE, Hessian-free (2012)": 5.56, "RNN-RBM (2012)": 6.27}
SETTINGS = {
    "nade": {"hidden_size": 128, "nade_size": 128, "dropout": 0.5},
    "rbm": {"hidden_size": 128, "rbm_size": 150, "dropout": 0.5},
}
EPOCHS = {"nade": 40, "rbm": 30}
ANNEALING = {"chains": 10, "temperatures": 400}
BIAS = (
    "Annealed importance sampling errs on the low side: on 168 validation chords of one run, 1,600 temperatures\n"
    "instead of 400 raise the estimate by 0.04 nats, and 100 lower it by 0.04."
)
Numbers = dict[str, Any]


def frequencies(pieces: SequenceSet) -> torch.Tensor:
    """How often each key sounds in the targets."""
    return torch.cat([example.target for example in pieces]).mean(0)


def run_nade(parts: dict[str, SequenceSet], seed: int) -> Numbers:
    """Train one RNN-NADE; its scores on validation and test pieces."""
    torch.manual_seed(seed)
    model = rc.models.RNNNADE(88, **SETTINGS["nade"])
    with torch.no_grad():
        model.density.A.bias.copy_(torch.logit(frequencies(parts["train"]), eps=1e-3))
    began = time.perf_counter()
    train, valid = Batches(parts["train"], 16, seed=seed), Batches(parts["valid"], 76, shuffle=False)
    options = {"lr": 5e-3, "schedule": cosine(warmup=20), "epochs": EPOCHS["nade"], "patience": 12, "clip": 1.0}
    result = fit(model, train, valid, loss=rc.models.NextFrame(), device="cpu", progress=False, **options)
    seconds = time.perf_counter() - began
    test = evaluate(model, Batches(parts["test"], 77, shuffle=False), loss=rc.models.NextFrame(), device="cpu")
    found = {"seed": seed, "valid": float(result.best_loss or 0.0), "test": test["loss"], "error": 0.0}
    return found | {"epochs": len(result.history), "seconds": round(seconds, 1)}


def run_rbm(parts: dict[str, SequenceSet], seed: int) -> Numbers:
    """Train one RNN-RBM; its estimated scores on validation and test pieces."""
    torch.manual_seed(seed)
    model = rc.models.RNNRBM(88, **SETTINGS["rbm"])
    model.density.start_at(frequencies(parts["train"]))
    began = time.perf_counter()
    options = {"optimizer": two_rates(model), "schedule": cosine(warmup=20), "epochs": EPOCHS["rbm"], "clip": 5.0}
    goal = rc.models.ContrastiveDivergence(15)
    fit(model, Batches(parts["train"], 8, seed=seed), loss=goal, device="cpu", progress=False, **options)
    seconds = time.perf_counter() - began
    found = {"seed": seed, "epochs": EPOCHS["rbm"], "seconds": round(seconds, 1)}
    return found | dict(zip(("test", "error"), estimate(model, parts["test"], seed), strict=True))


def two_rates(model: rc.models.RNNRBM) -> torch.optim.Optimizer:
    """Adam with a larger rate for W: its gradient is a small difference of correlations."""
    others = [p for p in model.parameters() if p is not model.density.W]
    return torch.optim.Adam([{"params": others, "lr": 0.03}, {"params": [model.density.W], "lr": 0.1}])


@torch.no_grad()
def estimate(model: rc.models.RNNRBM, pieces: SequenceSet, seed: int) -> tuple[float, float]:
    """Mean negative log-likelihood of the next chord, and the standard error of the estimate."""
    random, values, errors = torch.Generator().manual_seed(seed), [], []
    for batch in Batches(pieces, 8, shuffle=False).epoch(0):
        s, _ = model.eval()(batch.inputs, None, batch.lengths)
        found = model.density.log_prob(s[batch.mask], batch.targets[batch.mask], generator=random, **ANNEALING)
        values.append(-found.value)
        errors.append(found.error)
    every = torch.cat(errors)
    return float(torch.cat(values).mean()), float(every.square().sum().sqrt() / len(every))


RUNS = {"nade": run_nade, "rbm": run_rbm}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", choices=[[], *RUNS], default=[])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    path = options.data / "polyphonic_music" / "JSB_Chorales.mat"
    parts = {part: read_mat(path, part) for part in ("train", "valid", "test")}
    torch.set_num_threads(1)
    out, commit = RESULTS / "chorales.json", environment()["commit"]
    known = json.loads(out.read_text(encoding="utf-8")).get("models", {}) if out.exists() else {}
    for name in options.models or RUNS:
        known[name] = []
        for seed in range(options.seeds):
            known[name].append(RUNS[name](parts, seed) | {"commit": commit})
            print(name, known[name][-1], flush=True)
    write({name: known[name] for name in RUNS if name in known}, options.seeds)


def write(models: dict[str, list[Numbers]], seeds: int) -> None:
    command = f"python -m benchmarks.chorales --seeds {seeds}"
    content = {
        "command": command,
        "environment": environment(),
        "settings": SETTINGS,
        "annealing": ANNEALING,
        "models": models,
    }
    content |= {"published": PUBLISHED}
    (RESULTS / "chorales.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    lines = ["# RNN-NADE and RNN-RBM on the JSB chorales", "", f"`{command}`; nats per chord on the test pieces.", ""]
    lines += ["| model | nats | lowest to highest of the seeds | error of the estimate |", "|---|---|---|---|"]
    for name, runs in models.items():
        scores = [one["test"] for one in runs]
        spread = f"{min(scores):.2f} to {max(scores):.2f} ({len(scores)})"
        error = f"± {max(one['error'] for one in runs):.3f}" if name == "rbm" else "exact"
        lines.append(f"| RNN-{name.upper()}, LSTM-128, here | {statistics.mean(scores):.2f} | {spread} | {error} |")
    lines += [f"| {name} | {value:.2f} | | |" for name, value in PUBLISHED.items()]
    lines += ["", BIAS]
    (RESULTS / "chorales.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
