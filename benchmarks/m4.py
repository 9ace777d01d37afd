"""M4 Hourly: 414 series, 48 hours ahead, by rc.Forecaster as it comes and by what is published or runs beside it.

    python benchmarks/m4.py train          # the last 48 hours of the training part, to choose settings by
    python benchmarks/m4.py test           # the competition's test part
    python benchmarks/m4.py report         # results/m4.md from results/m4.json

sMAPE and MASE are those of the competition: MASE is scaled by the error of the seasonal naive forecast (24 hours) on
the training part. CRPS is in the same unit. The archive is read from ../shared/archives/m4. AutoARIMA and AutoETS run
with `--beside`, if statsforecast is installed (`pip install statsforecast`).
"""

import argparse
import csv
import gzip
import json
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from environment import environment  # pyrefly: ignore

import recurra as rc
from recurra.compare.baselines.smoothing import smoothed_forecasts
from recurra.estimators.forecaster import LEVELS
from recurra.estimators.metrics import coverage, crps, naive, naive_error, smape

ARCHIVE = Path(__file__).resolve().parent.parent.parent / "shared" / "archives" / "m4"
RESULTS = Path(__file__).parent / "results"
HORIZON, DAY, WEEK = 48, 24, 168
SEEDS = (0, 1, 2)
PUBLISHED = {  # sMAPE, MASE: Makridakis, Spiliotis & Assimakopoulos 2020
    "Naive2": (18.383, 2.395),
    "ARIMA": (13.980, 0.943),
    "FFORMA (second place)": (11.506, 0.819),
    "ES-RNN (Smyl, first place)": (9.328, 0.893),
}


def series(part: str) -> list[np.ndarray]:
    with gzip.open(ARCHIVE / f"Hourly-{part}.csv.gz", "rt") as file:
        rows = list(csv.reader(file))[1:]
    return [np.array([float(value) for value in row[1:] if value]) for row in rows]


def split(part: str) -> tuple[list[np.ndarray], np.ndarray]:
    """The past of every series, and the 48 hours after it (n, 48)."""
    train = series("train")
    if part == "test":
        return train, np.stack([y[:HORIZON] for y in series("test")])
    return [y[:-HORIZON] for y in train], np.stack([y[-HORIZON:] for y in train])


def point_scores(pasts: list[np.ndarray], actual: np.ndarray, found: np.ndarray) -> dict[str, float]:
    units = np.array([naive_error(past, DAY) for past in pasts])
    return {"sMAPE": smape(actual, found), "MASE": float((np.abs(actual - found).mean(axis=1) / units).mean())}


def forecaster(pasts: list[np.ndarray], actual: np.ndarray, seed: int) -> dict[str, Any]:
    began, cpu = time.perf_counter(), time.process_time()
    model = rc.Forecaster(horizon=HORIZON, season=(DAY, WEEK), random_state=seed, verbose=True).fit(pasts)
    seconds = {"seconds": time.perf_counter() - began, "cpu seconds": time.process_time() - cpu}
    quantiles = model.predict_quantiles()
    units = np.array([naive_error(past, DAY) for past in pasts])[:, None]
    inside = {
        "in 80%": coverage(actual, quantiles[:, :, LEVELS.index(0.1)], quantiles[:, :, LEVELS.index(0.9)]),
        "in 95%": coverage(actual, quantiles[:, :, LEVELS.index(0.025)], quantiles[:, :, LEVELS.index(0.975)]),
        "CRPS": crps(actual / units, quantiles / units[:, :, None], LEVELS),
    }
    found = point_scores(pasts, actual, quantiles[:, :, LEVELS.index(0.5)])
    return found | inside | seconds | {"share": model.share_, "summary": model.summary()}


def plain(pasts: list[np.ndarray], actual: np.ndarray) -> dict[str, dict[str, float]]:
    methods = {
        "seasonal naive, a day": np.stack([naive(past, HORIZON, DAY) for past in pasts]),
        "seasonal naive, a week": np.stack([naive(past, HORIZON, WEEK) for past in pasts]),
        "exponential smoothing, a day": smoothed_forecasts(pasts, HORIZON, DAY),
    }
    return {name: point_scores(pasts, actual, found) for name, found in methods.items()}


def statsforecast(pasts: list[np.ndarray], actual: np.ndarray) -> dict[str, dict[str, float]]:
    """AutoETS and AutoARIMA of statsforecast, with a season of a day."""
    from statsforecast.models import AutoARIMA, AutoETS  # pyrefly: ignore

    found = {}
    for model in (AutoETS(season_length=DAY), AutoARIMA(season_length=DAY)):
        began = time.process_time()
        points = np.stack([model.forecast(past, HORIZON)["mean"] for past in pasts])
        name = f"statsforecast, {type(model).__name__}"
        found[name] = point_scores(pasts, actual, points) | {"cpu seconds": time.process_time() - began}
    return found


def run(part: str, seeds: int, beside: bool) -> None:
    pasts, actual = split(part)
    found: dict[str, Any] = {name: [scores] for name, scores in plain(pasts, actual).items()}
    if beside:
        found |= {name: [scores] for name, scores in statsforecast(pasts, actual).items()}
    found["rc.Forecaster"] = []
    for seed in SEEDS[:seeds]:
        found["rc.Forecaster"].append(forecaster(pasts, actual, seed))
        print(seed, found["rc.Forecaster"][-1], flush=True)
    path = RESULTS / "m4.json"
    content = json.loads(path.read_text()) if path.is_file() else {}
    about = {"date": datetime.now(UTC).date().isoformat(), **environment("numpy")}
    content[part] = about | {"found": found}
    path.write_text(json.dumps(content, indent=1) + "\n")


# ---------------------------------------------------------------------------------------------------- the report

MEASURES = {"sMAPE": 2, "MASE": 3, "CRPS": 3, "in 80%": 3, "in 95%": 3, "cpu seconds": 0}


def table(found: dict[str, Any], published: bool) -> list[str]:
    lines = ["| | " + " | ".join(MEASURES) + " |", "|---" * (1 + len(MEASURES)) + "|"]
    for name, (first, second) in PUBLISHED.items() if published else ():
        lines.append(f"| {name}, published | {first:.2f} | {second:.3f} |" + " |" * (len(MEASURES) - 2))
    for name, runs in found.items():
        cells = (_cell([run[m] for run in runs if m in run], digits) for m, digits in MEASURES.items())
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def _cell(values: list[float], digits: int) -> str:
    if not values:
        return ""
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def verdict(found: dict[str, Any]) -> str:
    """Which methods are better than the forecaster, in words."""
    ours = {m: statistics.mean(run[m] for run in found["rc.Forecaster"]) for m in ("sMAPE", "MASE")}
    others = {name: {"sMAPE": a, "MASE": b} for name, (a, b) in PUBLISHED.items()}
    others |= {name: runs[0] for name, runs in found.items() if name != "rc.Forecaster"}
    parts = []
    for measure, own in ours.items():
        better = [f"{name} ({scores[measure]:.3f})" for name, scores in others.items() if scores[measure] < own]
        parts.append(f"{measure}: " + (f"{', '.join(better)} is better." if better else "none of them is better."))
    return " ".join(parts)


def report() -> None:
    content = json.loads((RESULTS / "m4.json").read_text())
    about = content["test"]
    lines = [
        "# M4 Hourly",
        "",
        "414 series, 48 hours ahead. `rc.Forecaster(horizon=48, season=(24, 168))`, nothing else set. Settings of the",
        "library were chosen on the last 48 to 144 hours of the training part; the test part was scored again when",
        "forecasts changed, and no setting was chosen on it.",
        "",
        f"`python benchmarks/m4.py test --seeds {len(about['found']['rc.Forecaster'])}`, {about['date']};"
        f" recurra {about['recurra']}, torch {about['torch']},"
        f" numpy {about['numpy']}, Python {about['python']}, {about['processor']}, one thread.",
        "",
        "## Test part",
        "",
        *table(about["found"], published=True),
        "",
        verdict(about["found"]),
        "",
        about["found"]["rc.Forecaster"][0]["summary"],
        "",
    ]
    if "train" in content:
        lines += ["## Last 48 hours of the training part", "", *table(content["train"]["found"], published=False), ""]
    (RESULTS / "m4.md").write_text("\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "test", "report"])
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many seeds")
    parser.add_argument("--beside", action="store_true", help="also run statsforecast's AutoETS and AutoARIMA")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.what != "report":
        run(asked.what, asked.seeds, asked.beside)
    if asked.what != "train":
        report()


if __name__ == "__main__":
    main()
