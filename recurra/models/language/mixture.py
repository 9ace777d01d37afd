"""Mixture density networks: the next frame of a real-valued sequence as a mixture of Gaussians (Graves 2013)."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...argument_checks import whole_number
from ...cell import Cell, positive_int
from ...errors import InputError, ShapeError
from ...layers import Recurrent
from .generate import make_generator

LOG_2PI = math.log(2 * math.pi)


class MixtureDensity(nn.Module):
    """A mixture density output: states to a density over frames of real and binary numbers (Graves 2013).

    **Arguments**

    - `input_size`: d, the size of a state.
    - `size`: real numbers in a frame. They are a mixture of Gaussians with diagonal covariance; with `size` 2, such as
      the offsets of a pen, with full covariance.
    - `components`: Gaussians in the mixture.
    - `binary`: binary numbers after the real ones, such as the end of a stroke; independent Bernoulli variables.

    **Example**

        >>> density = rc.models.MixtureDensity(16, 2, components=5, binary=1)
        >>> h = torch.randn(10, 3, 16)
        >>> frames = density.sample(h)
        >>> frames.shape, density.log_prob(h, frames).shape
        (torch.Size([10, 3, 3]), torch.Size([10, 3]))
    """

    def __init__(self, input_size: int, size: int, components: int = 20, binary: int = 0):
        super().__init__()
        self.size, self.components = positive_int("size", size), positive_int("components", components)
        if not isinstance(binary, int) or binary < 0:
            raise InputError("binary", binary, "a whole number of at least 0")
        self.binary, self.output_size = binary, size + binary
        self.correlated = size == 2
        width = components * (1 + 2 * size + self.correlated)
        self.linear = nn.Linear(positive_int("input_size", input_size), width + binary)

    def parts(self, h: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor]:
        """Log weights (…, K), means and log deviations (…, K, size), correlations (…, K), logits (…, binary)."""
        k, size = self.components, self.size
        correlated = k if self.correlated else 0
        raw = self.linear(h).split([k, k * size, k * size, correlated, self.binary], dim=-1)
        means, spreads = (part.unflatten(-1, (k, size)) for part in raw[1:3])
        return raw[0].log_softmax(-1), means, spreads, raw[3].tanh() if self.correlated else None, raw[4]

    def log_prob(self, h: Tensor, frames: Tensor) -> Tensor:
        """Log-density: states (…, d) and frames (…, size + binary) → (…)."""
        if frames.shape != (*h.shape[:-1], self.output_size):
            raise ShapeError("frames", f"shape {tuple(frames.shape)}", f"{(*h.shape[:-1], self.output_size)}")
        weights, means, spreads, rho, logits = self.parts(h)
        real, yes = frames.split([self.size, self.binary], dim=-1)
        z = (real[..., None, :] - means) * torch.exp(-spreads)  # (…, K, size)
        inner = z.square().sum(-1)
        log_volume = spreads.sum(-1) + 0.5 * self.size * LOG_2PI
        if rho is not None:
            rest = (1 - rho.square()).clamp_min(torch.finfo(rho.dtype).eps)
            inner = (inner - 2 * rho * z[..., 0] * z[..., 1]) / rest
            log_volume = log_volume + 0.5 * rest.log()
        density = (weights - log_volume - 0.5 * inner).logsumexp(-1)
        return density - F.binary_cross_entropy_with_logits(logits, yes, reduction="none").sum(-1)

    def mean(self, h: Tensor) -> Tensor:
        """The expected frame, (…, size + binary); for a binary number its probability."""
        weights, means, _, _, logits = self.parts(h)
        return torch.cat([(weights.exp()[..., None] * means).sum(-2), torch.sigmoid(logits)], dim=-1)

    def sample(self, h: Tensor, bias: float = 0.0, generator: torch.Generator | None = None) -> Tensor:
        """A sampled frame for every state. A positive `bias` sharpens the distribution: neater handwriting."""
        if not bias >= 0:
            raise InputError("bias", bias, "a number of at least 0")
        weights, means, spreads, rho, logits = self.parts(h)
        flat = ((1 + bias) * weights).softmax(-1).flatten(0, -2)
        chosen = torch.multinomial(flat, 1, generator=generator).view(*h.shape[:-1], 1)  # (…, 1)

        def pick(part: Tensor) -> Tensor:
            return part.gather(-2, chosen[..., None].expand(*chosen.shape, self.size)).squeeze(-2)

        noise = torch.randn(*h.shape[:-1], self.size, generator=generator, dtype=h.dtype, device=h.device)
        if rho is not None:
            r = rho.gather(-1, chosen).squeeze(-1)
            second = r * noise[..., 0] + (1 - r.square()).clamp_min(0).sqrt() * noise[..., 1]
            noise = torch.stack([noise[..., 0], second], dim=-1)
        real = pick(means) + torch.exp(pick(spreads) - bias) * noise
        yes = torch.rand(logits.shape, generator=generator, dtype=h.dtype, device=h.device) < torch.sigmoid(logits)
        return torch.cat([real, yes.to(real.dtype)], dim=-1)


class SequenceDensity(nn.Module):
    """An autoregressive model of real-valued sequences: p(frame | previous frames) as a mixture density (Graves 2013).

    **Arguments**

    - `size`, `components`, `binary`: as in `MixtureDensity`.
    - `hidden_size`, `num_layers`, `cell`: of the recurrent layers.
    - `**options`: of `rc.Recurrent` and of the cell; `depth="graves"` connects the input to every layer and every layer
      to the mixture, as in the paper.

    **Returns**

    `model(frames, state)`: frames (T, B, size + binary) → states (T, B, d) for `model.density`, and the layers' state.
    Train it with `rc.models.NextFrame()`; `generate` samples sequences.

    **Example**

        >>> model = rc.models.SequenceDensity(2, hidden_size=8, components=3, binary=1)
        >>> model.generate(20, seed=0).shape
        torch.Size([20, 3])
    """

    def __init__(
        self,
        size: int,
        hidden_size: int = 256,
        num_layers: int = 1,
        *,
        components: int = 20,
        binary: int = 0,
        cell: str | type[Cell] = "vanilla_lstm",
        **options: Any,
    ):
        super().__init__()
        positive_int("size", size)
        whole_number("binary", binary)
        self.layers = Recurrent(cell, size + binary, hidden_size, num_layers, **options)
        self.density = MixtureDensity(self.layers.output_size, size, components, binary)

    def forward(
        self, frames: Tensor, state: Any = None, lengths: Tensor | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """(T, B, size + binary) → states (T, B, d) for `density`, and the state of the layers."""
        return self.layers(frames, state, lengths=lengths, resets=resets)

    @torch.no_grad()
    def generate(
        self, length: int, start: Tensor | None = None, *, bias: float = 0.0, seed: int | None = None
    ) -> Tensor:
        """Sample `length` frames, (length, size + binary), after `start` (T, size + binary) or a frame of zeros."""
        if not isinstance(length, int) or length < 1:
            raise InputError("length", length, "a positive whole number of frames")
        weight = self.density.linear.weight
        random = make_generator(seed, weight.device)
        prefix = weight.new_zeros(1, self.density.output_size) if start is None else start
        training, sampled = self.training, []
        self.eval()
        try:
            h, state = self(prefix[:, None])
            for _ in range(length):
                frame = self.density.sample(h[-1], bias, random)  # (1, size + binary)
                sampled.append(frame)
                h, state = self(frame[None], state)
        finally:
            self.train(training)
        return torch.cat(sampled)


class NextFrame:
    """The loss of a `SequenceDensity` for `rc.train.fit`: the mean negative log-density of the next frame, in nats.

    **Example**

        >>> model = rc.models.SequenceDensity(2, hidden_size=8, components=3)
        >>> frames = [torch.randn(n, 2) for n in (6, 4)]
        >>> data = rc.data.SequenceSet.from_arrays(frames, [f.roll(-1, 0) for f in frames], "next_step")
        >>> len(rc.train.fit(model, data, loss=rc.models.NextFrame(), epochs=2, progress=False).history)
        2
    """

    def count(self, batch: Any) -> int:
        """The number of frames in a batch."""
        return int(batch.mask.sum())

    def __call__(self, model: Any, batch: Any, state: Any) -> tuple[dict[str, Tensor], Any]:
        h, state = model(batch.inputs, state, batch.lengths, batch.resets)
        values = model.density.log_prob(h, batch.targets)
        return {"loss": -(values * batch.mask).sum()}, state
