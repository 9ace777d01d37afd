"""Forecast a day of hourly electricity load with intervals, and compare with naive forecasts.

    python examples/forecast_electricity.py                          # on four months of a made-up town
    python examples/forecast_electricity.py ETTh1.csv --column OT    # on a column of your file, one row an hour

The last two weeks are held out. The model is fitted once on the rest, then forecasts each of the fourteen days from
what came before it. Its intervals are calibrated on stretches of the training data.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow.csv

import recurra as rc

DAY, WEEK = 24, 7 * 24


def town(days: int = 120, seed: int = 0) -> np.ndarray:
    """Hourly load in MW: people rise, work, cook and sleep; less on weekends; weather that changes over days."""
    draw, hour = np.random.default_rng(seed), np.arange(days * DAY)
    of_day, weekday = hour % DAY, hour // DAY % 7
    daily = 8 * np.exp(-((of_day - 8) ** 2) / 8) + 14 * np.exp(-((of_day - 19) ** 2) / 10)
    weather = np.convolve(draw.normal(size=len(hour) + 72), np.exp(-np.arange(72) / 24), "valid")[: len(hour)]
    return 40 + daily * np.where(weekday < 5, 1.0, 0.6) + 0.8 * weather + draw.normal(0, 0.8, len(hour))


def column(path: Path, name: str) -> np.ndarray:
    return pyarrow.csv.read_csv(path)[name].to_numpy().astype(float)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--column", default="OT")
    parser.add_argument("--cell", default="gru")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--plot", type=Path, help="an HTML file for the picture of the forecast")
    chosen = parser.parse_args()
    load = column(chosen.file, chosen.column) if chosen.file else town()

    train = load[: -14 * DAY]
    model = rc.Forecaster(chosen.cell, horizon=DAY, season=DAY, context=WEEK, epochs=chosen.epochs, random_state=0)
    model.fit(train)
    found = model.backtest(load, windows=14)

    print(f"{'':16}{'MAE':>8}{'MASE':>8}{'CRPS':>8}")
    for name, scores in found.scores.items():
        print(f"{name:16}" + "".join(f"{scores.get(key, float('nan')):8.3f}" for key in ("MAE", "MASE", "CRPS")))
    held = found.coverage_by_step()[0.8].mean()
    print(f"The 80 % interval held {held:.0%} of {found.actual.size} values.")

    tomorrow, (lower, upper) = model.predict(data=load), model.predict_interval(level=0.8, data=load)
    for hour in range(0, DAY, 6):
        print(f"in {hour + 1:2} h: {tomorrow[hour]:6.2f}  ({lower[hour]:.2f} to {upper[hour]:.2f})")
    if chosen.plot:
        model.plot(data=load).write_html(chosen.plot)


if __name__ == "__main__":
    main()
