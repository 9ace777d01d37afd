"""Cells written to be hard for the engines: each needs something most cells of the zoo do not."""

import torch
import torch.nn.functional as F
from torch import Tensor, sigmoid, tanh

from recurra.cell import Cell
from recurra.cells import spike


class TwoChainedProducts(Cell):
    """A product of a product: three levels, the middle one of another width."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h", size=hidden_size + 3)
        self.b = self.affine(hidden_size + 3)
        self.c = self.affine(hidden_size, "x")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        first = tanh(self.a(x, h))
        return h + 0.5 * tanh(self.c(sigmoid(self.b(first)) * h, x))


class RowNormalised(Cell):
    """Layer norm by hand and by torch, a softmax-like weighting, a row sum without keepdim."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a, self.b = self.affine("x", "h"), self.affine("x", "h")
        self.gain = self.vector(fill=0.7)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        a = self.a(x, h)
        centred = a - a.mean(-1, keepdim=True)
        a = centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + 1e-3) * self.gain
        b = F.layer_norm(self.b(x, h), (h.shape[-1],), self.gain)
        share = torch.exp(b) / torch.exp(b).sum(-1)[:, None]
        return tanh(a) + share * h


class FourStates(Cell):
    """Four states of different widths, one of them a single number, and an output that is none of them."""

    states = ("h", "c", "n", "s")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size, sizes={"n": 1, "s": 3}, output_size=hidden_size + 3)
        self.i, self.f = self.affine("x", "h", "s"), self.affine("h", "x")
        self.gate, self.slow = self.affine("c", "x", size=1), self.affine("x", "s", size=3, bias=False)
        self.rate = torch.nn.Parameter(torch.tensor(0.3))

    def step(self, x: Tensor, h: Tensor, c: Tensor, n: Tensor, s: Tensor) -> tuple[Tensor, ...]:
        n = 0.9 * n + sigmoid(self.gate(c, x))
        c = sigmoid(self.f(h, x)) * c + tanh(self.i(x, h, s)) * n
        s = (1 - self.rate) * s + self.rate * tanh(self.slow(x, s))
        h = tanh(c) / (1 + n * n)
        return torch.cat([h * 2, s], -1), h, c, n, s


class Delays(Cell):
    """Products with two delays, and a third read plainly."""

    states = ("h", "c")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size, delays={"h": (1, 2, 4)})
        self.a = self.affine("x", "h[1]", "h[4]")
        self.b = self.affine(hidden_size)

    def step(self, x: Tensor, h: tuple[Tensor, ...], c: Tensor) -> tuple[Tensor, Tensor]:
        one, two, four = h
        c = 0.5 * c + tanh(self.a(x, one, four)) * two
        return tanh(self.b(c)) + 0.1 * four, c


class Pieces(Cell):
    """One fused product cut into gates, states cut and joined again."""

    states = ("h", "m")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size, sizes={"m": 2 * hidden_size})
        self.all = self.affine("x", "h", size=4 * hidden_size)
        self.mix = self.affine(2 * hidden_size)

    def step(self, x: Tensor, h: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        i, f, o, z = self.all(x, h).chunk(4, -1)
        old, older = m.split(h.shape[-1], -1)
        c = sigmoid(f) * old + sigmoid(i) * tanh(z) + 0.1 * older
        joined = torch.cat([c, tanh(old)], -1)
        return sigmoid(o) * tanh(self.mix(joined)), torch.cat([c, old], -1)


class MasksAndTime(Cell):
    """A mask a sequence, a mask a step, the time index, and a value that is not to be differentiated."""

    states = ("h",)

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a, self.b = self.affine("x", "h"), self.affine("x")
        self.mask("drop", "h", 0.4)
        self.mask("noise", "x", 0.3, each="step")

    def step(self, x: Tensor, h: Tensor, *, t: Tensor, drop: Tensor, noise: Tensor) -> Tensor:
        wave = torch.remainder(t, 3.0) / 3.0 + torch.cos(0.5 * t)
        kept = torch.where(wave > 0.2, self.a(x * noise, h * drop), h)
        return tanh(kept + wave * self.b(x)) + 0.1 * h.detach() * torch.clamp(h, -0.3, 0.4)


class TiedAndPlain(Cell):
    """A weight used twice, a matrix applied from the other side, functions of weights inside the step."""

    states = ("h",)

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")
        self.skew = torch.nn.Parameter(torch.randn(hidden_size, hidden_size) / hidden_size**0.5)
        self.low, self.high = (
            torch.nn.Parameter(torch.randn(2, hidden_size)),
            torch.nn.Parameter(torch.randn(hidden_size, 2)),
        )
        self.tau = self.vector(fill=0.5)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        product = self.a(x, h)
        turned = h @ (self.skew - self.skew.t())
        leak = sigmoid(self.tau)
        narrow = F.linear(F.linear(tanh(h), self.low), self.high)
        return (1 - leak) * h + leak * tanh(product + turned) * sigmoid(product + 1.0) + 0.1 * F.softplus(narrow)


class NoProduct(Cell):
    """No H×H product at all: memory bandwidth is the limit."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x")
        self.w = self.vector(fill=0.5)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return torch.relu(self.a(x) + self.w * h)


class OneForAll(Cell):
    """A state whose columns are all the same number, computed once."""

    states = ("h", "s")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a, self.b = self.affine("x", "s", bias=False), self.affine("h")

    def step(self, x: Tensor, h: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        one = self.a(x, s)[:, :1]
        return tanh(self.b(h) + one), sigmoid(one.expand(x.shape[0], self.hidden_size))


class OnlyAMask(Cell):
    """Nothing to differentiate, and nothing to compute."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x")
        self.mask("kept", "h", 0.4)

    def step(self, x: Tensor, h: Tensor, *, kept: Tensor) -> Tensor:
        return kept


class OtherShapes(Cell):
    """Rows as columns, as matrices of one row, by heads; a weight for every sequence; assignments to slices."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.U, self.V, self.W = (
            torch.nn.Parameter(torch.randn(hidden_size, deep) / deep**0.5)
            for deep in (input_size, hidden_size, 2 * hidden_size)
        )
        self.bias = torch.nn.Parameter(torch.randn(hidden_size, 1))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        a = tanh(self.V @ h.T + self.U @ x.T + self.bias).T
        b = torch.bmm(self.V.expand(x.shape[0], -1, -1), a.unsqueeze(-1)).squeeze(-1)
        both = F.normalize(torch.stack([a, b], 1), dim=-1).flatten(1)
        c = torch.einsum("oi,bi->bo", self.W, both)
        c[:, :2] = h[:, :2]
        c[:, :1] = 0.3
        return tanh(c) + 0.2 * h


class Competing(Cell):
    """Units that share one of a row between them: its largest, a sum over it."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a, self.b = self.affine("x", "h"), self.affine("x", "h")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        a = self.a(x, h)
        return 0.5 * h + torch.softmax(a, -1) * tanh(self.b(x, h)) + 0.1 * tanh(a.logsumexp(-1, keepdim=True))


class Noisy(Cell):
    """Normal noise beside the state, uniform noise in a product and as a factor."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a, self.b, self.c = self.affine("x", "h"), self.affine("h"), self.affine(3)
        self.noise("n", "h")
        self.noise("u", 3, distribution="uniform")

    def step(self, x: Tensor, h: Tensor, *, n: Tensor, u: Tensor) -> Tensor:
        a = tanh(self.a(x, h) + self.c(torch.sqrt(u)) + 0.3 * n * h)
        return 0.5 * h + sigmoid(self.b(a)) * a * (1 + u[:, :1])


class Spiking(Cell):
    """Adaptive neurons that fire, with every surrogate."""

    states = ("s", "v", "b")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size, sizes={"b": hidden_size})
        self.a, self.c = self.affine("x", "s"), self.affine("v")

    def step(self, x: Tensor, s: Tensor, v: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        v = 0.8 * v * (1 - s) + self.a(x, s)
        b = 0.9 * b + 0.3 * s
        fires = spike(v - b, "fast_sigmoid", 2.0) * spike(v + 1, "atan")
        return fires - 0.5 * spike(self.c(v), "triangle", 0.5, scale=0.3), v, b


class RSSM(Cell):
    """A deterministic path h and categorical latents z, sampled by the Gumbel-max trick (Hafner et al. 2021)."""

    states = ("h", "z")
    latents, classes = 3, 4

    def __init__(self, input_size: int, hidden_size: int, hard: str = "largest"):
        width = self.latents * self.classes
        super().__init__(input_size, hidden_size, sizes={"z": width})
        self.a, self.logits, self.hard = self.affine("x", "h", "z"), self.affine("h", size=width), hard
        self.noise("u", "z", distribution="uniform")

    def step(self, x: Tensor, h: Tensor, z: Tensor, *, u: Tensor) -> tuple[Tensor, Tensor]:
        h = 0.5 * h + tanh(self.a(x, h, z))
        logits = self.logits(h).unflatten(-1, (self.latents, self.classes))
        score = logits - torch.log(-torch.log(u.unflatten(-1, (self.latents, self.classes))))
        if self.hard == "one_hot":
            sample = F.one_hot(score.argmax(-1), self.classes).to(h.dtype)
        else:
            sample = (score == score.amax(-1, keepdim=True)).to(h.dtype)
        probabilities = torch.softmax(logits, -1)
        return h, (sample + probabilities - probabilities.detach()).flatten(1)


class SurrogateSpike(torch.autograd.Function):
    """A hard threshold, with the derivative of a fast sigmoid (Zenke & Ganguli 2018)."""

    @staticmethod
    def forward(ctx, v: Tensor) -> Tensor:  # pyrefly: ignore
        ctx.save_for_backward(v)
        return (v > 0).to(v.dtype)

    @staticmethod
    def backward(ctx, g: Tensor) -> Tensor:  # pyrefly: ignore
        (v,) = ctx.saved_tensors
        return g / (1 + 5 * v.abs()) ** 2


class LeakySpiking(Cell):
    """Leaky integrate-and-fire: a potential, a reset that is not differentiated, spikes with a surrogate gradient."""

    states = ("s", "v")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "s")
        self.leak = self.vector(fill=1.5)

    def step(self, x: Tensor, s: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            reset = 1 - s
        v = sigmoid(self.leak) * v * reset + self.a(x, s)
        return SurrogateSpike.apply(v - 0.3), v  # pyrefly: ignore


class HalfCurved(Cell):
    """A product of the state, of which some units pass a function: the state's cotangent is carried in two parts, and
    the part that only A carries is itself multiplied by the matrix."""

    def __init__(self, input_size: int, hidden_size: int):
        units = hidden_size + 1
        super().__init__(input_size, hidden_size, sizes={"h": units}, output_size=units)
        self.A = torch.nn.Parameter(torch.full((units,), 0.6))
        self.W, self.C = self.affine("h", size=units, bias=False), self.affine("x", size=units)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        k = h.shape[1] // 2
        return self.A * h + self.W(torch.cat([h[:, :k], tanh(h[:, k:])], 1)) + self.C(x)


class UnreadState(Cell):
    """A product is a state that no step reads: only its last value has a cotangent."""

    states = ("h", "m")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.W, self.V = self.affine("x", "h"), self.affine("h")

    def step(self, x: Tensor, h: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        new = tanh(self.W(x, h))
        return new, self.V(new * h)


class InOtherOrders(Cell):
    """Turned and grouped rows, sums within a row, constants and weights in another order, and a delayed state."""

    states = ("h", "s")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size, delays={"s": (1, 2)})
        self.a, self.b = self.affine("x", "h"), self.affine("s[2]", size=3 * hidden_size)
        self.v = self.vector(fill=0.7)

    def step(self, x: Tensor, h: Tensor, s: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        last, older = s
        units = h.shape[1]
        shares = torch.softmax(self.b(older).unflatten(1, (3, units)), 1)
        mixed = (shares * torch.stack([h, last.flip(1), self.a(x, h)], 1)).sum(1)
        ramp = torch.linspace(-1.0, 1.0, units)
        turned = torch.cat([mixed[:, 1::2], mixed[:, ::2]], 1).roll(1, 1) * self.v.flip(0)
        return tanh(turned + ramp * h), tanh(turned.cumsum(1) / units) * sigmoid(h).cumprod(1) + 0.1 * older.flip(1)


STRANGE = [
    HalfCurved,
    UnreadState,
    LeakySpiking,
    Competing,
    TwoChainedProducts,
    RowNormalised,
    FourStates,
    Delays,
    Pieces,
    MasksAndTime,
    TiedAndPlain,
    NoProduct,
    OneForAll,
    OtherShapes,
]
