"""Published results of reservoirs, time-delay and NARX networks, measured again.

    python -m benchmarks.reservoir                    everything, some minutes on two cores
    python -m benchmarks.reservoir mackey_glass ...   some of it

Each part writes its numbers to results/reservoir.json; results/reservoir.md is the table of them all, results/*.svg the
curves. The spoken digits are read from ../shared/data beside the repository and left out where they are absent.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import recurra as rc
from benchmarks.environment import environment
from benchmarks.spoken_digits import DIGITS, digits
from benchmarks.vowels import vowels
from recurra.data.tasks import make
from recurra.data.tasks.mackey_glass_solver import mackey_glass_series
from recurra.dynamics import recalled
from recurra.reservoir import EchoStateWarning, Weights

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"

Numbers = dict[str, Any]

# ---------------------------------------------------------------------------------------------------- Mackey-Glass


def mackey_glass_error(seed: int, trials: int = 50) -> float:
    """log10 NRMSE_84: 1,000 units with feedback learn 3,000 steps, then run 84 steps alone from `trials` new pasts."""
    random = torch.Generator().manual_seed(seed)
    past = 0.9 + 0.6 * torch.rand(trials + 1, generator=random, dtype=torch.float64)
    series = np.tanh(mackey_glass_series(past, 4084, 17.0).numpy()[1000:] - 1)  # the range of tanh, as in the paper
    network = rc.EchoStateNetwork(
        units=1000,
        spectral_radius=0.8,
        density=0.01,
        feedback=1.0,
        bias=0.5,
        noise=1e-10,
        ridge=0.0,
        washout=1000,
        random_state=seed,
    ).fit(None, series[:3000, 0])
    heard, truth = series[:2000, 1:], series[2083, 1:]
    found = network.generate(84, warmup=list(heard.T))[:, -1, 0]
    return float(np.log10(np.sqrt(np.mean((found - truth) ** 2) / series.var())))


def mackey_glass() -> Numbers:
    errors = [mackey_glass_error(seed) for seed in range(5)]
    return {
        "what": "Mackey-Glass τ=17, N=1000, 3,000 steps, 50 trials, 5 seeds: median log10 NRMSE_84",
        "found": round(float(np.median(errors)), 2),
        "wanted": "≤ -4.2 (Jaeger & Haas 2004: -4.2)",
        "each": [round(e, 2) for e in errors],
    }


# ---------------------------------------------------------------------------------------------------- curves

RADII = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.4)


def memory() -> Numbers:
    """Memory capacity of 100 units against the spectral radius, for weak and strong input."""
    signal = np.random.default_rng(0).uniform(-1, 1, 6000)
    curves = {}
    for scale in (0.01, 0.1, 1.0):
        curves[f"input ±{scale:g}"] = [_memory_of(radius, scale, signal) for radius in RADII]
    draw_curves(
        "reservoir_memory.svg", "Memory capacity, 100 units", "spectral radius", "Σ corr²", RADII, curves, most=100.0
    )
    best = max((max(curve), name) for name, curve in curves.items())
    return {
        "what": "Memory capacity of 100 units against the spectral radius (reservoir_memory.svg): the largest",
        "found": f"{best[0]:.1f} with {best[1]}",
        "wanted": "at most 100, the number of units (Jaeger 2001)",
        "radii": RADII,
        "curves": curves,
    }


def _memory_of(radius: float, scale: float, signal: np.ndarray) -> float:
    totals = []
    for seed in range(3):
        states = reservoir_states(radius, signal[:, None], scale, seed)
        found = recalled(torch.from_numpy(states), torch.from_numpy(signal), delays=200, washout=500)
        totals.append(found.total)
    return round(float(np.mean(totals)), 2)


def reservoir_states(radius: float, inputs: np.ndarray, scale: float, seed: int, units: int = 100) -> np.ndarray:
    """The states (T, units) of a reservoir without a readout."""
    from recurra.reservoir.core import LeakyReservoir
    from recurra.reservoir.matrices import draw

    random = np.random.default_rng(seed)
    weights = draw(
        units,
        inputs.shape[1],
        0,
        radius=radius,
        density=0.1,
        input_scaling=scale,
        feedback=0.0,
        bias=0.0,
        random=random,
    )
    reservoir = LeakyReservoir(weights, leak=1.0, noise=0.0)
    return np.ascontiguousarray(reservoir.run(inputs[:, None], reservoir.initial(1))[0][:, 0])


def narma() -> Numbers:
    """NRMSE on NARMA-10 against the spectral radius, 200 units."""
    sequence = make("narma10", length=6000).sequences(1, seed=0)
    u, y = (part[0].double().numpy() for part in (sequence.inputs, sequence.targets))
    curves = {}
    for scale in (0.05, 0.2, 1.0):
        curves[f"input scaling {scale:g}"] = [_narma_of(radius, scale, u, y) for radius in RADII]
    draw_curves("reservoir_narma.svg", "NARMA-10, 200 units", "spectral radius", "NRMSE", RADII, curves, most=1.0)
    best = min((min(curve), name) for name, curve in curves.items())
    return {
        "what": "NARMA-10, 200 units, against the spectral radius (reservoir_narma.svg): the smallest NRMSE",
        "found": f"{best[0]:.3f} with {best[1]}",
        "wanted": "a minimum below radius 1; 1 is the mean",
        "radii": RADII,
        "curves": curves,
    }


def _narma_of(radius: float, scale: float, u: np.ndarray, y: np.ndarray) -> float:
    errors = []
    for seed in range(3):
        network = rc.EchoStateNetwork(
            200, radius, input_scaling=scale, bias=0.2, ridge=1e-10, washout=200, random_state=seed
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EchoStateWarning)  # the sweep goes past the edge on purpose
            network.fit(u[:4000], y[:4000])
        errors.append(np.sqrt(1 - network.score(u[3800:], y[3800:])))
    return round(float(np.mean(errors)), 4)


def draw_curves(
    file: str, title: str, x_name: str, y_name: str, x: Sequence[float], curves: dict[str, list[float]], most: float
) -> None:
    """A small picture: lines with their names, two axes with their numbers; values above `most` are cut."""
    width, height, left, top, right, bottom = 640, 400, 60, 40, 170, 50
    highest = min(most, 1.05 * max(max(curve) for curve in curves.values()))
    across = lambda v: left + (v - x[0]) / (x[-1] - x[0]) * (width - left - right)  # noqa: E731
    up = lambda v: height - bottom - min(v, highest) / highest * (height - top - bottom)  # noqa: E731
    lines = [f'<text x="{left}" y="24" font-size="16">{title}</text>']
    for value in np.linspace(0, highest, 6):
        lines.append(
            f'<line x1="{left}" x2="{width - right}" y1="{up(value):.1f}" y2="{up(value):.1f}" stroke="#ddd"/>'
        )
        lines.append(f'<text x="{left - 6}" y="{up(value) + 4:.1f}" text-anchor="end">{value:.3g}</text>')
    lines += [
        f'<text x="{across(value):.1f}" y="{height - 30}" text-anchor="middle">{value:.2f}</text>'
        for value in np.linspace(x[0], x[-1], 6)
    ]
    middle = (left + width - right) / 2
    lines.append(f'<text x="{middle}" y="{height - 10}" text-anchor="middle">{x_name}</text>')
    lines.append(f'<text x="14" y="{height / 2}" transform="rotate(-90 14 {height / 2})">{y_name}</text>')
    for (name, curve), colour in zip(curves.items(), ("#1b6ca8", "#d1495b", "#2e8b57", "#8a5a00"), strict=False):
        points = " ".join(f"{across(a):.1f},{up(b):.1f}" for a, b in zip(x, curve, strict=True))
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        place = top + 20 * list(curves).index(name)
        lines.append(f'<text x="{width - right + 10}" y="{place}" fill="{colour}">{name}</text>')
    font = 'font-family="sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {font}>'
    background = f'<rect width="{width}" height="{height}" fill="white"/>'
    (RESULTS / file).write_text("\n".join([head, background, *lines, "</svg>\n"]))


# ---------------------------------------------------------------------------------------------------- long lags


def gradient_norms(model: Callable[[Tensor], Tensor], steps: int, outputs: int) -> Tensor:
    """|∂y_T/∂x_{T-n}| for n = 0, 1, …, in the linear range."""
    x = torch.full((steps, 1, 1), 1e-7, dtype=torch.float64, requires_grad=True)
    last = model(x)[-1, 0]
    rows = [torch.autograd.grad(last[k], x, retain_graph=True)[0].flatten() for k in range(outputs)]
    return torch.stack(rows).norm(dim=0).flip(0)


def networks(delay: int, rate: float = 0.8) -> list[Callable[[Tensor], Tensor]]:
    """A NARX network and a network with delayed states, their one delay and their recurrent matrix the same."""
    torch.manual_seed(0)
    W = rate * torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64))[0]
    narx = rc.NARX(1, 8, input_delays=(0,), output_delays=(delay,), output="tanh").double()
    delayed = rc.DelayRNN(1, 8, delays=(delay,)).double()
    with torch.no_grad():
        narx.cell.a.W.copy_(W)
        delayed.cell_list[0].get_parameter("a.W").copy_(W)
    return [lambda x: narx(x)[0], lambda x: delayed(x)[0]]


def decay(delay: int, steps: int = 121) -> tuple[float, float]:
    """How much of the gradient is left a step, measured over 120."""
    found = [gradient_norms(model, steps, 8)[::delay] for model in networks(delay)]
    rates = [float((norms[-1] / norms[0]) ** (1 / (delay * (len(norms) - 1)))) for norms in found]
    return rates[0], rates[1]


def latch_gradient(delay: int, lag: int = 60) -> tuple[float, float]:
    """On the latch task: how much of the loss's gradient reaches the inputs that matter, of what reaches the last one.

    For a NARX network and a network with delayed states, |W| = 0.8; with delay 1 they are the plain network.
    """
    batch = make("latch", length=lag + 1).draw(64, torch.Generator().manual_seed(0))
    shares = []
    for model in networks(delay):
        x = batch.inputs.double().requires_grad_()
        loss = nn.functional.cross_entropy(model(x)[-1, :, :2], batch.targets)
        (gradient,) = torch.autograd.grad(loss, x)
        norms = gradient.norm(dim=(1, 2))
        shares.append(float(norms[:3].max() / norms[-1]))
    return shares[0], shares[1]


def latch() -> Numbers:
    delays = (1, 2, 4, 6, 10)
    rates, shares = {k: decay(k) for k in delays}, {k: latch_gradient(k) for k in delays}
    worst = max(abs(found / 0.8 ** (1 / k) - 1) for k, pair in rates.items() for found in pair)
    left = ", ".join(f"k={k}: {share[0]:.0e}" for k, share in shares.items())
    return {
        "what": "Delay k, W of norm 0.8: deviation from 0.8^(1/k) a step; NARX gradient left at lag 60 of the latch",
        "found": f"{worst:.0e}; {left}",
        "wanted": "λ^{n/k} (Lin et al. 1996); k = 1 is the plain network",
        "decay a step, NARX and delayed states": {str(k): [round(r, 6) for r in pair] for k, pair in rates.items()},
        "gradient left at lag 60, NARX and delayed states": {str(k): pair for k, pair in shares.items()},
    }


# ---------------------------------------------------------------------------------------------------- speed


def speed(steps: int = 10_000, units: int = 1000, rounds: int = 3) -> Numbers:
    """The same matrices, series and ridge in recurra and in reservoirpy, one after the other, several times."""
    from reservoirpy.nodes import Reservoir, Ridge

    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (steps, 1))
    y = np.roll(X, 5, axis=0)  # what was heard five steps ago
    own = rc.reservoir.draw(
        units, 1, 0, radius=0.9, density=0.1, input_scaling=1.0, feedback=0.0, bias=0.1, random=np.random.default_rng(1)
    )
    times: dict[str, list[float]] = {"recurra": [], "reservoirpy": []}
    answers: dict[str, np.ndarray] = {}

    def ours(weights: Weights) -> np.ndarray:
        network = rc.EchoStateNetwork(leak=0.3, weights=weights, washout=100, ridge=1e-4, direct=False, intercept=False)
        return network.fit(X, y).predict(X)

    def theirs(weights: Weights) -> np.ndarray:
        reservoir = Reservoir(W=weights.W, Win=weights.U, bias=weights.b, lr=0.3)
        readout = Ridge(ridge=1e-4, fit_bias=False)
        readout.fit(reservoir.run(X), y, warmup=100)
        reservoir.reset()
        return np.asarray(readout.run(reservoir.run(X)))

    for _ in range(rounds):
        for name, run in (("recurra", ours), ("reservoirpy", theirs)):
            started = time.perf_counter()
            answers[name] = run(own)
            times[name].append(time.perf_counter() - started)
    best = {name: min(values) for name, values in times.items()}
    apart = float(np.abs(answers["recurra"] - answers["reservoirpy"])[100:].max())
    return {
        "what": f"N={units}, {steps:,} steps, density 0.1, fit and predict: times faster than reservoirpy",
        "found": round(best["reservoirpy"] / best["recurra"], 2),
        "wanted": "> 1",
        "largest difference of the predictions": f"{apart:.1e}",
        "seconds": {name: [round(v, 2) for v in values] for name, values in times.items()},
    }


# ---------------------------------------------------------------------------------------------------- the table

PARTS: dict[str, Callable[[], Numbers]] = {
    "mackey_glass": mackey_glass,
    "memory": memory,
    "narma": narma,
    "vowels": vowels,
    "digits": digits,
    "latch": latch,
    "speed": speed,
}


def main(names: list[str]) -> None:
    """Measure the named parts, all if none is named; write the table of what has ever been measured."""
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / "reservoir.json"
    kept = json.loads(file.read_text()) if file.exists() else {}
    for name in names or list(PARTS):
        if name == "digits" and not DIGITS.exists():
            print("digits: left out, the recordings are not in ../shared/data")
            continue
        started = time.perf_counter()
        kept[name] = PARTS[name]() | {"wall seconds": round(time.perf_counter() - started, 1)}
        kept[name]["environment"] = environment("reservoirpy")
        print(name, json.dumps(kept[name], ensure_ascii=False), flush=True)
        file.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    (RESULTS / "reservoir.md").write_text(table(kept))


def table(kept: dict[str, Numbers]) -> str:
    columns = ("what", "found", "wanted", "wall seconds")
    shown = {n: k | {"found": f"{k['found']} of {k['each']}" if "each" in k else k["found"]} for n, k in kept.items()}
    rows = [" | ".join([f"| `{n}`", *(str(shown[n][c]) for c in columns)]) + " |" for n in PARTS if n in shown]
    title = "# Reservoirs, time-delay and NARX networks"
    command = "`python -m benchmarks.reservoir [part ...]`; every number is in reservoir.json."
    head = f"| part | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}"
    return "\n".join([title, "", command, "", head, *rows, ""])


if __name__ == "__main__":
    main(sys.argv[1:])
