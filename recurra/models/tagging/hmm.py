"""Hidden Markov models, trained by Baum-Welch expectation maximisation (Rabiner 1989).

The model is a chain with emissions log p(x_t | s) and transitions log p(s' | s). The expected counts of an EM step are
derivatives of the log-likelihood: by log p(s' | s) the expected transitions, by log p(x_t | s) the posteriors.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...cell import positive_int
from ...errors import DtypeError, InputError, OptionError, ShapeError, UnknownNameError
from ...ragged import check_lengths
from . import chain_kernel
from .chain import Chain
from .markov import IMPOSSIBLE, NEVER, log_or_never, posteriors
from .schemes import AllowedTransitions


def left_right(states: int, jump: int = 1) -> AllowedTransitions:
    """A topology from the first state to the last: a state stays, or moves on by up to `jump` states.

    **Example**

        >>> rc.models.left_right(3).transitions.int().tolist()
        [[1, 1, 0], [0, 1, 1], [0, 0, 1]]
    """
    places = torch.arange(positive_int("states", states))
    ahead = places - places[:, None]
    return AllowedTransitions((ahead >= 0) & (ahead <= positive_int("jump", jump)), places == 0, places == states - 1)


def ergodic(states: int) -> AllowedTransitions:
    """A topology in which every state may follow every state, begin and end.

    **Example**

        >>> rc.models.ergodic(2).transitions.tolist()
        [[True, True], [True, True]]
    """
    count = positive_int("states", states)
    return AllowedTransitions(*(torch.ones(shape, dtype=torch.bool) for shape in ((count, count), count, count)))


TOPOLOGIES = {"ergodic": ergodic, "left_right": left_right}


class Symbols(nn.Module):
    """Emissions of `count` discrete symbols, (T, B) int64: p(x | s) is a table."""

    def __init__(self, states: int, count: int):
        super().__init__()
        self.count = positive_int("symbols", count)
        self.register_buffer("logs", log_or_never(_normalize_rows(torch.rand(states, count) + 0.5)))

    def check(self, x: Tensor) -> Tensor:
        if not isinstance(x, Tensor) or x.dim() != 2:
            raise ShapeError("x", tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__, "symbols, (T, B)")
        if x.is_floating_point() or x.dtype == torch.bool:
            raise DtypeError("x", x.dtype, "symbols, as whole numbers")
        return x

    def check_values(self, x: Tensor) -> None:
        low, high = int(x.min()), int(x.max())
        if low < 0 or high >= self.count:
            raise InputError("x", low if low < 0 else high, f"symbols from 0 to {self.count - 1}")

    def log_likelihood(self, x: Tensor) -> Tensor:
        """(T, B) → (T, B, S)."""
        return self.get_buffer("logs").T[x.clamp(0, self.count - 1)]  # padding may hold any number

    def begin(self, x: Tensor, generator: torch.Generator | None) -> None:
        """Random tables, to break the symmetry of the states."""
        logs = self.get_buffer("logs")
        noise = torch.rand(logs.shape, generator=generator, dtype=logs.dtype).to(logs.device)
        logs.copy_(log_or_never(_normalize_rows(noise + 0.5)))

    def update(self, x: Tensor, weights: Tensor) -> None:
        """Estimate the table from symbols (N,) and the posteriors of their states, (N, S)."""
        counts = weights.new_zeros(self.count, weights.shape[-1]).index_add_(0, x, weights).T
        logs = self.get_buffer("logs")
        logs.copy_(torch.where(counts.sum(1, keepdim=True) > 0, log_or_never(_normalize_rows(counts)), logs))

    def draw(self, states: Tensor, generator: torch.Generator | None) -> Tensor:
        rows = self.get_buffer("logs")[states].exp()
        return torch.multinomial(rows, 1, generator=generator).squeeze(1)


class Gaussians(nn.Module):
    """Emissions of vectors, (T, B, size): p(x | s) is a Gaussian with diagonal covariance."""

    def __init__(self, states: int, size: int, floor: float = 1e-4):
        super().__init__()
        self.size, self.floor = positive_int("features", size), floor
        self.register_buffer("mean", torch.randn(states, size))
        self.register_buffer("variance", torch.ones(states, size))

    def check(self, x: Tensor) -> Tensor:
        if not isinstance(x, Tensor) or x.dim() != 3 or x.shape[-1] != self.size:
            got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ShapeError("x", got, f"vectors, (T, B, {self.size})")
        return x.to(self.get_buffer("mean").dtype)

    def check_values(self, x: Tensor) -> None:
        if not bool(x.isfinite().all()):
            raise InputError("x", "a number that is not finite", "finite numbers")

    def log_likelihood(self, x: Tensor) -> Tensor:
        mean, variance = self.get_buffer("mean"), self.get_buffer("variance")
        squares = (x[..., None, :] - mean).square() / variance
        return -0.5 * (squares + variance.log() + 1.8378770664093453).sum(dim=-1)  # log 2π

    def begin(self, x: Tensor, generator: torch.Generator | None) -> None:
        """Means at random frames, variances of all the data."""
        states = len(self.get_buffer("mean"))
        chosen = torch.randperm(len(x), generator=generator)[:states].to(x.device)
        self.get_buffer("mean").copy_(x[chosen.repeat(-(-states // len(chosen)))[:states]])
        self.get_buffer("variance").copy_(x.var(0, correction=0).clamp(min=self.floor).expand(states, -1))

    def update(self, x: Tensor, weights: Tensor) -> None:
        total = weights.sum(0)[:, None]
        used = total > 0
        mean = weights.T @ x / total.clamp(min=1e-30)
        around = (x[:, None] - mean).square()  # (N, S, size)
        variance = (weights[..., None] * around).sum(0) / total.clamp(min=1e-30)
        self.get_buffer("mean").copy_(torch.where(used, mean, self.get_buffer("mean")))
        wide = variance.clamp(min=self.floor)
        self.get_buffer("variance").copy_(torch.where(used, wide, self.get_buffer("variance")))

    def draw(self, states: Tensor, generator: torch.Generator | None) -> Tensor:
        mean, deviation = self.get_buffer("mean")[states], self.get_buffer("variance")[states].sqrt()
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)
        return mean + deviation * noise


class HMM(nn.Module):
    """A hidden Markov model with discrete or Gaussian emissions, trained by Baum-Welch (`fit`).

    `viterbi` finds the best states, `posteriors` their probabilities, `sample` draws sequences.

    **Arguments**

    - `states`: S, the number of hidden states.
    - `symbols`: for discrete observations, the number of different symbols.
    - `features`: for real-valued observations, the number of features; each state has a Gaussian with diagonal
      covariance. Give either `symbols` or `features`.
    - `topology`: `"ergodic"`, `"left_right"`, or the result of `rc.models.left_right(states, jump=2)` and the like.
      Transitions that it forbids stay impossible.

    **Returns**

    `hmm(x, lengths)`: symbols (T, B) or vectors (T, B, features) → log p(x) of every sequence, (B,).

    **Example**

        >>> hmm = rc.HMM(2, symbols=3)
        >>> x = torch.randint(0, 3, (20, 4))
        >>> history = hmm.fit(x, iterations=5)
        >>> history == sorted(history)  # the likelihood never falls
        True
        >>> states, log_p = hmm.viterbi(x)
        >>> states.shape, log_p.shape
        (torch.Size([20, 4]), torch.Size([4]))
    """

    def __init__(
        self,
        states: int,
        *,
        symbols: int | None = None,
        features: int | None = None,
        topology: str | AllowedTransitions = "ergodic",
    ):
        super().__init__()
        self.states = positive_int("states", states)
        if (symbols is None) == (features is None):
            raise OptionError("symbols, features", f"{symbols} and {features}", "one of the two")
        if isinstance(topology, str):
            if topology not in TOPOLOGIES:
                raise UnknownNameError("topology", repr(topology), TOPOLOGIES)
            topology = TOPOLOGIES[topology](states)
        if not isinstance(topology, AllowedTransitions):
            raise InputError("topology", repr(topology), "the name of a topology, or AllowedTransitions")
        if topology.transitions.shape != (states, states):
            raise ShapeError("topology", tuple(topology.transitions.shape), f"({states}, {states})")
        self.emission = Symbols(states, symbols) if symbols is not None else Gaussians(states, features or 0)
        for name in ("transitions", "start"):
            allowed = getattr(topology, name)
            self.register_buffer(name, log_or_never(_normalize_rows(allowed * (1 + 0.2 * torch.rand(allowed.shape)))))
        # Ends are not scored; the topology only forbids some states as the last.
        self.register_buffer("end", torch.where(topology.end, 0.0, NEVER))

    # ------------------------------------------------------------------------------------------ inference

    def chain(self, x: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Chain:
        """The checked scores of a batch."""
        x = self.emission.check(x)
        steps, batch = x.shape[:2]
        if steps == 0:
            raise ShapeError("x", tuple(x.shape), "at least one step")
        given = torch.full((batch,), steps, device=x.device) if lengths is None else lengths
        sizes = check_lengths(given, steps, batch, x.device)
        inside = torch.arange(steps, device=x.device)[:, None] < sizes
        self.emission.check_values(x[inside])
        emissions = self.emission.log_likelihood(x).masked_fill(~inside[..., None], 0.0)
        transitions, start, end = (self.get_buffer(name) for name in ("transitions", "start", "end"))
        return Chain(emissions, transitions, start, end, sizes)

    def forward(self, x: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """log p(x), -inf for a sequence that no path can emit: (B,)."""
        value = chain_kernel.log_partition(self.chain(x, lengths))
        return torch.where(value < IMPOSSIBLE, float("-inf"), value)

    @torch.no_grad()
    def viterbi(self, x: Tensor, lengths: Tensor | Sequence[int] | None = None) -> tuple[Tensor, Tensor]:
        """The most probable states, (T, B) with -100 past the end, and log p(x, states), (B,)."""
        path, value = chain_kernel.best_path(self.chain(x, lengths))
        return path, torch.where(value < IMPOSSIBLE, float("-inf"), value)

    def posteriors(self, x: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """p(s at t | x) by forward-backward, zero past the end: (T, B, S)."""
        return posteriors(self.chain(x, lengths))

    @torch.no_grad()
    def sample(self, steps: int, count: int = 1, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """`count` sampled sequences of `steps` observations, (T, B, …), and their states, (T, B).

        Only paths that end in a final state of the topology are sampled.
        """
        transitions, start, end = (self.get_buffer(name) for name in ("transitions", "start", "end"))
        ahead = [end]  # log p(a valid end | s), from the last step to the first
        for _ in range(positive_int("steps", steps) - 1):
            ahead.append(torch.logsumexp(transitions + ahead[-1], dim=1))
        states, scores = [], start.expand(positive_int("count", count), -1)
        for remaining in reversed(ahead):
            states.append(torch.multinomial((scores + remaining).softmax(-1), 1, generator=generator).squeeze(1))
            scores = transitions[states[-1]]
        path = torch.stack(states)
        return torch.stack([self.emission.draw(one, generator) for one in path]), path

    # ------------------------------------------------------------------------------------------ learning

    @torch.no_grad()
    def fit(
        self,
        x: Tensor,
        lengths: Tensor | Sequence[int] | None = None,
        iterations: int = 100,
        tolerance: float = 1e-6,
        fresh: bool = True,
        generator: torch.Generator | None = None,
    ) -> list[float]:
        """Train by Baum-Welch until log p(x) per step grows by less than `tolerance`.

        `fresh` initialises the emissions from the data first; with False, training continues from the present ones.
        Returns log p(x) before every iteration.
        """
        chain = self.chain(x, lengths)
        x, inside = self.emission.check(x), chain.mask
        seen = x[inside]
        if fresh:
            self.emission.begin(seen, generator)
        history: list[float] = []
        for _ in range(positive_int("iterations", iterations)):
            value, weights, moves, starts = self._expected(self.chain(x, lengths))
            history.append(value)
            if len(history) > 1 and history[-1] - history[-2] < tolerance * len(seen):
                break
            self.emission.update(seen, weights[inside])
            for name, counts in (("transitions", moves), ("start", starts)):
                table = self.get_buffer(name)
                known = counts.sum(-1, keepdim=True) > 0
                table.copy_(torch.where(known, log_or_never(_normalize_rows(counts)), table))
        return history

    def _expected(self, chain: Chain) -> tuple[float, Tensor, Tensor, Tensor]:
        """log p(x), and the expected counts of states per step, of transitions, and of first states."""
        with torch.enable_grad():
            emissions, transitions, start = (part.detach().clone().requires_grad_() for part in chain[:3])
            values = chain_kernel.log_partition(Chain(emissions, transitions, start, chain.end, chain.lengths))
            impossible = (values < IMPOSSIBLE).nonzero().flatten().tolist()
            if impossible:
                raise InputError(
                    "x", f"sequence {impossible[0]}, which no path of states can give", "sequences the topology allows"
                )
            inputs = emissions, transitions, start
            states, moves, starts = torch.autograd.grad(values.sum(), inputs, materialize_grads=True)
        return float(values.sum()), states, moves, starts


def _normalize_rows(counts: Tensor) -> Tensor:
    """Scale rows to a sum of one; rows of zeros stay zero."""
    return counts / counts.sum(-1, keepdim=True).clamp(min=1e-30)
