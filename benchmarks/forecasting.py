"""rc.Forecaster on two public series, beside naive forecasts and a linear autoregression.

    python benchmarks/forecasting.py electricity --part valid   # to choose settings by
    python benchmarks/forecasting.py electricity --part test
    python benchmarks/forecasting.py sunspots
    python benchmarks/forecasting.py report                     # results/forecasting.md from results/forecasting.json

Electricity: ETTh1, the oil temperature (OT) by the hour, forecast every day of the part from all that came before, by
models fitted once: months 1-12 for the validation part (13-16), 1-16 for the test part (17-20). Sunspots: by the year;
models fitted on the years before an era forecast eight years from every year of the era.

All methods answer with the same quantiles. Naive forecasts take those of their own errors in the years learned from,
step by step; the autoregression, by least squares, its order by AIC, takes those of a normal distribution.
"""

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from environment import environment  # pyrefly: ignore

import recurra as rc
from recurra.compare.baselines.smoothing import smoothed_forecasts
from recurra.estimators.backtest import interval_levels
from recurra.estimators.forecaster import LEVELS
from recurra.estimators.metrics import coverage, crps, naive, naive_error, smape

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
RESULTS = Path(__file__).parent / "results"
SEEDS = (0, 1, 2)
DAY, MONTH = 24, 30 * 24
PARTS = {"valid": (12 * MONTH, 16 * MONTH), "test": (16 * MONTH, 20 * MONTH)}
ERAS = (109, 149, 189, 229, 269)  # years learned from; forty more are forecast

Method = Callable[[int], np.ndarray]  # origin -> quantiles (steps, Q)


# ---------------------------------------------------------------------------------------------------- the methods


def repeated(y: np.ndarray, learned: int, steps: int, season: int) -> Method:
    """The last season (or value) again, with the quantiles of its errors among the years learned from."""
    origins = range(season, learned - steps + 1)
    errors = np.stack([y[at : at + steps] - naive(y[:at], steps, season) for at in origins])
    around = np.quantile(errors, LEVELS, axis=0).T  # (steps, Q)
    around = around - around[:, LEVELS.index(0.5), None]  # the forecast itself is the median
    return lambda at: naive(y[:at], steps, season)[:, None] + around


def autoregression(y: np.ndarray, learned: int, steps: int, most: int) -> Method:
    """y_t = c + Σ a_k y_{t-k} + normal noise, iterated."""
    fits = [_least_squares(y[:learned], order, most) for order in range(1, most + 1)]
    _, weights, deviation = min(fits, key=lambda fit: fit[0])
    order, impulse = len(weights) - 1, [1.0]
    for _ in range(steps - 1):
        impulse.append(sum(a * b for a, b in zip(weights[1:], reversed(impulse), strict=False)))
    spread = deviation * np.sqrt(np.cumsum(np.square(impulse)))
    scores = np.array([NormalDist().inv_cdf(level) for level in LEVELS])

    def forecast(at: int) -> np.ndarray:
        past = list(y[at - order : at])
        for _ in range(steps):
            past.append(weights[0] + float(np.dot(weights[1:], past[: -order - 1 : -1])))
        return np.array(past[order:])[:, None] + spread[:, None] * scores

    return forecast


def _least_squares(y: np.ndarray, order: int, most: int) -> tuple[float, np.ndarray, float]:
    """AIC over the same targets for every order; (c, a_1, …, a_order); the deviation of the noise."""
    rows = np.column_stack([np.ones(len(y) - most), *(y[most - k : len(y) - k] for k in range(1, order + 1))])
    weights, *_ = np.linalg.lstsq(rows, y[most:], rcond=None)
    variance = float(np.mean((y[most:] - rows @ weights) ** 2))
    return len(rows) * np.log(variance) + 2 * (order + 1), weights, float(np.sqrt(variance))


def base_part(model: rc.Forecaster, y: np.ndarray, steps: int) -> Method:
    """The forecaster without its network: what training started from."""
    plain = copy.deepcopy(model)
    plain.network_.share.fill_(0)
    plain.shifts_ = np.zeros_like(plain.shifts_)
    return network(plain, y, steps)


def smoothing(y: np.ndarray, learned: int, steps: int, season: int) -> Method:
    """Exponential smoothing (ETS, additive, damped), its errors from 100 earlier origins."""
    origins = np.linspace(learned // 2, learned - steps, 100).astype(int)
    found = smoothed_forecasts([y[:at] for at in origins], steps, season)
    errors = np.stack([y[at : at + steps] for at in origins]) - found
    around = np.quantile(errors, LEVELS, axis=0).T
    around = around - around[:, LEVELS.index(0.5), None]
    return lambda at: smoothed_forecasts([y[:at]], steps, season)[0][:, None] + around


def network(model: rc.Forecaster, y: np.ndarray, steps: int) -> Method:
    return lambda at: model.predict_quantiles(steps, data=y[:at])


# ---------------------------------------------------------------------------------------------------- the measures


def measured(method: Method, y: np.ndarray, origins: range, steps: int, unit: float) -> dict[str, float]:
    quantiles = np.stack([method(at) for at in origins])
    actual = np.stack([y[at : at + steps] for at in origins])
    median = quantiles[:, :, LEVELS.index(0.5)]
    error = float(np.abs(actual - median).mean())
    found = {
        "MAE": error,
        "MASE": error / unit,
        "sMAPE": smape(actual, median),
        "CRPS": crps(actual, quantiles, LEVELS),
    }
    for level in (0.8, 0.95):
        low, high = (min(range(len(LEVELS)), key=lambda k: abs(LEVELS[k] - end)) for end in interval_levels(level))
        found[f"in {level:.0%}"] = coverage(actual, quantiles[:, :, low], quantiles[:, :, high])
    return found


def table(y: np.ndarray, learned: int, origins: range, steps: int, season: int, most: int) -> dict[str, Any]:
    """Every method's measures; the forecaster's seed by seed."""
    unit = naive_error(y[:learned], season)
    plain = {
        "naive": repeated(y, learned, steps, 1),
        "seasonal naive": repeated(y, learned, steps, season),
        "autoregression": autoregression(y, learned, steps, most),
        "exponential smoothing": smoothing(y, learned, steps, season),
    }
    rows: dict[str, Any] = {name: [measured(method, y, origins, steps, unit)] for name, method in plain.items()}
    for seed in SEEDS:
        began = time.process_time()
        model = rc.Forecaster(horizon=steps, season=season, random_state=seed).fit(y[:learned])
        seconds = time.process_time() - began
        if not seed:
            rows["forecaster, its base"] = [measured(base_part(model, y, steps), y, origins, steps, unit)]
        scores = measured(network(model, y, steps), y, origins, steps, unit)
        about = {"seconds": round(seconds, 1), "share": model.share_}
        rows.setdefault("forecaster", []).append(scores | about)
        print(seed, rows["forecaster"][-1], flush=True)
    return rows


# ---------------------------------------------------------------------------------------------------- the series


def electricity(part: str) -> dict[str, Any]:
    y = np.genfromtxt(DATA / "ett" / "ETTh1.csv", delimiter=",", skip_header=1, usecols=[7])
    learned, stop = PARTS[part]
    return {
        str(steps): table(y[:stop], learned, range(learned, stop - steps + 1, DAY), steps, DAY, 4 * DAY)
        for steps in (24, 96)
    }


def sunspots() -> dict[str, Any]:
    numbers = np.loadtxt(DATA / "sunspots" / "sunspots.csv", delimiter=",", skiprows=1)
    steps, found = 8, {}
    for learned in ERAS:
        y = numbers[: learned + 40, 1]
        origins = range(learned, len(y) - steps + 1)
        found[f"{numbers[learned, 0]:.0f}-{numbers[len(y) - 1, 0]:.0f}"] = table(y, learned, origins, steps, 11, 22)
    return found


# ---------------------------------------------------------------------------------------------------- the file


def kept(key: str, value: Any) -> None:
    """Put into results/forecasting.json beside what is there."""
    path = RESULTS / "forecasting.json"
    content = json.loads(path.read_text()) if path.is_file() else {}
    about = {"date": datetime.now(UTC).date().isoformat(), **environment("numpy")}
    content[key] = about | {"found": value}
    path.write_text(json.dumps(content, indent=1) + "\n")


def rows_of(found: dict[str, Any]) -> list[str]:
    measures = ("MAE", "MASE", "sMAPE", "CRPS", "in 80%", "in 95%")
    lines = ["| | " + " | ".join(measures) + " |", "|---" * (1 + len(measures)) + "|"]
    for name, runs in found.items():
        lines.append(f"| {name} | " + " | ".join(_cell([run[m] for run in runs], m) for m in measures) + " |")
    best = {m: min(found, key=lambda name: statistics.mean(run[m] for run in found[name])) for m in ("MAE", "CRPS")}
    return [*lines, "", f"Least MAE: {best['MAE']}. Least CRPS: {best['CRPS']}."]


def _cell(values: list[float], measure: str) -> str:
    factor, places = (100, 1) if measure.startswith("in ") else (1, 1 if measure == "sMAPE" else 3)
    mean = f"{factor * statistics.mean(values):.{places}f}"
    return mean if len(values) == 1 else f"{mean} ± {factor * statistics.stdev(values):.{places}f}"


def report() -> None:
    content = json.loads((RESULTS / "forecasting.json").read_text())
    about = content["electricity test"]
    lines = [
        "# Forecasting",
        "",
        "`rc.Forecaster(horizon=…, season=…)` as it comes otherwise, mean ± standard deviation over three seeds,",
        "against naive forecasts, a linear autoregression (least squares, order by AIC) and exponential smoothing",
        "(additive, damped trend), all with quantiles. `in 80%` is the share of values inside the 80 % interval,",
        "in %. The base is the forecaster without its network. MASE is in units of the seasonal naive forecast's error",
        "on the past.",
        "",
        f"`python benchmarks/forecasting.py electricity --part test`, `… sunspots`, {about['date']};"
        f" recurra {about['recurra']}, torch {about['torch']}, numpy {about['numpy']},"
        f" Python {about['python']}, one thread.",
        "",
    ]
    for part, months in (("test", "17-20, after sixteen to learn from"), ("valid", "13-16, after twelve")):
        for steps, found in content.get(f"electricity {part}", {"found": {}})["found"].items():
            seconds = statistics.mean(run["seconds"] for run in found["forecaster"])
            lines += [f"## ETTh1, oil temperature, {steps} hours ahead from every day of months {months}", ""]
            lines += ["Settings were chosen on this part.", ""] if part == "valid" else []
            lines += [*rows_of(found), "", f"A fit took {seconds:.0f} s.", ""]
    eras = content["sunspots"]["found"]
    lines += ["## Sunspots by the year, eight years ahead from every year of an era", ""]
    lines += ["Fitted on all years before the era. Settings were chosen on the eras up to 1928.", ""]
    for era, found in eras.items():
        lines += [f"### {era}", "", *rows_of(found), ""]
    lines += ["### All eras together", "", *rows_of(_together(eras)), ""]
    (RESULTS / "forecasting.md").write_text("\n".join(lines))


def _together(eras: dict[str, Any]) -> dict[str, Any]:
    """Means over eras, method by method and seed by seed; every era has as many origins."""
    tables = list(eras.values())
    return {
        name: [
            {m: statistics.mean(table[name][k][m] for table in tables) for m in run}
            for k, run in enumerate(tables[0][name])
        ]
        for name in tables[0]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["electricity", "sunspots", "report"])
    parser.add_argument("--part", choices=list(PARTS), default="test")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.what == "electricity":
        kept(f"electricity {asked.part}", electricity(asked.part))
    if asked.what == "sunspots":
        kept("sunspots", sunspots())
    if asked.what == "report":
        report()


if __name__ == "__main__":
    main()
