"""RNN-RBM: the next frame of many bits as a restricted Boltzmann machine (Boulanger-Lewandowski et al. 2012).

    p(v | s) ∝ exp(-F(v)),  F(v) = -(A s + a)·v - Σ_j log(2 cosh(z_j / 2)),  z = B s + b + W (v - μ)

with s the state of the recurrent layer. Hidden units are -1/2 or 1/2, and frames count from their mean μ: with other
biases this is the machine of units 0 and 1, and its gradient no longer mixes weights and biases (Cho et al. 2011;
Montavon & Müller 2012). The sum over all frames is not computable: training follows the difference of free energies
between data and samples (contrastive divergence), and annealed importance sampling estimates the likelihood, with its
error (Salakhutdinov & Murray 2008).
"""

import math
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...argument_checks import positive_int
from ...cell import Cell
from ...errors import ShapeError
from .frames import FrameModel


class Estimate(NamedTuple):
    """An estimate and its standard error."""

    value: Tensor
    error: Tensor


class RBM(nn.Module):
    """A restricted Boltzmann machine over bits, whose biases depend on a state.

    **Arguments**

    - `input_size`: d, the size of a state.
    - `size`: the number of bits. `hidden`: units of the hidden layer.

    **Example**

        >>> density = rc.models.RBM(16, 5, hidden=8)
        >>> s = torch.randn(10, 16)
        >>> frames = density.sample(s, torch.zeros(10, 5))
        >>> frames.shape, density.log_prob(s, frames).value.shape
        (torch.Size([10, 5]), torch.Size([10]))
    """

    def __init__(self, input_size: int, size: int, hidden: int = 64):
        super().__init__()
        self.output_size = positive_int("size", size)
        self.A = nn.Linear(positive_int("input_size", input_size), size)
        self.B = nn.Linear(input_size, positive_int("hidden", hidden))
        self.W = nn.Parameter(0.1 * torch.randn(hidden, size))
        self.register_buffer("mean", torch.full((size,), 0.5))

    @torch.no_grad()
    def start_at(self, frequencies: Tensor) -> None:
        """Start from independent bits: how often each is 1, (size,), sets the biases a and the mean μ."""
        if frequencies.shape != (self.output_size,):
            raise ShapeError("frequencies", f"shape {tuple(frequencies.shape)}", f"{(self.output_size,)}")
        self.mean.copy_(frequencies)
        self.A.bias.copy_(torch.logit(frequencies, eps=1e-3))

    def _hidden_logits(self, b: Tensor, frames: Tensor) -> Tensor:
        return b + F.linear(frames - self.mean, self.W)

    def free_energy(self, s: Tensor, frames: Tensor) -> Tensor:
        """F(v): states (…, d) and frames (…, size) → (…)."""
        if frames.shape != (*s.shape[:-1], self.output_size):
            raise ShapeError("frames", f"shape {tuple(frames.shape)}", f"{(*s.shape[:-1], self.output_size)}")
        return -(self.A(s) * frames).sum(-1) - _log_sum(self._hidden_logits(self.B(s), frames)).sum(-1)

    @torch.no_grad()
    def sample(self, s: Tensor, frames: Tensor, steps: int = 25, generator: torch.Generator | None = None) -> Tensor:
        """Frames after `steps` steps of Gibbs sampling from given ones."""
        a, b = self.A(s), self.B(s)
        for _ in range(steps):
            frames = self._gibbs(frames, a, b, 1.0, generator)
        return frames

    def _gibbs(self, v: Tensor, a: Tensor, b: Tensor, beta: float, generator: torch.Generator | None) -> Tensor:
        h = _draw(beta * self._hidden_logits(b, v), generator) - 0.5
        return _draw(a + beta * F.linear(h, self.W.T), generator)

    @torch.no_grad()
    def log_partition(
        self, s: Tensor, chains: int = 20, temperatures: int = 200, generator: torch.Generator | None = None
    ) -> Estimate:
        """log Σ_v exp(-F(v)) for every state (N, d), by annealed importance sampling from the machine with W = 0.

        Averages of the weights of `chains` runs over `temperatures` steps; the error is that of their mean.
        """
        a, b = (v.expand(positive_int("chains", chains), *v.shape) for v in (self.A(s), self.B(s)))
        v = _draw(a, generator)
        log_weight = torch.zeros(v.shape[:-1], dtype=v.dtype, device=v.device)
        betas = torch.linspace(0, 1, positive_int("temperatures", temperatures) + 1, dtype=v.dtype).tolist()
        for before, beta in pairwise(betas):
            z = self._hidden_logits(b, v)
            log_weight += (_log_sum(beta * z) - _log_sum(before * z)).sum(-1)
            v = self._gibbs(v, a, b, beta, generator)
        start = F.softplus(a[0]).sum(-1) + b.shape[-1] * math.log(2.0)  # the machine with W = 0 and no hidden biases
        share = (log_weight - log_weight.logsumexp(0)).exp() * chains  # weights over their mean
        return Estimate(start + log_weight.logsumexp(0) - math.log(chains), share.std(0) / math.sqrt(chains))

    def log_prob(self, s: Tensor, frames: Tensor, **options: Any) -> Estimate:
        """log p(v | s): states (N, d) and frames (N, size) → (N,) and its error. Options of `log_partition`."""
        found = self.log_partition(s, **options)
        return Estimate(-self.free_energy(s, frames) - found.value, found.error)


def _log_sum(z: Tensor) -> Tensor:
    """log(exp(z / 2) + exp(-z / 2)): a hidden unit summed out."""
    return F.softplus(z) - z / 2


def _draw(logits: Tensor, generator: torch.Generator | None) -> Tensor:
    p = torch.sigmoid(logits)
    return (torch.rand(p.shape, generator=generator, dtype=p.dtype, device=p.device) < p).to(p.dtype)


class RNNRBM(FrameModel):
    """A model of sequences of bits, such as chords: RNN-RBM (Boulanger-Lewandowski, Bengio & Vincent 2012).

    A recurrent layer reads the frames so far; its state sets the biases of a restricted Boltzmann machine for the next.

    **Arguments**

    - `size`: the number of bits in a frame.
    - `hidden_size`, `num_layers`, `cell`: of the recurrent layers. `rbm_size`: hidden units of the machine.
    - `dropout`: of the states that the machine reads.
    - `**options`: of `rc.Recurrent` and of the cell.

    **Returns**

    `model(frames, state)`: frames (T, B, size) of 0 and 1 → states (T, B, d) for `model.density`, and the layers'
    state. Train it with `rc.models.ContrastiveDivergence()`; `model.density.log_prob` estimates the likelihood;
    `generate` samples sequences.

    **Example**

        >>> model = rc.models.RNNRBM(8, hidden_size=16, rbm_size=12)
        >>> model.generate(20, seed=0).shape
        torch.Size([20, 8])
    """

    def __init__(
        self,
        size: int,
        hidden_size: int = 128,
        num_layers: int = 1,
        rbm_size: int = 128,
        *,
        cell: str | type[Cell] = "lstm",
        dropout: float = 0.0,
        **options: Any,
    ):
        make_density = partial(RBM, size=size, hidden=rbm_size)
        super().__init__(size, hidden_size, num_layers, make_density, cell, dropout, options)

    def generate(self, length: int, start: Tensor | None = None, *, steps: int = 25, seed: int | None = None) -> Tensor:
        """Sample `length` frames, (length, size), after `start` (T, size) or a frame of zeros."""
        return self.sample_frames(length, start, seed, lambda s, v, random: self.density.sample(s, v, steps, random))


class ContrastiveDivergence:
    """The loss of an `RNNRBM` for `rc.train.fit`: the free energy of the data less that of samples that start there.

    Its gradient is that of contrastive divergence with `steps` steps of Gibbs sampling (CD-k, Hinton 2002); its value
    is not a likelihood.

    **Example**

        >>> model, loss = rc.models.RNNRBM(4, hidden_size=8, rbm_size=6), rc.models.ContrastiveDivergence(steps=2)
        >>> frames = [(torch.rand(n, 4) < 0.5).float() for n in (6, 4)]
        >>> data = rc.data.SequenceSet.from_arrays(frames, [f.roll(-1, 0) for f in frames], "next_step")
        >>> len(rc.train.fit(model, data, loss=loss, epochs=2, progress=False).history)
        2
    """

    def __init__(self, steps: int = 15):
        self.steps = positive_int("steps", steps)

    def count(self, batch: Any) -> int:
        """The number of frames in a batch."""
        return int(batch.mask.sum())

    def __call__(self, model: Any, batch: Any, state: Any) -> tuple[dict[str, Tensor], Any]:
        s, state = model(batch.inputs, state, batch.lengths, batch.resets)
        s, data = s[batch.mask], batch.targets[batch.mask]
        other = model.density.sample(s.detach(), data, self.steps)
        return {"loss": (model.density.free_energy(s, data) - model.density.free_energy(s, other)).sum()}, state
