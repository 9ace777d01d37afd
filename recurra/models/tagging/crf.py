"""The conditional random field over a chain of tags (Lafferty, McCallum & Pereira 2001; Huang, Xu & Yu 2015).

A path of tags y_1 … y_L scores A[START, y_1] + Σ_t f[t, y_t] + Σ_{t>1} A[y_{t-1}, y_t] + A[y_L, STOP]; its probability
is the exponential of that over the sum for all paths. f comes from a network, A is learned here.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...cell import positive_int
from ...errors import DeviceError, DtypeError, InputError, OptionError, ShapeError
from ...ragged import check_lengths
from . import chain_kernel as fast
from .chain import IGNORE, Chain, draw_paths
from .schemes import Rules, rules

START, STOP = "START", "STOP"
FORBIDDEN = -1e4  # the score of a step that is not allowed: its exponential is nothing, and its derivative is finite


class CRF(nn.Module):
    """`crf(emissions, tags, lengths)` gives the log-likelihood of every sequence, (B,).

    `tags` is how many there are, or their names; with names, `scheme` ("bio", "iob1", "bioes") forbids the transitions
    it does not know. `forbidden` lists further pairs (from, to), by number or name, START and STOP among them.
    Emissions are (T, B, K) scores, or (B, T, K) with batch_first; a tag that is not known, -100, is summed over.
    """

    def __init__(
        self,
        tags: int | Sequence[str],
        scheme: str | None = None,
        *,
        forbidden: Iterable[tuple[int | str, int | str]] = (),
        batch_first: bool = False,
    ):
        super().__init__()
        self.names = None if isinstance(tags, int) else tuple(tags)
        self.tags = positive_int("tags", len(self.names) if self.names is not None else tags)
        self.scheme, self.batch_first = scheme, batch_first
        if self.names is not None and len(set(self.names)) < self.tags:
            raise InputError("tags", "a name that occurs twice", "names that are all different")
        if scheme is not None and self.names is None:
            raise OptionError("scheme", repr(scheme), "the names of the tags, to know what may follow what")
        allowed = self._allowed(forbidden)
        self.transitions = nn.Parameter(torch.empty(self.tags, self.tags))
        self.start, self.end = nn.Parameter(torch.empty(self.tags)), nn.Parameter(torch.empty(self.tags))
        for name, each in allowed._asdict().items():
            self.register_buffer(f"{name}_penalty", (~each).to(self.start.dtype) * FORBIDDEN, persistent=False)
        self.restricted = not all(bool(each.all()) for each in allowed)
        self.register_load_state_dict_pre_hook(_their_names)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    def extra_repr(self) -> str:
        return f"{self.tags}" + (f", scheme={self.scheme!r}" if self.scheme else "")

    # ------------------------------------------------------------------------------------------ what is allowed

    def _allowed(self, forbidden: Iterable[tuple[int | str, int | str]]) -> Rules:
        count = self.tags
        if self.scheme is not None and self.names is not None:
            allowed = rules(self.names, self.scheme)
        else:
            allowed = Rules(*(torch.ones(shape, dtype=torch.bool) for shape in ((count, count), count, count)))
        for before, after in forbidden:
            if before == START:
                allowed.start[self._number(after)] = False
            elif after == STOP:
                allowed.end[self._number(before)] = False
            else:
                allowed.transitions[self._number(before), self._number(after)] = False
        return allowed

    def _number(self, tag: int | str) -> int:
        known = self.names or ()
        if tag in known:
            return known.index(str(tag))
        if isinstance(tag, int) and 0 <= tag < self.tags:
            return tag
        ends = "START as the first or STOP as the second of a pair"
        raise InputError("forbidden", repr(tag), f"a number below {self.tags}, the name of a tag, or {ends}")

    def allows(self, tags: Sequence[int]) -> bool:
        """Whether a path uses allowed transitions alone."""
        path = torch.as_tensor(tags, dtype=torch.int64, device=self.start.device)
        inner = self.get_buffer("transitions_penalty")[path[:-1], path[1:]].sum()
        ends = self.get_buffer("start_penalty")[path[0]] + self.get_buffer("end_penalty")[path[-1]]
        return not bool(inner + ends)

    # ------------------------------------------------------------------------------------------ the chain

    def chain(self, emissions: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Chain:
        """The numbers of a batch, checked, time first."""
        if not isinstance(emissions, Tensor) or emissions.dim() != 3 or emissions.shape[-1] != self.tags:
            got = f"shape {tuple(emissions.shape)}" if isinstance(emissions, Tensor) else type(emissions).__name__
            raise ShapeError("emissions", got, f"({'B, T' if self.batch_first else 'T, B'}, {self.tags})")
        if not emissions.is_floating_point():
            raise DtypeError("emissions", emissions.dtype, "scores, of a floating point dtype")
        if emissions.device != self.start.device:
            raise DeviceError("emissions", emissions.device, f"the device of the transitions, {self.start.device}")
        emissions = emissions.transpose(0, 1) if self.batch_first else emissions
        steps, batch = emissions.shape[:2]
        if steps == 0:
            raise ShapeError("emissions", f"shape {tuple(emissions.shape)}", "at least one step")
        if lengths is None:
            sizes = torch.full((batch,), steps, dtype=torch.int64, device=emissions.device)
        else:
            sizes = check_lengths(lengths, steps, batch, emissions.device)
        # In the wider of the two dtypes, and never in half precision: sums of many probabilities need their digits.
        dtype = torch.promote_types(torch.promote_types(emissions.dtype, self.start.dtype), torch.float32)
        transitions, start, end = (part.to(dtype) for part in self.scores())
        return Chain(emissions.to(dtype), transitions, start, end, sizes)

    def scores(self) -> tuple[Tensor, Tensor, Tensor]:
        """Transitions, start and end as the chain uses them: with what is forbidden."""
        learned = self.transitions, self.start, self.end
        if not self.restricted:
            return learned
        names = ("transitions_penalty", "start_penalty", "end_penalty")
        transitions, start, end = (own + self.get_buffer(n) for own, n in zip(learned, names, strict=True))
        return transitions, start, end

    def _paths(self, tags: Tensor, chain: Chain) -> tuple[Tensor, bool]:
        """Tags, time first, and whether some of them are unknown."""
        if not isinstance(tags, Tensor) or tags.is_floating_point() or tags.dtype == torch.bool:
            raise DtypeError("tags", tags.dtype if isinstance(tags, Tensor) else type(tags).__name__, "int64 numbers")
        tags = tags.transpose(0, 1) if self.batch_first else tags
        if tags.shape != chain.emissions.shape[:2]:
            raise ShapeError("tags", tuple(tags.shape), f"{tuple(chain.emissions.shape[:2])}, as the emissions")
        inside = tags.masked_fill(~chain.mask, 0).to(chain.emissions.device, torch.int64)
        if torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(inside):
            return inside, True  # nobody may look at the values, so the general form it is
        low, high = int(inside.min()), int(inside.max())
        if high >= self.tags or (low < 0 and bool(((inside < 0) & (inside != IGNORE)).any())):
            raise InputError("tags", high if high >= self.tags else low, f"0 to {self.tags - 1}, or {IGNORE}: unknown")
        return inside, low < 0

    # ------------------------------------------------------------------------------------------ questions

    def forward(self, emissions: Tensor, tags: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """The log-likelihood of the tags of every sequence; of all paths that agree where some are unknown: (B,)."""
        chain = self.chain(emissions, lengths)
        paths, partly = self._paths(tags, chain)
        if not partly:
            return -fast.log_partition(chain, paths)
        other = torch.arange(self.tags, device=paths.device) != paths[..., None]
        excluded = other & (paths != IGNORE)[..., None]
        kept = chain._replace(emissions=chain.emissions.masked_fill(excluded, FORBIDDEN))
        return fast.log_partition(kept) - fast.log_partition(chain)

    def log_partition(self, emissions: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """log Σ over all paths: (B,)."""
        return fast.log_partition(self.chain(emissions, lengths))

    @torch.no_grad()
    def viterbi(self, emissions: Tensor, lengths: Tensor | Sequence[int] | None = None) -> tuple[Tensor, Tensor]:
        """The best path of every sequence, laid out like tags with -100 past its end, and its score."""
        paths, scores = fast.best_path(self.chain(emissions, lengths))
        return (paths.T if self.batch_first else paths), scores

    def decode(self, emissions: Tensor, lengths: Tensor | Sequence[int] | None = None) -> list[list[int]]:
        """The best path of every sequence, as long as it is."""
        chain = self.chain(emissions, lengths)
        paths = fast.best_path(chain)[0].T.tolist()
        return [path[:length] for path, length in zip(paths, chain.lengths.tolist(), strict=True)]

    def marginals(self, emissions: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """p(y_t = k | x), laid out like the emissions, zero past the end: the derivative of the log-partition."""
        wanted = torch.is_grad_enabled() and (emissions.requires_grad or self.start.requires_grad)
        with torch.enable_grad():
            chain = self.chain(emissions, lengths)
            if not wanted:
                chain = Chain(*(part.detach() for part in chain))
            seen = chain.emissions if chain.emissions.requires_grad else chain.emissions.requires_grad_()
            total = fast.log_partition(chain._replace(emissions=seen)).sum()
            (found,) = torch.autograd.grad(total, seen, create_graph=wanted)
        return found.transpose(0, 1) if self.batch_first else found

    @torch.no_grad()
    def sample(
        self,
        emissions: Tensor,
        lengths: Tensor | Sequence[int] | None = None,
        count: int = 1,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Paths drawn by their probability, each laid out like tags with -100 past its end: (count, T, B)."""
        positive_int("count", count)
        chain = self.chain(emissions, lengths)
        alphas = fast.forward_scores(chain)
        drawn = torch.stack([draw_paths(chain, alphas, generator) for _ in range(count)])
        return drawn.transpose(1, 2) if self.batch_first else drawn


def _their_names(module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """The names pytorch-crf gives the same numbers are read too."""
    for ours in ("start", "end"):
        theirs = f"{prefix}{ours}_transitions"
        if theirs in state_dict and f"{prefix}{ours}" not in state_dict:
            state_dict[f"{prefix}{ours}"] = state_dict.pop(theirs)
