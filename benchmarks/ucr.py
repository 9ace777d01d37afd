"""rc.SequenceClassifier() on sets of the UCR archive, beside published accuracies and two linear models.

    python benchmarks/ucr.py choose                # efforts by cross-validation inside the training parts alone
    python benchmarks/ucr.py compare [effort …]    # the test parts, scored once a seed: quick, balanced, best
    python benchmarks/ucr.py report                # results/ucr.md from results/ucr.json

The sets lie in ../shared/archives/ucr and ../shared/data/uea, with the accuracies that others published for the same
training and test parts: ROCKET (Dempster et al. 2020, mean of 10 runs), ResNet, FCN, TWIESN (an echo state network) and
MLP (Fawaz et al. 2019, mean of 5 runs). `compare` can be stopped: sets that are done are not repeated.
"""

import argparse
import csv
import gzip
import json
import statistics
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from environment import environment  # pyrefly: ignore
from sklearn.model_selection import StratifiedShuffleSplit
from uea import linear_accuracies, part  # pyrefly: ignore

import recurra as rc
from recurra.train import show_progress

ARCHIVE = Path(__file__).resolve().parent.parent.parent / "shared" / "archives" / "ucr"
RESULTS = Path(__file__).parent / "results"
FURTHER = ("BasicMotions", "JapaneseVowels", "PLAID")  # without published rows in the archive
SEEDS = {"quick": (0, 1, 2), "balanced": (0, 1, 2), "best": (0,)}
PEERS = ("rocket", "resnet", "fcn", "twiesn", "mlp")
Series = list[np.ndarray]


def published() -> dict[str, dict[str, str]]:
    with (ARCHIVE / "published.csv").open(encoding="utf-8") as file:
        return {row["dataset"]: row for row in csv.DictReader(file)}


def read(name: str, which: str) -> tuple[Series, np.ndarray]:
    """Sequences (T, D), NaN where a value is missing, and their labels."""
    path = ARCHIVE / f"{name}_{which}.tsv.gz"
    if not path.exists():
        return part(name, which)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    series = [np.array([float(value or "nan") for value in row[1:]])[:, None] for row in rows]
    return series, np.array([row[0] for row in rows])


# ---------------------------------------------------------------------------------------------------- the choice


def held_out(name: str, effort: str, repeats: int = 1) -> float:
    """The mean accuracy on three tenths of the training sequences, left out at random."""
    X, y = read(name, "TRAIN")
    held = max(len(set(y)), int(0.3 * len(y)))
    right = []
    splits = StratifiedShuffleSplit(repeats, test_size=held, random_state=0)
    for learned, left in splits.split(y, y):  # pyrefly: ignore  (its stubs are older)
        model = rc.SequenceClassifier(effort=effort, random_state=0).fit([X[k] for k in learned], y[learned])
        right.append(model.score([X[k] for k in left], y[left]))
    return statistics.mean(right)


def choose(names: list[str]) -> dict[str, Any]:
    return {
        effort: {name: round(held_out(name, effort), 4) for name in show_progress(names, effort, len(names))}
        for effort in ("quick", "balanced")
    }


# ---------------------------------------------------------------------------------------------------- the comparison


def one(name: str, effort: str) -> dict[str, Any]:
    """Accuracy on the test part and seconds of a fit, for every seed."""
    (X, y), (Xt, yt) = read(name, "TRAIN"), read(name, "TEST")
    found: dict[str, Any] = {"train": len(X), "test": len(Xt), "steps": max(map(len, X)), "classes": len(set(y))}
    found |= {"accuracy": [], "seconds": [], "cpu_seconds": []}
    for seed in SEEDS[effort]:
        began, began_cpu = time.perf_counter(), time.process_time()
        model = rc.SequenceClassifier(effort=effort, random_state=seed).fit(X, y)
        found["seconds"].append(round(time.perf_counter() - began, 2))
        found["cpu_seconds"].append(round(time.process_time() - began_cpu, 2))
        found["accuracy"].append(round(model.score(Xt, yt), 4))
        found["members"] = {member: round(weight, 2) for member, weight in model.members_.items()}
    return found


def compare(efforts: list[str], names: list[str], path: Path) -> None:
    """Adds what is missing to the file of results, set by set."""
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rows": {}, "linear": {}}
    for name in show_progress(names, "linear models", len(names)):
        if name not in results["linear"]:
            results["linear"][name] = linear_accuracies(*map(complete, (read(name, "TRAIN"), read(name, "TEST"))))
            write(path, results)
    for effort in efforts:
        for name in show_progress(names, effort, len(names)):
            if name not in results["rows"].setdefault(effort, {}):
                results["rows"][effort][name] = found = one(name, effort)
                print(effort, name, found["accuracy"], found["seconds"], flush=True)
                results["about"] = about()
                write(path, results)


def complete(data: tuple[Series, np.ndarray]) -> tuple[Series, np.ndarray]:
    """Sequences whose missing values are filled as the estimator does it, for the linear models."""
    from recurra.estimators.missing_values import fill_missing

    return [fill_missing(x) for x in data[0]], data[1]


def about() -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "threads": torch.get_num_threads(),
        "environment": environment(),
        "sklearn": sklearn.__version__,
    }


def write(path: Path, results: dict[str, Any]) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(results, indent=1), encoding="utf-8")
    draft.replace(path)


# ---------------------------------------------------------------------------------------------------- the report


def report(results: dict[str, Any]) -> str:
    peers, rows, linear = published(), results["rows"], results["linear"]
    efforts = [effort for effort in SEEDS if effort in rows]
    lines = [
        "| set | train | test | steps | classes | better linear | "
        + " | ".join(efforts)
        + " | s a fit ("
        + ", ".join(efforts)
        + ") | ROCKET | ResNet | FCN | TWIESN | MLP |",
        "|" + "---|" * (7 + len(efforts) + len(PEERS)),
    ]
    names = [*peers, *FURTHER]
    lines += [_row(name, efforts, rows, linear, peers.get(name)) for name in names]
    lines.append(_means(list(peers), efforts, rows, linear, peers))
    words = _words(list(peers), efforts, rows, linear, peers)
    return "\n".join([_head(results), *lines, "", *words, *_choice(results.get("choice")), ""])


def _head(results: dict[str, Any]) -> str:
    found = results["about"]
    facts = ", ".join(f"{name} {version}" for name, version in found["environment"].items() if version)
    return (
        "# The UCR archive\n\n"
        "`rc.SequenceClassifier(effort=…)` with all else as it comes: accuracy on the test part in %, mean ± standard\n"
        "deviation over three seeds (one for best), beside what others published for the same parts. The design was\n"
        "chosen by cross-validation inside the training parts. The test parts were scored once, at the end, but for\n"
        "BasicMotions and JapaneseVowels: these were scored again when mixtures of features began to share units, for\n"
        'speed. Untouched, `effort` is "auto", which is "balanced" for all these sets.\n\n'
        f"`python benchmarks/ucr.py compare`, {found['date']}; {facts}, scikit-learn {found['sklearn']}, "
        f"{found['threads']} thread(s) on a machine that other work shared: seconds are CPU seconds.\n"
    )


def _row(name: str, efforts: list[str], rows: Any, linear: Any, peer: dict[str, str] | None) -> str:
    first = rows[efforts[0]][name]
    cells = [name, *(str(first[key]) for key in ("train", "test", "steps", "classes")), _percent(max(linear[name]))]
    cells += [_spread(rows[effort][name]["accuracy"]) if name in rows[effort] else "" for effort in efforts]
    seconds = [statistics.mean(rows[e][name]["cpu_seconds"]) for e in efforts if name in rows[e]]
    cells.append(", ".join(f"{value:.1f}" for value in seconds))
    cells += [_percent(float(peer[key])) for key in PEERS] if peer else [""] * len(PEERS)
    return "| " + " | ".join(cells) + " |"


def _means(names: list[str], efforts: list[str], rows: Any, linear: Any, peers: Any) -> str:
    means = [_mean([statistics.mean(rows[e][n]["accuracy"]) for n in names if n in rows[e]]) for e in efforts]
    seconds = [statistics.mean(statistics.mean(rows[e][n]["cpu_seconds"]) for n in rows[e]) for e in efforts]
    others = [_mean([float(peers[n][key]) for n in names]) for key in PEERS]
    cells = [f"**mean of {len(names)}**", "", "", "", "", _mean([max(linear[n]) for n in names]), *means]
    cells += [", ".join(f"{value:.1f}" for value in seconds), *others]
    return "| " + " | ".join(cells) + " |"


def _words(names: list[str], efforts: list[str], rows: Any, linear: Any, peers: Any) -> list[str]:
    """Who is better, in words."""
    lines = []
    for effort in efforts:
        done = [name for name in names if name in rows[effort]]
        ours = {name: statistics.mean(rows[effort][name]["accuracy"]) for name in done}
        rocket = {name: float(peers[name]["rocket"]) for name in done}
        gap = 100 * (statistics.mean(ours.values()) - statistics.mean(rocket.values()))
        behind = [name for name in done if ours[name] < rocket[name] - 0.005]
        side = "ahead of" if gap > 0 else "behind"
        lines.append(
            f"- `{effort}` is {abs(gap):.1f} points {side} ROCKET in the mean of {len(done)} sets. ROCKET is better by "
            f"more than half a point on {len(behind)}: {', '.join(behind) or 'none'}."
        )
        spread = {n: statistics.pstdev(rows[effort][n]["accuracy"]) for n in rows[effort]}
        below = [
            n for n in rows[effort] if statistics.mean(rows[effort][n]["accuracy"]) < max(linear[n]) - spread[n] - 1e-9
        ]
        lines.append(f"  Below the better linear model by more than the spread: {', '.join(below) or 'none'}.")
    return lines


def _choice(choice: dict[str, dict[str, float]] | None) -> list[str]:
    """The means of `choose`, if it has run."""
    if choice is None:
        return []
    means = ", ".join(f"{effort} {100 * statistics.mean(found.values()):.1f} %" for effort, found in choice.items())
    return ["", f"`python benchmarks/ucr.py choose`, on sequences held out from the training parts: {means}."]


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _mean(values: list[float]) -> str:
    return f"**{100 * statistics.mean(values):.2f}**"


def _spread(values: list[float]) -> str:
    mean = f"{100 * statistics.mean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ± {100 * statistics.pstdev(values):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("choose", "compare", "report"))
    parser.add_argument("efforts", nargs="*", default=[], help="quick, balanced, best")
    given = parser.parse_args()
    path, names = RESULTS / "ucr.json", [*published(), *FURTHER]
    warnings.simplefilter("ignore")
    if given.what == "choose":
        results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rows": {}, "linear": {}}
        write(path, results | {"choice": choose(names)})
    if given.what == "compare":
        compare(given.efforts or list(SEEDS), names, path)
    if given.what in ("compare", "report"):
        text = report(json.loads(path.read_text(encoding="utf-8")))
        (RESULTS / "ucr.md").write_text(text, encoding="utf-8")
        print(text)


if __name__ == "__main__":
    main()
