"""The recurrent state-space model of world models: a deterministic path and sampled categorical latents, in one step.

Its samples come from declared noise, so two calls of a layer differ; therefore it is no registered cell, which the
estimators and comparisons choose from. Use it as `rc.Recurrent(rc.cells.RSSM, …)`.
"""

import torch
from torch import Tensor, sigmoid, softmax, tanh

from ..cell import Cell, positive_int
from ..errors import InputError


class RSSM(Cell):
    """Recurrent state-space model (Hafner et al. 2021, 2023): a GRU and categorical latents, sampled in every step.

    The GRU reads the last latents and the action. From its state h follow the prior of the latents, and with the
    embedding of the observation the posterior. The latents z are one-hot samples of the posterior; their gradients are
    straight-through: those of the probabilities.

    **Arguments**

    - `input_size`: D, of which the last `actions` features are the action and those before the embedding.
    - `hidden_size`: H, the size of h. `actions`: how many features the action has, at least 1.
    - `latents`, `classes`: L latents of K classes each.
    - `unimix`: the share of a uniform distribution mixed into both, as in DreamerV3.

    With `cell.imagine = True` the latents are samples of the prior, and the embedding is not read.

    **Returns**, as a layer, outputs (T, B, H + 3 L K): h, z, and the logarithms of the prior and of the posterior
    probabilities; `cell.split(y)` takes them apart.

    **Example**

        >>> layer = rc.Recurrent(rc.cells.RSSM, 10, 16, actions=2, latents=4, classes=8)
        >>> y, (h, z) = layer(torch.randn(5, 3, 10))
        >>> h, z, prior, posterior = layer.cells[0].split(y)
        >>> z.shape, z.round().sum(-1).unique()
        (torch.Size([5, 3, 4, 8]), tensor([1.], grad_fn=...))
    """

    paper, year = "Hafner, Lillicrap, Norouzi & Ba, Mastering Atari with Discrete World Models", 2021
    states = ("h", "z")
    actions: int

    def __init__(
        self, input_size: int, hidden_size: int, actions: int = 1, latents: int = 8, classes: int = 8,
        unimix: float = 0.01,
    ):  # fmt: skip
        if positive_int("actions", actions) >= input_size:
            raise InputError("actions", actions, f"fewer features than input_size = {input_size}")
        if not 0 <= unimix < 1:
            raise InputError("unimix", unimix, "a share in [0, 1)")
        width = positive_int("latents", latents) * positive_int("classes", classes)
        self.__dict__["actions"] = actions  # read by `_width`
        super().__init__(input_size, hidden_size, sizes={"z": width}, output_size=hidden_size + 3 * width)
        self.latents, self.classes, self.unimix, self.imagine = latents, classes, unimix, False
        self.r, self.k, self.c = (self.affine("x", "h", "z") for _ in range(3))
        self.prior, self.posterior = (self.affine("h", size=width) for _ in range(2))
        self.seen = self.affine(input_size - actions, size=width, bias=False)
        self.noise("u", "z", distribution="uniform")

    def _width(self, operand: str | int) -> int:
        return self.actions if operand == "x" else super()._width(operand)

    def step(self, x: Tensor, h: Tensor, z: Tensor, *, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a = x[:, self.input_size - self.actions :]
        r = sigmoid(self.r(a, h, z))
        k = sigmoid(self.k(a, h, z) - 1)
        g = tanh(r * self.c(a, h, z))
        h = (1 - k) * h + k * g
        p = self._mixed(self.prior(h))
        q = self._mixed(self.posterior(h) + self.seen(x[:, : self.input_size - self.actions]))
        drawn = p if self.imagine else q
        score = torch.log(drawn) - torch.log(-torch.log(u.unflatten(-1, (self.latents, self.classes))))
        s = torch.where(score == score.amax(-1, keepdim=True), torch.ones_like(score), torch.zeros_like(score))
        z = (s + drawn - drawn.detach()).flatten(1)
        return torch.cat([h, z, torch.log(p).flatten(1), torch.log(q).flatten(1)], dim=-1), h, z

    def _mixed(self, logits: Tensor) -> Tensor:
        """Probabilities (B, L, K), mixed with uniform ones."""
        shares = softmax(logits.unflatten(-1, (self.latents, self.classes)), dim=-1)
        return (1 - self.unimix) * shares + self.unimix / self.classes

    def split(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """h (…, H), z, and the log-probabilities of prior and posterior, (…, L, K) each, of outputs."""
        width = self.latents * self.classes
        h, *rest = y.split([self.hidden_size, width, width, width], dim=-1)
        z, prior, posterior = (part.unflatten(-1, (self.latents, self.classes)) for part in rest)
        return h, z, prior, posterior
