"""A learned weighted sum of layers."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...cell import positive_int
from ...errors import InputError, ShapeError


class ScalarMix(nn.Module):
    """A learned weighted sum of layers, γ Σ_l s_l h^(l) with s = softmax(w), as in ELMo (Peters et al. 2018).

    **Arguments**

    - `layers`: how many layers are summed.
    - `normalise`: with False, s = w.
    - `scale`: with False, there is no γ.
    - `layer_norm`: normalise every layer first, by one mean and one variance over all its valid steps.

    **Returns**

    `mix(layers, mask)`: a sequence of equal tensors (…, d), and for `layer_norm` a mask (…) of the valid steps →
    (…, d).

    **Example**

        >>> mix = rc.ScalarMix(3)
        >>> mix([torch.zeros(4, 2, 8), torch.ones(4, 2, 8), torch.ones(4, 2, 8)]).mean()
        tensor(0.6667, grad_fn=<MeanBackward0>)
    """

    def __init__(self, layers: int, *, normalise: bool = True, scale: bool = True, layer_norm: bool = False):
        super().__init__()
        self.layers = positive_int("layers", layers)
        self.normalise, self.layer_norm = normalise, layer_norm
        self.w = nn.Parameter(torch.zeros(layers) if normalise else torch.full((layers,), 1.0 / layers))
        self.gamma = nn.Parameter(torch.ones(())) if scale else None

    @property
    def s(self) -> Tensor:
        """The weights of the sum."""
        return torch.softmax(self.w, dim=0) if self.normalise else self.w

    def forward(self, layers: Sequence[Tensor] | Tensor, mask: Tensor | None = None) -> Tensor:
        """Layers (…, d), a list or one tensor (L, …, d) → their sum (…, d).

        `mask` (…): true at valid steps; only `layer_norm` reads it.
        """
        if isinstance(layers, Tensor) and layers.dim():
            layers = layers.unbind()
        if not isinstance(layers, (list, tuple)):
            raise InputError("layers", type(layers).__name__, "a list of tensors, one for each layer")
        if len(layers) != self.layers:
            raise ShapeError("layers", f"{len(layers)}", f"{self.layers}")
        if len({layer.shape for layer in layers}) > 1:
            raise ShapeError("layers", f"shapes {[tuple(layer.shape) for layer in layers]}", "one shape")
        if self.layer_norm:
            layers = [_normalize_layer(layer, mask) for layer in layers]
        mixed = sum((s * layer for s, layer in zip(self.s, layers, strict=True)), layers[0].new_zeros(()))
        return mixed if self.gamma is None else self.gamma * mixed

    def penalty(self) -> Tensor:
        """‖w‖²; adding λ ‖w‖² to a loss keeps the weights close to uniform."""
        return self.w.square().sum()


def _normalize_layer(layer: Tensor, mask: Tensor | None) -> Tensor:
    valid = layer if mask is None else layer[mask]
    mean, variance = valid.mean(), valid.var(correction=0)
    normed = (layer - mean) / torch.sqrt(variance + 1e-12)
    return normed if mask is None else normed * mask[..., None]
