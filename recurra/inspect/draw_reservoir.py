"""Draws an echo state network: fixed random connections dashed, the learned readout solid."""

import math
from typing import Any

import torch
from torch import Tensor

from .svg import Canvas

SHOWN = 12  # units drawn of each reservoir


def draw_reservoir(canvas: Canvas, network: Any) -> None:
    """Draw the reservoirs from left to right with some of their connections, the input and the readout."""
    matrices = _matrices(network)
    radius, pitch = 92.0, 270.0
    canvas.label(-190, 0, "x_{t}")
    for number, W in enumerate(matrices):
        x = number * pitch
        start = -174.0 if number == 0 else x - pitch + radius + 6
        for angle in (-0.5, 0.0, 0.5):
            end = (x - (radius + 8) * math.cos(angle), (radius + 8) * math.sin(angle))
            canvas.straight([(start, end[1] * 0.1 if number == 0 else end[1]), end], "fixed")
        canvas.label(start + 34, -42 if number == 0 else -24, "U" if number == 0 else f"U_{{{number + 1}}}")
        canvas.circle(x, 0, radius + 6, "frame")
        _draw_units(canvas, W, x, radius - 20)
        name = "W" if len(matrices) == 1 else f"W_{{{number + 1}}}"
        canvas.label(x, -radius - 26, rf"{name},\ \mathrm{{fixed}}")
    right = (len(matrices) - 1) * pitch
    for angle in (-0.5, 0.0, 0.5):
        canvas.straight(
            [(right + (radius + 8) * math.cos(angle), (radius + 8) * math.sin(angle)), (right + 176, 9 * angle)]
        )
    canvas.label(right + 150, -36, "V")
    canvas.label(right + 192, 0, "y_{t}", "start")
    if getattr(network, "feedback", 0.0):
        path = f"M {right + 196} 14 C {right + 170} 190, 0 190, 0 {radius + 8}"
        canvas.path(path, [(right + 196, 14), (0, 170)], "fixed")
        canvas.label(right / 2 + 110, 176, "F")
    below = 112 if getattr(network, "feedback", 0.0) else 40
    canvas.word(right / 2, radius + below, "dashed: random and fixed · solid: learned")


def _matrices(network: Any) -> list[Tensor]:
    if hasattr(network, "members_"):
        found = []
        for layer in network.members_[0].reservoir.layers:
            if hasattr(layer, "weights"):
                W = layer.weights.W
                found.append(torch.as_tensor(W.toarray() if hasattr(W, "toarray") else W))
            else:
                found.append(layer.layer.cell_list[0].recurrent_matrices()[0].detach())
        return found
    units = network.units if isinstance(network.units, (list, tuple)) else [network.units]
    return [_random_matrix(int(size), float(network.density), seed) for seed, size in enumerate(units)]


def _random_matrix(size: int, density: float, seed: int) -> Tensor:
    """A stand-in of the same density for a network that is not fitted."""
    random = torch.Generator().manual_seed(seed)
    values = torch.rand(size, size, generator=random) * 2 - 1
    return values * (torch.rand(size, size, generator=random) < density)


def _draw_units(canvas: Canvas, W: Tensor, x: float, radius: float) -> None:
    """Draw the units with the most connections, and the connections among them."""
    order = (W != 0).sum(dim=0).argsort(descending=True)[:SHOWN].tolist()
    points = []
    for k in range(len(order)):
        angle, distance = 2.4 * k, radius * math.sqrt((k + 0.6) / len(order))
        points.append((x + distance * math.cos(angle), distance * math.sin(angle)))
    links = [(i, j) for i, a in enumerate(order) for j, b in enumerate(order) if i != j and float(W[a, b]) != 0.0]
    if not links:
        links = [(i, (i + 1) % len(order)) for i in range(len(order))]
    for i, j in links[:28]:
        (x0, y0), (x1, y1) = points[j], points[i]
        length = math.hypot(x1 - x0, y1 - y0)
        if length > 20:
            ux, uy = (x1 - x0) / length, (y1 - y0) / length
            canvas.straight([(x0 + 8 * ux, y0 + 8 * uy), (x1 - 9 * ux, y1 - 9 * uy)], "fixed")
    for px, py in points:
        canvas.circle(px, py, 7, "box")
