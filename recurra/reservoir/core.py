"""Reservoirs: sparse leaky neurons or any cell, and stacks of them."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

from .. import init
from ..cell import Cell
from ..layers import Recurrent
from . import kernel
from .matrices import Weights, effective_radius

State = Any


class Reservoir(Protocol):
    """Maps inputs (T, B, m) to states (T, B, units)."""

    units: int

    @property
    def effective_radius(self) -> float | None:
        """ρ(γW + (1 - aγ) I), or None if not defined."""

    def initial(self, batch: int, random: np.random.Generator | None = None) -> State:
        """Zero states, or uniform on (-1, 1)."""

    def run(
        self, drive: np.ndarray, state: State, noise: np.random.Generator | None = None
    ) -> tuple[np.ndarray, State]:
        """The states at every step, and the final state."""


class LeakyReservoir:
    """h_t = (1 - aγ) h_{t-1} + γ tanh(W h_{t-1} + [U F] [x_t; y_{t-1}] + b + s_ν ν_t), ν uniform on (-1, 1).

    γ is `leak` and a is `decay`; with a = 1 there is one constant, the leaking rate α = γ.
    """

    def __init__(self, weights: Weights, leak: float, noise: float, decay: float = 1.0):
        self.weights, self.leak, self.noise, self.decay = weights, leak, noise, decay
        self.units = weights.W.shape[0]
        self.inputs = np.hstack([weights.U, weights.F])  # (N, m)

    @property
    def effective_radius(self) -> float:
        return effective_radius(self.weights.W, self.leak, self.decay)

    def initial(self, batch: int, random: np.random.Generator | None = None) -> np.ndarray:
        return np.zeros((self.units, batch)) if random is None else random.uniform(-1, 1, (self.units, batch))

    def run(
        self, drive: np.ndarray, state: np.ndarray, noise: np.random.Generator | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        if drive.shape[1] == 1:
            total = (drive[:, 0] @ self.inputs.T + self.weights.b)[..., None]  # (T, N, B)
        else:
            total = np.matmul(self.inputs, drive.transpose(0, 2, 1)) + self.weights.b[:, None]
        if noise is not None and self.noise:
            total += self.noise * noise.uniform(-1, 1, total.shape)
        states = kernel.run(self.weights.W, np.full(self.units, self.leak), state, total, self.decay)
        return states.transpose(0, 2, 1), states[-1].copy() if len(states) else state


class CellReservoir:
    """Any cell with fixed random weights; recurrent matrices scaled to the spectral radius."""

    effective_radius: float | None = None

    def __init__(
        self, cell: type[Cell] | str, units: int, scales: np.ndarray, radius: float, density: float, seed: int
    ):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            recipe = init.spectral_radius(radius, density)
            self.layer = (
                Recurrent(cell, len(scales), units, init=recipe, dtype=torch.float64).eval().requires_grad_(False)
            )
        self.scales = torch.from_numpy(scales)
        self.units = self.layer.output_size

    def initial(self, batch: int, random: np.random.Generator | None = None) -> State:
        like = torch.zeros(batch, 1, dtype=torch.float64)
        states = self.layer.cell_list[0].initial_state(batch, like)
        if random is not None:
            states = [torch.from_numpy(random.uniform(-1, 1, tuple(s.shape))) for s in states]
        packed = tuple(s[None].clone() for s in states)
        return packed if len(packed) > 1 else packed[0]

    def run(
        self, drive: np.ndarray, state: State, noise: np.random.Generator | None = None
    ) -> tuple[np.ndarray, State]:
        with torch.no_grad():
            states, state = self.layer(torch.from_numpy(np.ascontiguousarray(drive)) * self.scales, state)
        return states.numpy(), state


class Stack:
    """Reservoirs in depth: each reads the states of the one below; the readout reads all of them."""

    def __init__(self, layers: Sequence[Reservoir]):
        self.layers = tuple(layers)
        self.units = sum(layer.units for layer in layers)

    def initial(self, batch: int, random: np.random.Generator | None = None) -> State:
        return tuple(layer.initial(batch, random) for layer in self.layers)

    def run(
        self, drive: np.ndarray, state: State, noise: np.random.Generator | None = None
    ) -> tuple[np.ndarray, State]:
        outputs, ends = [], []
        for layer, start in zip(self.layers, state, strict=True):
            drive, end = layer.run(drive, start, noise)
            outputs.append(drive)
            ends.append(end)
        return np.concatenate(outputs, axis=-1) if len(outputs) > 1 else outputs[0], tuple(ends)
