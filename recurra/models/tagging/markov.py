"""Hybrid hidden Markov models: a network's outputs as emissions (Graves, Fernández & Schmidhuber 2005).

A network trained frame by frame gives p(s | x_t). By Bayes' rule p(x_t | s) ∝ p(s | x_t) / p(s). With
log p(x_t | s) = log p(s | x_t) - κ log p(s) the states form a hidden Markov model whose transitions and priors are
counted in the training data.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...cell import positive_int
from ...errors import InputError, LengthsError, ShapeError
from ...ragged import check_lengths
from . import chain_kernel
from .chain import Chain
from .schemes import AllowedTransitions

NEVER = -1e30  # log 0 as a finite number, so that sums stay defined
IMPOSSIBLE = NEVER / 2


def posteriors(chain: Chain) -> Tensor:
    """p(s at t | x) by forward-backward, (T, B, S): the derivative of the log-likelihood by the emissions."""
    with torch.enable_grad():
        emissions = chain.emissions.detach().requires_grad_()
        total = chain_kernel.log_partition(chain._replace(emissions=emissions)).sum()
        return torch.autograd.grad(total, emissions)[0]


class MarkovChain(nn.Module):
    """Priors and transitions of states, counted in training data, to decode a network's scores.

    `allowed`: the transitions, first and last states that are possible at all. `scale`: κ. `smoothing` is added to
    every allowed count.
    """

    def __init__(
        self, states: int, allowed: AllowedTransitions | None = None, scale: float = 1.0, smoothing: float = 0.1
    ):
        super().__init__()
        self.states, self.scale, self.smoothing = positive_int("states", states), scale, smoothing
        if allowed is None:
            allowed = AllowedTransitions(
                *(torch.ones(shape, dtype=torch.bool) for shape in ((states, states), states, states))
            )
        for name, table in allowed._asdict().items():
            self.register_buffer(f"{name}_allowed", table, persistent=False)
            self.register_buffer(name, log_or_never(table / table.sum(-1, keepdim=True).clamp(min=1)))
        self.register_buffer("prior", torch.full((states,), -float(torch.tensor(states).log())))

    @torch.no_grad()
    def count(self, sequences: Sequence[Tensor]) -> None:
        """Estimate log p(s), log p(s' | s), and those of first and last states from state sequences, each (T,)."""
        if not len(sequences):
            raise InputError("sequences", "none", "at least one sequence of states")
        self._check(sequences)
        states, like = self.states, self.get_buffer("prior")
        firsts, lasts = (torch.stack([s[k] for s in sequences]) for k in (0, -1))
        pairs = torch.cat([s[:-1] * states + s[1:] for s in sequences])
        seen = torch.bincount(torch.cat(list(sequences)), minlength=states).to(like) + self.smoothing
        ends = self._smoothed("end", torch.bincount(lasts, minlength=states))
        ends = ends / (seen + self.smoothing)  # p(the sequence ends here | s)
        moves = self._smoothed("transitions", torch.bincount(pairs, minlength=states**2).view(states, states))
        moves = moves / moves.sum(1, keepdim=True).clamp(min=1e-30) * (1 - ends)[:, None]
        starts = self._smoothed("start", torch.bincount(firsts, minlength=states))
        tables = {"prior": seen / seen.sum(), "transitions": moves, "start": starts / starts.sum(), "end": ends}
        for name, table in tables.items():
            self.get_buffer(name).copy_(log_or_never(table))

    def _smoothed(self, name: str, counts: Tensor) -> Tensor:
        allowed = self.get_buffer(f"{name}_allowed")
        return torch.where(allowed, counts.to(allowed.device) + self.smoothing, 0.0)

    def _check(self, sequences: Sequence[Tensor]) -> None:
        for number, states in enumerate(sequences):
            low, high = (int(states.min()), int(states.max())) if len(states) else (0, -1)
            if low < 0 or high >= self.states or not len(states):
                got = "no states" if not len(states) else low if low < 0 else high
                raise InputError(f"sequence {number}", got, f"states from 0 to {self.states - 1}")

    def chain(self, scores: Tensor, lengths: Tensor) -> Chain:
        """The chain of scaled likelihoods for a network's scores, (T, B, S)."""
        likelihood = scores.log_softmax(dim=-1) - self.scale * self.get_buffer("prior")
        transitions, start, end = (self.get_buffer(name).to(likelihood) for name in ("transitions", "start", "end"))
        return Chain(likelihood, transitions, start, end, lengths)

    def decode(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """The best states: (T, B)."""
        return chain_kernel.best_path(self.chain(scores, lengths))[0]

    def marginals(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """p(s at t | x): (T, B, S)."""
        return posteriors(self.chain(scores, lengths))


class HybridHMM(nn.Module):
    """A framewise network combined with a Markov chain over its S states (Graves et al. 2005).

    Train the network's scores with cross-entropy, estimate the chain with `count` from known states, and find the best
    states with `decode`. If only the order of the states of a recording is known, `realign` computes an alignment,
    counts again, and returns targets for the next round of training.

    **Arguments**

    - `network`: a module; `network(x, lengths=…)` gives scores (T, B, S), or a tuple that starts with them.
    - `states`: S.
    - `allowed`: possible transitions, such as `rc.models.left_right(states)`; by default all.
    - `scale`: κ, the exponent of the priors.

    **Returns**

    `hybrid(x, lengths)`: the network's scores, (T, B, S).

    **Example**

        >>> hybrid = rc.models.HybridHMM(rc.GRU(2, 3), states=3)
        >>> hybrid.count(torch.tensor([[0], [0], [1], [2]]))  # (T, B)
        >>> hybrid.decode(torch.randn(6, 1, 2)).shape
        torch.Size([6, 1])
    """

    def __init__(self, network: nn.Module, states: int, allowed: AllowedTransitions | None = None, scale: float = 1.0):
        super().__init__()
        self.network, self.markov = network, MarkovChain(states, allowed, scale)

    def forward(self, x: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """(T, B, D) → (T, B, states): the network's score of every state."""
        result: Any = self.network(x, lengths=self._lengths(x, lengths))
        scores = result[0] if isinstance(result, tuple) else result
        if scores.shape != (*x.shape[:2], self.markov.states):
            expected = (*x.shape[:2], self.markov.states)
            raise ShapeError("network output", tuple(scores.shape), f"{expected}, a score for every frame and state")
        return scores

    def _lengths(self, x: Tensor, lengths: Tensor | Sequence[int] | None) -> Tensor:
        steps, batch = x.shape[:2]
        given = torch.full((batch,), steps, device=x.device) if lengths is None else lengths
        return check_lengths(given, steps, batch, x.device)

    def count(self, targets: Tensor, lengths: Tensor | Sequence[int] | None = None) -> None:
        """Priors and transitions from states (T, B)."""
        sizes = self._lengths(targets, lengths).tolist()
        self.markov.count([targets[:size, b] for b, size in enumerate(sizes)])

    @torch.no_grad()
    def decode(self, x: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """The best states, -100 past the end: (T, B)."""
        return self.markov.decode(self(x, lengths), self._lengths(x, lengths))

    def posteriors(self, x: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """p(s at t | x): (T, B, S)."""
        return self.markov.marginals(self(x, lengths).detach(), self._lengths(x, lengths))

    # ------------------------------------------------------------------------------------------ alignment

    @torch.no_grad()
    def align(
        self, x: Tensor, orders: Sequence[Sequence[int]], lengths: Tensor | Sequence[int] | None = None
    ) -> Tensor:
        """The best alignment of the frames to states in a known order: (T, B), -100 past the end."""
        sizes = self._lengths(x, lengths)
        chain = self.markov.chain(self(x, lengths), sizes)
        if len(orders) != x.shape[1]:
            raise InputError("orders", f"{len(orders)} of them", f"{x.shape[1]}, one a sequence")
        found = torch.full(x.shape[:2], -100, dtype=torch.int64, device=x.device)
        for b, (order, size) in enumerate(zip(orders, sizes.tolist(), strict=True)):
            found[:size, b] = self._align_sequence(chain, b, size, order)
        return found

    def _align_sequence(self, chain: Chain, b: int, size: int, order: Sequence[int]) -> Tensor:
        """The best alignment of one sequence: at each frame a state stays or moves on to the next."""
        states = torch.as_tensor(order, dtype=torch.int64, device=chain.emissions.device)
        self.markov._check([states])
        if len(states) > size:
            raise LengthsError(f"orders[{b}]", f"{len(states)} states", f"at most {size}, one a frame")
        places = torch.arange(len(states), device=states.device)
        moves = chain.transitions[states][:, states]
        is_next = (places[:, None] == places) | (places[:, None] + 1 == places)
        path, _ = chain_kernel.best_path(
            Chain(
                chain.emissions[:size, b : b + 1, states],
                moves.masked_fill(~is_next, NEVER),
                chain.start[states].masked_fill(places != 0, NEVER),
                chain.end[states].masked_fill(places != len(states) - 1, NEVER),
                chain.lengths.new_tensor([size]),
            )
        )
        return states[path[:, 0]]

    def realign(
        self, x: Tensor, orders: Sequence[Sequence[int]], lengths: Tensor | Sequence[int] | None = None
    ) -> Tensor:
        """One round of embedded realignment: align, count again, and return the alignment as targets."""
        targets = self.align(x, orders, lengths)
        self.count(targets, lengths)
        return targets


def log_or_never(p: Tensor) -> Tensor:
    """log p, and `NEVER` where p is zero."""
    return torch.where(p > 0, p, 1.0).log().masked_fill(p <= 0, NEVER)
