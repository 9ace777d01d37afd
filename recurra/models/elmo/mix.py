"""A weighted sum of layers, with weights that are learned."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...cell import positive_int
from ...errors import ShapeError


class ScalarMix(nn.Module):
    """γ Σ_l s_l h^(l) with s = softmax(w): ELMo's sum of layers (Peters et al. 2018).

    Without `normalise` the weights are s = w, without `scale` there is no γ: then it is the plain Σ_l s_l h^(l). With
    `layer_norm` each layer is first shifted and scaled by one mean and one variance over all its real numbers.
    """

    def __init__(self, layers: int, *, normalise: bool = True, scale: bool = True, layer_norm: bool = False):
        super().__init__()
        self.layers = positive_int("layers", layers)
        self.normalise, self.layer_norm = normalise, layer_norm
        self.w = nn.Parameter(torch.zeros(layers) if normalise else torch.full((layers,), 1.0 / layers))
        self.gamma = nn.Parameter(torch.ones(())) if scale else None

    @property
    def s(self) -> Tensor:
        """The weights as they act."""
        return torch.softmax(self.w, dim=0) if self.normalise else self.w

    def forward(self, layers: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """Layers (…, d) → their mix. `mask` (…): true at real steps, which the norm needs to know."""
        if len(layers) != self.layers:
            raise ShapeError("layers", f"{len(layers)}", f"{self.layers}")
        if len({layer.shape for layer in layers}) > 1:
            raise ShapeError("layers", f"shapes {[tuple(layer.shape) for layer in layers]}", "one shape")
        if self.layer_norm:
            layers = [_normalised(layer, mask) for layer in layers]
        mixed = sum((s * layer for s, layer in zip(self.s, layers, strict=True)), layers[0].new_zeros(()))
        return mixed if self.gamma is None else self.gamma * mixed

    def penalty(self) -> Tensor:
        """‖w‖²: λ times it, added to a loss, keeps the weights near their mean."""
        return self.w.square().sum()


def _normalised(layer: Tensor, mask: Tensor | None) -> Tensor:
    real = layer if mask is None else layer[mask]
    mean, variance = real.mean(), real.var(correction=0)
    normed = (layer - mean) / torch.sqrt(variance + 1e-12)
    return normed if mask is None else normed * mask[..., None]
