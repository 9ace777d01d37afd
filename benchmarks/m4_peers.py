"""M4 Hourly by others on the same machine, with intervals: naive forecasts, autoregression, smoothing, statsforecast's
AutoETS and AutoARIMA, neuralforecast's LSTM.

    python benchmarks/m4_peers.py run METHOD …     # names below; without any, those that need no further package
    python benchmarks/m4_peers.py report           # results/m4_peers.md from results/m4_peers.json

Smoothing and AutoETS take seconds a series, AutoARIMA most of a minute: they forecast every 18th series and every 9th,
AutoARIMA as far as it got (every 54th first). Further tables compare all methods on these. `run` can be stopped: series
that are done are not repeated.
statsforecast and neuralforecast are not among recurra's extras: `pip install statsforecast neuralforecast`.

All answer with the same quantiles. Naive forecasts and smoothing take those of their own errors at earlier origins of
the series; the others have a distribution of their own.
"""

import argparse
import json
import logging
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from environment import environment  # pyrefly: ignore
from forecasting import autoregression, repeated, smoothing  # pyrefly: ignore
from m4 import DAY, HORIZON, WEEK, split  # pyrefly: ignore

import recurra as rc
from recurra.estimators.forecaster import LEVELS
from recurra.estimators.metrics import coverage, crps, naive_error, smape
from recurra.train import show_progress

PATH = Path(__file__).parent / "results" / "m4_peers.json"
EVERY = {"exponential smoothing, a day": 18, "statsforecast, AutoETS": 18, "statsforecast, AutoARIMA": 9}
MEASURES = {"sMAPE": 2, "MASE": 3, "CRPS": 3, "in 80%": 3, "in 95%": 3, "cpu seconds": 2}
OURS = "rc.Forecaster"
SERIES = 414
STEPS = 400  # of training the LSTM
Quantiles = Iterator[tuple[int, np.ndarray, float]]  # number of the series, (48, Q), seconds


# ---------------------------------------------------------------------------------------------------- the methods


def one_by_one(forecast: Callable[[np.ndarray], np.ndarray]) -> Callable[[list[np.ndarray], list[int]], Quantiles]:
    """A method for all series from one for a single series."""

    def every(pasts: list[np.ndarray], numbers: list[int]) -> Quantiles:
        for k in numbers:
            began = time.process_time()
            yield k, forecast(pasts[k]), time.process_time() - began

    return every


def stats(name: str) -> Callable[[np.ndarray], np.ndarray]:
    """A model of statsforecast with a season of a day."""

    def forecast(past: np.ndarray) -> np.ndarray:
        import statsforecast.models as models  # pyrefly: ignore

        widths = [round(100 * (1 - 2 * level), 6) for level in LEVELS if level < 0.5]
        found = getattr(models, name)(season_length=DAY).forecast(past, HORIZON, level=widths)
        low = [found[f"lo-{width:g}"] if f"lo-{width:g}" in found else found[f"lo-{width}"] for width in widths]
        high = [found[f"hi-{width:g}"] if f"hi-{width:g}" in found else found[f"hi-{width}"] for width in widths]
        return np.stack([*low, found["mean"], *reversed(high)], axis=1)

    return forecast


def lstm(pasts: list[np.ndarray], numbers: list[int]) -> Quantiles:
    """neuralforecast's LSTM, one for all series: two weeks as input, the quantile loss, 400 of 1,000 steps."""
    import pandas as pd
    from neuralforecast import NeuralForecast  # pyrefly: ignore
    from neuralforecast.losses.pytorch import MQLoss  # pyrefly: ignore
    from neuralforecast.models import LSTM  # pyrefly: ignore

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    began = time.process_time()
    tables = [pd.DataFrame({"unique_id": k, "ds": range(len(y)), "y": y}) for k, y in enumerate(pasts)]
    loss = MQLoss(quantiles=list(LEVELS))
    quiet = {"enable_progress_bar": False, "logger": False, "accelerator": "cpu"}
    network = LSTM(h=HORIZON, input_size=2 * WEEK, loss=loss, max_steps=STEPS, random_seed=0, **quiet)
    model = NeuralForecast([network], freq=1)
    model.fit(pd.concat(tables))
    found = model.predict()
    columns = [name for name in found.columns if name.startswith("LSTM")]
    share = (time.process_time() - began) / len(pasts)
    for k, table in found.groupby("unique_id"):
        yield int(k), np.sort(table[columns].to_numpy(), axis=1), share


def ours(pasts: list[np.ndarray], numbers: list[int]) -> Quantiles:
    began = time.process_time()
    found = rc.Forecaster(horizon=HORIZON, season=(DAY, WEEK), random_state=0).fit(pasts).predict_quantiles()
    share = (time.process_time() - began) / len(pasts)
    yield from ((k, found[k], share) for k in range(len(pasts)))


METHODS: dict[str, Callable[[list[np.ndarray], list[int]], Quantiles]] = {
    "seasonal naive, a day": one_by_one(lambda y: repeated(y, len(y), HORIZON, DAY)(len(y))),
    "seasonal naive, a week": one_by_one(lambda y: repeated(y, len(y), HORIZON, WEEK)(len(y))),
    "autoregression": one_by_one(lambda y: autoregression(y, len(y), HORIZON, 2 * DAY)(len(y))),
    "exponential smoothing, a day": one_by_one(lambda y: smoothing(y, len(y), HORIZON, DAY)(len(y))),
    OURS: ours,
    "neuralforecast, LSTM": lstm,
    "statsforecast, AutoETS": one_by_one(stats("AutoETS")),
    "statsforecast, AutoARIMA": one_by_one(stats("AutoARIMA")),
}
PLAIN = tuple(METHODS)[:5]
GLOBAL = (OURS, "neuralforecast, LSTM")  # one model for all series


# ---------------------------------------------------------------------------------------------------- the run


def scores(past: np.ndarray, actual: np.ndarray, found: np.ndarray, seconds: float) -> dict[str, float]:
    unit, median = naive_error(past, DAY), found[:, LEVELS.index(0.5)]
    inside = {
        f"in {share}%": coverage(actual, found[:, LEVELS.index(low)], found[:, LEVELS.index(high)])
        for share, low, high in ((80, 0.1, 0.9), (95, 0.025, 0.975))
    }
    point = {"sMAPE": smape(actual, median), "MASE": float(np.abs(actual - median).mean()) / unit}
    measured = point | {"CRPS": crps(actual, found, LEVELS) / unit} | inside | {"cpu seconds": seconds}
    return {name: round(float(value), 5) for name, value in measured.items()}


def run(names: list[str]) -> None:
    pasts, actual = split("test")
    content = json.loads(PATH.read_text()) if PATH.is_file() else {"found": {}}
    for name in names:
        done = content["found"].setdefault(name, {})
        left = [k for k in range(0, len(pasts), EVERY.get(name, 1)) if str(k) not in done]
        for k, found, seconds in show_progress(METHODS[name](pasts, left) if left else (), name, len(left)):
            done[str(k)] = scores(pasts[k], actual[k], found, seconds)
            if name not in GLOBAL:
                write(content)
        write(content)
        print(name, {m: statistics.mean(one[m] for one in done.values()) for m in MEASURES}, flush=True)


def write(content: dict[str, Any]) -> None:
    about = {"date": datetime.now(UTC).date().isoformat(), **environment("numpy", "statsforecast", "neuralforecast")}
    draft = PATH.with_suffix(".draft")
    draft.write_text(json.dumps({"about": about, "found": content["found"]}) + "\n")
    draft.replace(PATH)


# ---------------------------------------------------------------------------------------------------- the report


def table(found: dict[str, dict[str, dict[str, float]]], numbers: list[str]) -> list[str]:
    """The methods that forecast all of these series."""
    found = {name: one for name, one in found.items() if all(k in one for k in numbers)}
    lines = ["| | " + " | ".join(MEASURES) + " |", "|---" * (1 + len(MEASURES)) + "|"]
    for name in METHODS:
        if name in found:
            means = (statistics.mean(found[name][k][m] for k in numbers) for m in MEASURES)
            cells = (f"{mean:.{digits}f}" for mean, digits in zip(means, MEASURES.values(), strict=True))
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return [*lines, "", _better(found, numbers)]


def _better(found: dict[str, dict[str, dict[str, float]]], numbers: list[str]) -> str:
    """Who has a smaller error than the forecaster, in words."""
    parts = []
    for measure in ("sMAPE", "MASE", "CRPS"):
        means = {name: statistics.mean(one[k][measure] for k in numbers) for name, one in found.items()}
        better = [f"{name} ({mean:.3f})" for name, mean in means.items() if mean < means[OURS]]
        parts.append(f"{measure}: {', '.join(better) or 'none'} better than {OURS}.")
    return " ".join(parts)


def _difference(found: dict[str, dict[str, dict[str, float]]], name: str, numbers: list[str]) -> list[str]:
    """How much larger the MASE of a slow method is, with the standard error over series."""
    gaps = [found[name][k]["MASE"] - found[OURS][k]["MASE"] for k in numbers]
    error = statistics.stdev(gaps) / len(gaps) ** 0.5
    return [f"MASE of {name} minus that of {OURS}: {statistics.mean(gaps):.3f} ± {error:.3f} (standard error)."]


def _about_lstm(found: dict[str, Any]) -> str:
    if GLOBAL[1] in found:
        return f"The LSTM trains {STEPS} steps\nfor time; as it comes it has 1,000."
    return "neuralforecast's LSTM\nhas no row: on a machine that others used its training did not end in ten minutes."


def report() -> None:
    content = json.loads(PATH.read_text())
    about, found = content["about"], content["found"]
    packages = ", ".join(f"{name} {version}" for name, version in about.items() if version and name not in ("date",))
    lines = [
        "# M4 Hourly beside others",
        "",
        "48 hours ahead, all on one machine with one thread. MASE and CRPS are in units of the error of the seasonal",
        "naive forecast (24 hours) on the past; `in 80%` is the share of values in the 80 % interval. Seconds of the",
        "processor are those of one series; a model of all series counts a part for each. " + _about_lstm(found),
        "",
        f"`python benchmarks/m4_peers.py run …`, {about['date']}; {packages}.",
        "",
        "## All 414 series",
        "",
        *table(found, [str(k) for k in range(SERIES)]),
        "",
    ]
    shown: list[set[str]] = []
    for name in (name for name in EVERY if name in found):
        numbers = sorted(found[name], key=int)
        if set(numbers) not in shown:
            which = ", ".join(numbers)
            lines += [f"## {len(numbers)} series", "", *table(found, numbers), "", *_difference(found, name, numbers)]
            lines += ["", f"Series: {which}.", ""]
            shown.append(set(numbers))
    PATH.with_suffix(".md").write_text("\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "report"])
    parser.add_argument("methods", nargs="*", help=", ".join(METHODS))
    asked = parser.parse_args()
    if unknown := set(asked.methods) - set(METHODS):
        parser.error(f"unknown: {', '.join(unknown)}; known are {', '.join(METHODS)}")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if asked.what == "run":
        run(asked.methods or list(PLAIN))
    else:
        report()


if __name__ == "__main__":
    main()
