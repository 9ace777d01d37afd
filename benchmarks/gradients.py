"""The survey's claims about gradients, as pictures from real runs.

    python -m benchmarks.gradients                 everything, a few minutes on two cores
    python -m benchmarks.gradients lambda tau      some of it

Each part writes a picture to results/gradients_*.svg and its numbers to results/gradients.json; results/gradients.md
says what was claimed and what was seen. The data is the Mackey-Glass series, the same for every network.
"""

import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import recurra as rc
from benchmarks.environment import environment
from recurra.data.tasks.mackey_glass_solver import mackey_glass_series
from recurra.inspect import gate_activity, gradient_flow
from recurra.inspect.figures import PALETTE
from recurra.inspect.gradients import GradientFlow

RESULTS = Path(__file__).resolve().parent / "results"
UNITS, STEPS, UPDATES = 64, 200, 1200

Numbers = dict[str, Any]
Curves = dict[str, list[float]]


def series(steps: int = STEPS, sequences: int = 4) -> Tensor:
    """(T, B, 1): Mackey-Glass, each sequence from another past, with mean 0 and deviation 1."""
    past = torch.linspace(0.6, 1.3, sequences, dtype=torch.float64)
    values = mackey_glass_series(past, steps + 300, 17.0)[300:]
    return ((values - values.mean()) / values.std()).float()[..., None]


def profile(flow: GradientFlow, state: str = "h") -> list[float]:
    return [float(value) for value in flow[state].profile]


# ---------------------------------------------------------------------------------------------------- λ


def with_radius(scale: float, nonlinearity: str) -> rc.Recurrent:
    """W = λ times a rotation: every eigenvalue has modulus λ, and so has every singular value."""
    torch.manual_seed(0)
    layer = rc.layer("rnn", 1, UNITS, nonlinearity=nonlinearity)
    with torch.no_grad():
        layer.cell_list[0].a.W.mul_(scale)  # pyrefly: ignore
    return layer


def radii() -> Numbers:
    """λ < 1 vanishes, λ > 1 explodes; a squashing function takes from both."""
    data, curves, rates = series(100), {}, {}
    for scale in (0.8, 0.95, 1.0, 1.05, 1.2):
        for nonlinearity, word in (("identity", "linear"), ("tanh", "tanh")):
            flow = gradient_flow(with_radius(scale, nonlinearity), data)
            curves[f"λ = {scale}, {word}"] = profile(flow)
            rates[f"{scale} {word}"] = flow["h"].rate
    draw("lambda", "λ < 1 vanishes, λ > 1 explodes; tanh takes from both", curves, group=2)
    off = max(abs(rates[f"{scale} linear"] - scale) for scale in (0.8, 0.95, 1.0, 1.05, 1.2))
    return {
        "claim": "The gradient over k steps goes as λ^k: it vanishes for λ < 1 and explodes for λ > 1.",
        "seen": f"Linear networks: the fitted rate is λ to within {off:.1e}. With tanh it is smaller: "
        f"{rates['1.2 tanh']:.3f} a step at λ = 1.2, {rates['0.8 tanh']:.3f} at λ = 0.8.",
        "rates": rates,
    }


# ---------------------------------------------------------------------------------------------------- remedies


def networks() -> dict[str, tuple[Any, str]]:
    """Name → (network, the state to look at), all with the same number of units."""
    torch.manual_seed(0)
    reservoir = rc.EchoStateNetwork(units=UNITS, spectral_radius=0.95, input_scaling=0.3, random_state=0)
    reservoir.fit(series(1000, 1)[:, 0].numpy())
    small = lambda cell: cell.a.W.data.mul_(0.7)  # noqa: E731
    layers = {
        "plain, ρ = 0.7": rc.layer("rnn", 1, UNITS, init=small),
        "close to identity": rc.layer("identity_rnn", 1, UNITS),
        "orthogonal": rc.layer("orthogonal_rnn", 1, UNITS),
        "residual, W + I": rc.layer("residual_rnn", 1, UNITS),
        "delays 1 and 10": rc.layer("delay_rnn", 1, UNITS, delays=(1, 10)),
        "leaky, τ up to 100": rc.layer("leaky_rnn", 1, UNITS),
        "LSTM": rc.layer("lstm", 1, UNITS, init=rc.init.forget_bias(3.0)),
        "GRU": rc.layer("gru", 1, UNITS, init=rc.init.chrono(100)),
    }
    states = {"LSTM": "c"}
    named = {name: (layer, states.get(name, "h")) for name, layer in layers.items()}
    return {**named, "echo state": (reservoir, "h")}


def remedies() -> Numbers:
    """Every remedy of the survey beside the plain network, untrained, on the same data."""
    curves, rates = {}, {}
    for name, (network, state) in networks().items():
        flow = gradient_flow(network, series())
        curves[name], rates[name] = profile(flow, state), flow[state].rate
    draw("cells", "What is left of the gradient, before training", curves)
    ranked = sorted(rates, key=lambda name: rates[name])
    return {
        "claim": "Identity, orthogonal and residual matrices, long delays, leaky units and gates keep gradients alive.",
        "seen": "Factor a step: "
        + "; ".join(f"{name}: {rates[name]:.3f}" for name in ranked)
        + ". An orthogonal matrix "
        "alone does not: tanh shrinks what the matrix preserves.",
        "rates": rates,
        "left after 100 steps": {name: curve[100] for name, curve in curves.items()},
    }


class Adder(nn.Module):
    """One layer and a readout of its last state, for the adding problem."""

    def __init__(self, cell: str, **options: Any):
        super().__init__()
        self.recurrent = rc.layer(cell, 2, 32, **options)
        self.head = nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.recurrent(x)[0][-1])


def trained() -> Numbers:
    """The same remedies, trained on the adding problem: what a network learns depends on what reaches the past."""
    task = rc.data.tasks.adding(length=40)
    options = {
        "rnn": {},
        "orthogonal_rnn": {},
        "residual_rnn": {},
        "leaky_rnn": {},
        "lstm": {"init": rc.init.chrono(40)},
        "gru": {"init": rc.init.chrono(40)},
    }
    curves, scores, left = {}, {}, {}
    for cell, given in options.items():
        torch.manual_seed(0)
        model = Adder(cell, **given)
        rc.train.fit(model, task.batches(50, UPDATES, seed=0), epochs=1, lr=5e-3, clip=1.0, progress=False)
        batch = next(iter(task.batches(200, 1, seed=9).epoch(0)))
        with torch.no_grad():
            scores[cell] = float((model(batch.inputs) - batch.targets).square().mean())
        flow = gradient_flow(model, batch, sequences=16)
        reached = profile(flow, "c" if cell == "lstm" else "h")
        curves[f"{cell}: error {scores[cell]:.3f}"], left[cell] = reached, reached[-1]
    draw("trained", f"After {UPDATES} updates on the adding problem of 40 steps", curves)
    learned = [cell for cell, score in scores.items() if score < 0.5 * task.baseline]
    return {
        "claim": "A network whose gradients vanish cannot learn from the distant past.",
        "seen": f"The trivial answer has an error of {task.baseline:.3f}; below half of it after {UPDATES} updates: "
        f"{', '.join(learned) or 'none'}. A gradient that arrives is needed and not enough: "
        + ", ".join(f"{cell} keeps {left[cell]:.1g} of it" for cell in scores)
        + " over the sequence.",
        "left after the sequence": left,
        "errors": scores,
        "baseline": task.baseline,
    }


# ---------------------------------------------------------------------------------------------------- τ


def time_constants() -> Numbers:
    """τ = 1 keeps no copy of the past; τ = 100 remembers for a hundred steps (and not the other way round)."""
    curves, left = {}, {}
    for tau in (1.0, 3.0, 10.0, 30.0, 100.0):
        torch.manual_seed(0)
        layer = rc.layer("leaky_rnn", 1, UNITS, tau=tau, init=rc.init.spectral_radius(0.5))
        flow = gradient_flow(layer, series(120))
        curves[f"τ = {tau:g}"] = profile(flow)
        left[f"{tau:g}"] = profile(flow)[50]
    draw("tau", "Leaky units: a larger τ remembers longer", curves)
    return {
        "claim": "A leaky unit's memory lasts about τ steps.",
        "seen": f"Of the gradient 50 steps back, {left['1']:.1e} is left at τ = 1 and {left['100']:.2f} at τ = 100.",
        "left after 50 steps": left,
    }


# ---------------------------------------------------------------------------------------------------- forgetting


def forgetting() -> Numbers:
    """The first LSTM never forgets: its gradient stays, and so does everything it ever read."""
    data = series(1000, 2)
    layers = {}
    for name, cell in (("original LSTM, 1997", "original_lstm"), ("LSTM with forget gate, 2000", "lstm")):
        torch.manual_seed(0)
        layers[name] = rc.layer(cell, 1, UNITS)
    flows = {name: gradient_flow(layer, data[:STEPS]) for name, layer in layers.items()}
    curves = {name: profile(flow, "c") for name, flow in flows.items()}
    draw("forget", "The gradient along the memory c", curves)
    sizes: Curves = {}
    for name, layer in layers.items():
        drifting = data + 0.5  # a stream whose mean is not zero, as streams are
        sizes[name] = gate_activity(layer, drifting)["c"].values.abs().mean(dim=(1, 2)).tolist()
    draw("stream", "The size of the memory |c| on an endless stream", sizes, "step", "mean |c|", logarithmic=False)
    first, second = layers
    return {
        "claim": "Without a forget gate the memory keeps every gradient and grows without bound on an endless stream; "
        "a forget gate bounds it.",
        "seen": f"Left after 150 steps: {curves[first][150]:.2g} without and {curves[second][150]:.1g} with the gate. "
        f"|c| at step 1000: {sizes[first][-1]:.1f} without (at step 500: {sizes[first][499]:.1f}) "
        f"and {sizes[second][-1]:.2f} with.",
        "rates": {name: flow["c"].rate for name, flow in flows.items()},
        "memory at steps 250, 500, 1000": {name: [size[249], size[499], size[999]] for name, size in sizes.items()},
    }


# ---------------------------------------------------------------------------------------------------- cost


def cost() -> Numbers:
    """What a look costs: all pairs of 1000 steps of 256 units."""
    torch.manual_seed(0)
    seconds = {}
    for cell in ("rnn", "gru", "lstm"):
        layer, data = rc.layer(cell, 16, 256), torch.randn(1000, 1, 16)
        began = time.process_time()
        gradient_flow(layer, data)
        seconds[cell] = time.process_time() - began
    return {
        "claim": "Gradient flow of 1000 steps and 256 units takes seconds.",
        "seen": "Processor seconds, 64 loss times: " + ", ".join(f"{k} {v:.1f}" for k, v in seconds.items()) + ".",
        "processor seconds": seconds,
        "threads": torch.get_num_threads(),
    }


# ---------------------------------------------------------------------------------------------------- pictures


WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 860, 430, 64, 44, 270, 48
FLOOR, CEILING = 1e-12, 1e6  # what a logarithmic picture shows


@dataclass(frozen=True)
class Axes:
    """From numbers to places, on a logarithmic scale or a plain one that begins at zero."""

    steps: int
    low: float
    high: float
    logarithmic: bool

    @classmethod
    def around(cls, curves: Curves, logarithmic: bool) -> "Axes":
        steps = max(len(curve) for curve in curves.values()) - 1
        values = [value for curve in curves.values() for value in curve if value > 0]
        if not logarithmic:
            return cls(steps, 0.0, 1.05 * max(values), False)
        logs = [math.log10(min(max(value, FLOOR), CEILING)) for value in values]
        return cls(steps, math.floor(min(logs)), math.ceil(max(logs)), True)

    def across(self, step: float) -> float:
        return LEFT + step / self.steps * (WIDTH - LEFT - RIGHT)

    def up(self, value: float) -> float:
        place = math.log10(value) if self.logarithmic else value
        return HEIGHT - BOTTOM - (place - self.low) / max(self.high - self.low, 1e-9) * (HEIGHT - TOP - BOTTOM)

    def ticks(self) -> dict[str, float]:
        if not self.logarithmic:
            return {f"{self.high * k / 5:.3g}": self.high * k / 5 for k in range(6)}
        stride = max(1, int(self.high - self.low) // 8)
        return {f"1e{power}": 10.0**power for power in range(int(self.low), int(self.high) + 1, stride)}


def draw(
    name: str,
    title: str,
    curves: Curves,
    x_name: str = "steps back",
    y_name: str = "share of the gradient",
    logarithmic: bool = True,
    group: int = 1,
) -> None:
    """Curves with their names beside them; every `group` of them have one colour and are told apart by dashes."""
    axes = Axes.around(curves, logarithmic)
    middle = f'x="16" y="{HEIGHT / 2}" transform="rotate(-90 16 {HEIGHT / 2})" text-anchor="middle"'
    font = 'font-family="sans-serif" font-size="12"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {font}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="16">{escape(title)}</text>',
        f'<text x="{axes.across(axes.steps / 2):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{x_name}</text>',
        f"<text {middle}>{y_name}</text>",
    ]
    for label, value in axes.ticks().items():
        lines.append(f'<path d="M {LEFT} {axes.up(value):.1f} H {WIDTH - RIGHT}" stroke="#ddd"/>')
        lines.append(f'<text x="{LEFT - 6}" y="{axes.up(value) + 4:.1f}" text-anchor="end">{label}</text>')
    lines += [
        f'<text x="{axes.across(step):.1f}" y="{HEIGHT - 28}" text-anchor="middle">{step:.0f}</text>'
        for step in (axes.steps * part / 5 for part in range(6))
    ]
    for number, (label, curve) in enumerate(curves.items()):
        lines += drawn_curve(axes, number, label, curve, group)
    (RESULTS / f"gradients_{name}.svg").write_text("\n".join([*lines, "</svg>\n"]), encoding="utf-8")


def drawn_curve(axes: Axes, number: int, label: str, curve: list[float], group: int) -> list[str]:
    inside = [(k, v) for k, v in enumerate(curve) if not axes.logarithmic or FLOOR <= v <= CEILING]
    points = " ".join(f"{axes.across(k):.1f},{axes.up(v):.1f}" for k, v in inside)
    colour = number // group
    dash = ("", "7 4", "2 4")[number % group + colour // len(PALETTE)]
    style = f'stroke="{PALETTE[colour % len(PALETTE)]}" stroke-width="2.2" stroke-dasharray="{dash}" fill="none"'
    row = TOP + 10 + 20 * number
    return [
        f'<polyline points="{points}" {style}/>',
        f'<path d="M {WIDTH - RIGHT + 14} {row} h 26" {style}/>',
        f'<text x="{WIDTH - RIGHT + 48}" y="{row + 4}">{escape(label)}</text>',
    ]


PARTS: dict[str, Callable[[], Numbers]] = {
    "lambda": radii,
    "cells": remedies,
    "trained": trained,
    "tau": time_constants,
    "forget": forgetting,
    "cost": cost,
}


def main(chosen: list[str]) -> None:
    unknown = [name for name in chosen if name not in PARTS]
    if unknown:
        raise SystemExit(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    file = RESULTS / "gradients.json"
    found: dict[str, Numbers] = json.loads(file.read_text()) if file.exists() else {}
    for name in chosen or PARTS:
        began = time.perf_counter()
        numbers = PARTS[name]()
        seconds = round(time.perf_counter() - began, 1)
        found[name] = {**numbers, "seconds": seconds, "environment": environment()}
        print(f"{name}: {found[name]['seen']}", flush=True)
        file.write_text(json.dumps(rounded(found), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write_table({name: found[name] for name in PARTS if name in found})


def write_table(found: dict[str, Numbers]) -> None:
    lines = ["# The survey's claims about gradients, seen", "", "Made by `python -m benchmarks.gradients`.", ""]
    pictures = {"forget": ("forget", "stream"), "cost": ()}
    for name, numbers in found.items():
        lines += [f"**{numbers['claim']}** {numbers['seen']}", ""]
        lines += [f"![{numbers['claim']}](gradients_{file}.svg)\n" for file in pictures.get(name, (name,))]
    (RESULTS / "gradients.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main(sys.argv[1:])
