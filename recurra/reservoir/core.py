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


class ReservoirCell(Cell):
    """h' = (1 - aγ) h + γ tanh(W h + x): the neurons of a reservoir; x is all that comes from outside."""

    states = ("h",)

    def __init__(self, input_size: int, hidden_size: int, leak: float, decay: float):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("h", bias=False)
        self.leak, self.decay = leak, decay

    def step(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return (1 - self.decay * self.leak) * h + self.leak * torch.tanh(self.a(h) + x)


class EngineReservoir:
    """The neurons of a `LeakyReservoir` as a layer on a device, a GPU for thousands of units; W is dense there."""

    def __init__(self, plain: LeakyReservoir, device: torch.device | str, dtype: torch.dtype = torch.float32):
        self.plain, self.units, self.device, self.dtype = plain, plain.units, torch.device(device), dtype
        with torch.random.fork_rng(devices=[]), torch.device("meta"):  # no numbers are drawn for W
            layer = Recurrent(ReservoirCell, self.units, self.units, leak=plain.leak, decay=plain.decay, dtype=dtype)
        self.layer = layer.to_empty(device=self.device).eval().requires_grad_(False)
        W = plain.weights.W.tocoo()
        with torch.no_grad():
            matrix = self.layer.cell_list[0].recurrent_matrices()[0].zero_()
            values, at = torch.from_numpy(W.data), (torch.from_numpy(v).long() for v in W.coords)
            matrix.index_put_(tuple(v.to(self.device) for v in at), values.to(matrix), accumulate=True)
        self.inputs, self.bias = (self._tensor(v) for v in (plain.inputs.T, plain.weights.b))

    @property
    def effective_radius(self) -> float:
        return self.plain.effective_radius

    def _tensor(self, value: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(value)).to(self.device, self.dtype)

    def initial(self, batch: int, random: np.random.Generator | None = None) -> torch.Tensor:
        return self._tensor(self.plain.initial(batch, random).T[None])  # (1, B, N)

    def run(
        self, drive: np.ndarray, state: torch.Tensor, noise: np.random.Generator | None = None
    ) -> tuple[np.ndarray, torch.Tensor]:
        if not len(drive):
            return np.zeros((0, drive.shape[1], self.units)), state
        with torch.no_grad():
            total = self._tensor(drive) @ self.inputs + self.bias
            if noise is not None and self.plain.noise:
                shape = (len(drive), self.units, drive.shape[1])  # drawn in the order of a `LeakyReservoir`
                total += self._tensor(self.plain.noise * noise.uniform(-1, 1, shape).transpose(0, 2, 1))
            states, state = self.layer(total, state)
        return states.double().cpu().numpy(), state


class CellReservoir:
    """Any cell with fixed random weights; recurrent matrices scaled to the spectral radius."""

    effective_radius: float | None = None

    def __init__(
        self,
        cell: type[Cell] | str,
        units: int,
        scales: np.ndarray,
        radius: float,
        density: float,
        seed: int,
        device: torch.device | str | None = None,
    ):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            recipe = init.spectral_radius(radius, density)
            self.layer = (
                Recurrent(cell, len(scales), units, init=recipe, dtype=torch.float64).eval().requires_grad_(False)
            )
        self.device = torch.device("cpu" if device is None else device)
        self.dtype = torch.float64 if device is None else torch.float32
        self.layer.to(device=self.device, dtype=self.dtype)
        self.scales = torch.from_numpy(scales).to(self.device, self.dtype)
        self.units = self.layer.output_size

    def initial(self, batch: int, random: np.random.Generator | None = None) -> State:
        like = torch.zeros(batch, 1, dtype=self.dtype, device=self.device)
        states = self.layer.cell_list[0].initial_state(batch, like)
        if random is not None:
            states = [torch.from_numpy(random.uniform(-1, 1, tuple(s.shape))).to(s) for s in states]
        packed = tuple(s[None].clone() for s in states)
        return packed if len(packed) > 1 else packed[0]

    def run(
        self, drive: np.ndarray, state: State, noise: np.random.Generator | None = None
    ) -> tuple[np.ndarray, State]:
        with torch.no_grad():
            x = torch.from_numpy(np.ascontiguousarray(drive)).to(self.device, self.dtype)
            states, state = self.layer(x * self.scales, state)
        return states.double().cpu().numpy(), state


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
