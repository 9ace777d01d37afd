"""Cells whose memory is a matrix for every head: fast weights, linear attention and the delta rule.

Keys k write values v into the matrix by outer products, queries q read it. The projections of x and the recurrence are
here; the convolution, normalisation and output gate of a published block belong to the network around the cell.
"""

import math

import torch
from torch import Tensor, nn, relu, sigmoid, tanh
from torch.nn.functional import elu, layer_norm, logsigmoid, normalize, silu, softplus

from .. import init
from ..argument_checks import positive_int, positive_number, probability
from ..cell import Affine, Cell, register
from ..errors import InputError

HEAD_SIZE = 64  # values of a head, where the number of heads is not given


def head_shape(hidden_size: int, heads: int | None, key_size: int | None) -> tuple[int, int, int]:
    """`(heads, keys, values)` of a memory that puts out `hidden_size` numbers."""
    positive_int("hidden_size", hidden_size)
    if heads is None:
        heads = next(n for n in range(max(1, hidden_size // HEAD_SIZE), 0, -1) if hidden_size % n == 0)
    if hidden_size % positive_int("heads", heads):
        raise InputError("heads", heads, f"a divisor of hidden_size = {hidden_size}")
    values = hidden_size // heads
    return heads, values if key_size is None else positive_int("key_size", key_size), values


def outer(k: Tensor, v: Tensor) -> Tensor:
    """`k vᵀ` of every head: (B, heads, keys) and (B, heads, values) → (B, heads, keys, values)."""
    return k.unsqueeze(-1) * v.unsqueeze(-2)


def read(S: Tensor, q: Tensor) -> Tensor:
    """`q S` of every head: (B, heads, keys, values) and (B, heads, keys) → (B, heads, values)."""
    return (q.unsqueeze(-2) @ S).squeeze(-2)


class Attention(Cell):
    """Base class: queries, keys and values of every head, projected from x, and the matrix S that they share."""

    states = ("S",)

    def __init__(self, input_size: int, hidden_size: int, heads: int | None = None, key_size: int | None = None):
        self.heads, self.keys, self.values = head_shape(hidden_size, heads, key_size)
        super().__init__(input_size, hidden_size, sizes=self._sizes(input_size), output_size=hidden_size)
        self.q, self.k = (self.affine("x", size=self.heads * self.keys, bias=False) for _ in range(2))
        self.v = self.affine("x", bias=False)

    def _sizes(self, input_size: int) -> dict[str, int | tuple[int, ...]]:
        """The sizes of all states."""
        return {"S": (self.heads, self.keys, self.values)}

    def by_head(self, value: Tensor) -> Tensor:
        """(B, heads · n) → (B, heads, n)."""
        return value.unflatten(-1, (self.heads, -1))


@register("linear_transformer")
class LinearTransformer(Attention):
    """Attention with the kernel elu + 1 as a recurrence: S sums outer products, z sums keys to normalise them."""

    paper, year = "Katharopoulos, Vyas, Pappas & Fleuret, Transformers are RNNs", 2020
    states = ("S", "z")

    def _sizes(self, input_size: int) -> dict[str, int | tuple[int, ...]]:
        return {"S": (self.heads, self.keys, self.values), "z": (self.heads, self.keys)}

    def step(self, x: Tensor, S: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q = self.by_head(elu(self.q(x)) + 1)
        k = self.by_head(elu(self.k(x)) + 1)
        v = self.by_head(self.v(x))
        S = S + outer(k, v)
        z = z + k
        y = read(S, q) / (z * q).sum(-1, keepdim=True)
        return y.flatten(1), S, z


@register("delta_net")
class DeltaNet(Attention):
    """Fast weights written by the delta rule: what a key reads is moved towards its value by the rate β."""

    paper, year = "Schlag, Irie & Schmidhuber, Linear Transformers Are Secretly Fast Weight Programmers", 2021

    def __init__(self, input_size: int, hidden_size: int, heads: int | None = None, key_size: int | None = None):
        super().__init__(input_size, hidden_size, heads, key_size)
        self.b = self.affine("x", size=self.heads)

    def step(self, x: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
        q = self._feature(self.q(x))
        k = self._feature(self.k(x))
        v = self.by_head(self.v(x))
        beta = sigmoid(self.b(x)).unsqueeze(-1)
        S = S + outer(k, beta * (v - read(S, k)))
        return read(S, q).flatten(1), S

    def _feature(self, value: Tensor) -> Tensor:
        """Positive numbers of every head that sum to one."""
        positive = self.by_head(elu(value) + 1)
        return positive / positive.sum(-1, keepdim=True)


@register("gated_delta_net")
class GatedDeltaNet(Attention):
    """The delta rule on a memory that decays by α; queries and keys have length one."""

    paper, year = "Yang, Kautz & Hatamizadeh, Gated Delta Networks: Improving Mamba2 with Delta Rule", 2024

    def __init__(self, input_size: int, hidden_size: int, heads: int | None = None, key_size: int | None = None):
        super().__init__(input_size, hidden_size, heads, key_size)
        self.a, self.b = (self.affine("x", size=self.heads) for _ in range(2))
        self.log_rate = nn.Parameter(torch.empty(self.heads).uniform_(1, 16).log())
        steps = torch.exp(torch.empty(self.heads).uniform_(math.log(1e-3), math.log(0.1)))
        with torch.no_grad():
            self.a.b.copy_(steps + torch.log(-torch.expm1(-steps)))  # softplus of the bias is the step

    def step(self, x: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
        q = normalize(self.by_head(silu(self.q(x))), dim=-1) / math.sqrt(self.keys)
        k = normalize(self.by_head(silu(self.k(x))), dim=-1)
        v = self.by_head(silu(self.v(x)))
        alpha = torch.exp(-torch.exp(self.log_rate) * softplus(self.a(x)))
        beta = sigmoid(self.b(x)).unsqueeze(-1)
        kept = alpha[..., None, None] * S
        S = kept + outer(k, beta * (v - read(kept, k)))
        return read(S, q).flatten(1), S


@register("mlstm")
class MLSTM(Attention):
    """LSTM with a matrix memory C, exponential gates, a normaliser n and a stabiliser m; the matrix cell of xLSTM."""

    paper, year = "Beck et al., xLSTM: Extended Long Short-Term Memory", 2024
    states = ("C", "n", "m")
    keep, write = ("f",), ("i",)

    def __init__(self, input_size: int, hidden_size: int, heads: int | None = None, key_size: int | None = None):
        super().__init__(input_size, hidden_size, heads, key_size)
        self.i, self.f = (self.affine("x", size=self.heads) for _ in range(2))
        self.o = self.affine("x")
        init.constant_(self.i.U, 0.0)
        init.constant_(self.f.U, 0.0)
        init.normal_(self.i.b, 0.1)
        with torch.no_grad():
            self.f.b.copy_(torch.linspace(3.0, 6.0, self.heads))

    def _sizes(self, input_size: int) -> dict[str, int | tuple[int, ...]]:
        return {"C": (self.heads, self.keys, self.values), "n": (self.heads, self.keys), "m": self.heads}

    def step(self, x: Tensor, C: Tensor, n: Tensor, m: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        q = self.by_head(self.q(x))
        k = self.by_head(self.k(x)) / math.sqrt(self.keys)
        v = self.by_head(self.v(x))
        log_i = self.i(x)
        log_f = logsigmoid(self.f(x)) + m
        m = torch.maximum(log_f, log_i)
        i = torch.exp(log_i - m).unsqueeze(-1)
        f = torch.exp(log_f - m).unsqueeze(-1)
        C = f.unsqueeze(-1) * C + outer(i * k, v)
        n = f * n + i * k
        size = torch.maximum((n * q).sum(-1).abs(), torch.exp(-m)).unsqueeze(-1)
        o = sigmoid(self.o(x))
        return o * (read(C, q) / size).flatten(1), C, n, m


@register("retention")
class Retention(Attention):
    """A memory that each head forgets at its own fixed rate; queries and keys turn with time (RetNet)."""

    paper, year = "Sun et al., Retentive Network: A Successor to Transformer for Large Language Models", 2023

    def __init__(self, input_size: int, hidden_size: int, heads: int | None = None, key_size: int | None = None):
        if key_size is None:  # keys turn in pairs
            values = head_shape(hidden_size, heads, None)[2]
            key_size = values + values % 2
        if positive_int("key_size", key_size) % 2:
            raise InputError("key_size", key_size, "an even number: keys turn in pairs")
        super().__init__(input_size, hidden_size, heads, key_size)
        self.register_buffer("gamma", 1 - 2.0 ** (-5 - torch.arange(self.heads)), persistent=False)
        pairs = torch.arange(self.keys // 2)
        self.register_buffer("theta", 10000.0 ** (-pairs / max(1, len(pairs) - 1)), persistent=False)

    def step(self, x: Tensor, S: Tensor, *, t: Tensor) -> tuple[Tensor, Tensor]:
        angle = t * self.theta
        q = self._turn(self.by_head(self.q(x)) / math.sqrt(self.keys), angle)
        k = self._turn(self.by_head(self.k(x)), angle)
        v = self.by_head(self.v(x))
        S = self.gamma[:, None, None] * S + outer(k, v)
        return read(S, q).flatten(1), S

    def _turn(self, value: Tensor, angle: Tensor) -> Tensor:
        """The pairs of every head, (first half, second half), rotated by the angles (B, pairs)."""
        one, other = value.chunk(2, -1)
        cos, sin = torch.cos(angle).unsqueeze(1), torch.sin(angle).unsqueeze(1)
        return torch.cat([one * cos - other * sin, other * cos + one * sin], -1)


@register("gla", "gated_linear_attention")
class GatedLinearAttention(Attention):
    """Linear attention whose memory decays by α, which x sets for every key."""

    paper, year = "Yang, Wang, Shen, Panda & Kim, Gated Linear Attention Transformers", 2023

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        heads: int | None = None,
        key_size: int | None = None,
        rank: int = 16,
        temperature: float = 16.0,
    ):
        super().__init__(input_size, hidden_size, heads, key_size)
        self.low = self.affine("x", size=positive_int("rank", rank), bias=False)
        self.a = self.affine(rank, size=self.heads * self.keys)
        self.temperature = positive_number("temperature", temperature)

    def step(self, x: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
        q = self.by_head(self.q(x)) / math.sqrt(self.keys)
        k = self.by_head(self.k(x))
        v = self.by_head(self.v(x))
        alpha = self.by_head(torch.exp(logsigmoid(self.a(self.low(x))) / self.temperature))
        S = alpha.unsqueeze(-1) * S + outer(k, v)
        return read(S, q).flatten(1), S


class TokenShift(Attention):
    """Base class: every projection reads a mix of x and p, the input of the step before."""

    states = ("S", "p")

    def __init__(
        self, input_size: int, hidden_size: int, heads: int | None = None, key_size: int | None = None, rank: int = 32
    ):
        super().__init__(input_size, hidden_size, heads, key_size)
        self.rank = positive_int("rank", rank)

    def _sizes(self, input_size: int) -> dict[str, int | tuple[int, ...]]:
        return {"S": (self.heads, self.keys, self.values), "p": input_size}

    def _low_rank(self, size: int) -> tuple[Affine, Affine]:
        """`(A, B)`: x → rank → size."""
        return self.affine("x", size=self.rank, bias=False), self.affine(self.rank, size=size)


@register("rwkv6")
class RWKV6(TokenShift):
    """Linear attention with a decay w that x sets and a bonus u for the present key (Finch)."""

    paper, year = "Peng et al., Eagle and Finch: RWKV with Matrix-Valued States and Dynamic Recurrence", 2024

    def __init__(
        self, input_size: int, hidden_size: int, heads: int | None = None, key_size: int | None = None, rank: int = 32
    ):
        super().__init__(input_size, hidden_size, heads, key_size, rank)
        self.mu = self.vector(input_size, 0.5)
        self.low_q, self.mix_q = self._low_rank(input_size)
        self.low_k, self.mix_k = self._low_rank(input_size)
        self.low_v, self.mix_v = self._low_rank(input_size)
        self.low_w, self.mix_w = self._low_rank(input_size)
        self.low, self.w = self._low_rank(self.heads * self.keys)
        self.u = nn.Parameter(torch.zeros(self.heads, self.keys))
        for mixing in (self.mix_q, self.mix_k, self.mix_v, self.mix_w):
            init.constant_(mixing.b, 0.5)
        with torch.no_grad():  # decays from slow to fast
            self.w.b.copy_(torch.linspace(-6.0, -1.0, self.keys).repeat(self.heads))

    def step(self, x: Tensor, S: Tensor, p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        d = p - x
        z = x + d * self.mu
        x_q = x + d * self.mix_q(tanh(self.low_q(z)))
        x_k = x + d * self.mix_k(tanh(self.low_k(z)))
        x_v = x + d * self.mix_v(tanh(self.low_v(z)))
        x_w = x + d * self.mix_w(tanh(self.low_w(z)))
        q = self.by_head(self.q(x_q))
        k = self.by_head(self.k(x_k))
        v = self.by_head(self.v(x_v))
        w = self.by_head(torch.exp(-torch.exp(self.w(tanh(self.low(x_w))))))
        new = outer(k, v)
        y = read(S + self.u.unsqueeze(-1) * new, q) / math.sqrt(self.keys)
        return y.flatten(1), w.unsqueeze(-1) * S + new, x


@register("rwkv7")
class RWKV7(TokenShift):
    """A memory that decays by w and unlearns, at the rate a, what it holds at the removal key r (Goose)."""

    paper, year = "Peng et al., RWKV-7 Goose with Expressive Dynamic State Evolution", 2025

    def __init__(
        self, input_size: int, hidden_size: int, heads: int | None = None, key_size: int | None = None, rank: int = 32
    ):
        super().__init__(input_size, hidden_size, heads, key_size, rank)
        units = self.heads * self.keys
        self.mu_q, self.mu_k, self.mu_v, self.mu_w, self.mu_a = (self.vector(input_size, 0.5) for _ in range(5))
        self.low_w, self.w = self._low_rank(units)
        self.low_a, self.a = self._low_rank(units)
        self.removal, self.replacement = self.vector(units, 0.85), self.vector(units, 1.0)
        with torch.no_grad():  # decays from slow to fast
            self.w.b.copy_(torch.linspace(-6.0, 0.0, self.keys).repeat(self.heads))

    def step(self, x: Tensor, S: Tensor, p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        d = p - x
        q = self.by_head(self.q(x + d * self.mu_q))
        key = self.k(x + d * self.mu_k)
        v = self.by_head(self.v(x + d * self.mu_v))
        w = self.by_head(torch.exp(-math.exp(-0.5) * sigmoid(self.w(tanh(self.low_w(x + d * self.mu_w))))))
        a = sigmoid(self.a(self.low_a(x + d * self.mu_a)))
        r = normalize(self.by_head(key * self.removal), dim=-1)
        k = self.by_head(key * (1 + (a - 1) * self.replacement))
        S = w.unsqueeze(-1) * S - outer(self.by_head(a) * r, read(S, r)) + outer(k, v)
        return read(S, q).flatten(1), S, x


@register("fast_weights")
class FastWeights(Cell):
    """Rectified units with a second, fast weight matrix A: a decaying sum of outer products of recent states."""

    paper, year = "Ba, Hinton, Mnih, Leibo & Ionescu, Using Fast Weights to Attend to the Recent Past", 2016
    states = ("h", "A")

    def __init__(self, input_size: int, hidden_size: int, decay: float = 0.95, rate: float = 0.5, loops: int = 1):
        super().__init__(input_size, hidden_size, sizes={"A": (hidden_size, hidden_size)})
        self.a = self.affine("x", "h")
        self.gain, self.shift = self.vector(fill=1.0), self.vector()
        self.decay, self.rate, self.loops = probability("decay", decay), rate, positive_int("loops", loops)
        init.identity_(self.a.W, 0.05)

    def step(self, x: Tensor, h: Tensor, A: Tensor) -> tuple[Tensor, Tensor]:
        a = self.a(x, h)
        A = self.decay * A + self.rate * outer(h, h)
        h = relu(a)
        for _ in range(self.loops):
            z = a + (A @ h.unsqueeze(-1)).squeeze(-1)
            h = relu(self.gain * layer_norm(z, (self.hidden_size,)) + self.shift)
        return h, A
