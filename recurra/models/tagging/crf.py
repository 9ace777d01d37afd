"""The linear-chain conditional random field (Lafferty, McCallum & Pereira 2001; Huang, Xu & Yu 2015).

A path of tags y_1 … y_L scores A[START, y_1] + Σ_t f[t, y_t] + Σ_{t>1} A[y_{t-1}, y_t] + A[y_L, STOP]; its probability
is proportional to the exponential of the score. f comes from a network; A is a parameter of the CRF.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...cell import positive_int
from ...errors import DeviceError, DtypeError, InputError, OptionError, ShapeError
from ...ragged import check_lengths
from . import chain_kernel
from .chain import IGNORE, Chain, draw_paths
from .schemes import AllowedTransitions, allowed_transitions

START, STOP = "START", "STOP"
FORBIDDEN = -1e4  # the score of a forbidden transition: finite, and its exponential is zero


class CRF(nn.Module):
    """A linear-chain conditional random field, the output layer of taggers (Lafferty et al. 2001).

    `decode` and `viterbi` find the best path, `marginals` gives the probability of every tag, `sample` draws paths.
    State dicts of pytorch-crf load.

    **Arguments**

    - `tags`: K, the number of tags, or their names.
    - `scheme`: with names, `"bio"`, `"iob1"` or `"bioes"`: forbids the transitions that the scheme does not allow.
    - `forbidden`: further pairs (from, to) of tags, by number or name; `START` as the first or `STOP` as the second
      of a pair forbids a tag at the begin or the end.
    - `batch_first`: emissions are (B, T, K) and tags (B, T) instead of (T, B, K) and (T, B).

    **Returns**

    `crf(emissions, tags, lengths)`: scores (T, B, K) and tags (T, B) → the log-likelihood of every sequence, (B,). A
    tag of -100 is unknown: the likelihood is summed over it.

    **Example**

        >>> crf = rc.CRF(["O", "B-X", "I-X"], "bio")
        >>> emissions, tags = torch.randn(4, 2, 3), torch.zeros(4, 2, dtype=torch.long)
        >>> loss = -crf(emissions, tags, lengths=[4, 3]).mean()
        >>> loss.backward()
        >>> [len(path) for path in crf.decode(emissions, lengths=[4, 3])]
        [4, 3]
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
        if not isinstance(tags, int) and (isinstance(tags, str) or not isinstance(tags, Sequence)):
            raise InputError("tags", repr(tags), "the number of tags, or a list of their names")
        self.names = None if isinstance(tags, int) else tuple(tags)
        if self.names is not None and not all(isinstance(name, Hashable) for name in self.names):
            raise InputError("tags", repr(tags), "names that are text or numbers")
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
        self.register_load_state_dict_pre_hook(_accept_pytorch_crf_names)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    def extra_repr(self) -> str:
        return f"{self.tags}" + (f", scheme={self.scheme!r}" if self.scheme else "")

    # ------------------------------------------------------------------------------------------ forbidden transitions

    def _allowed(self, forbidden: Iterable[tuple[int | str, int | str]]) -> AllowedTransitions:
        count = self.tags
        if self.scheme is not None and self.names is not None:
            allowed = allowed_transitions(self.names, self.scheme)
        else:
            allowed = AllowedTransitions(
                *(torch.ones(shape, dtype=torch.bool) for shape in ((count, count), count, count))
            )
        try:
            pairs = [(before, after) for before, after in forbidden]
        except (TypeError, ValueError):
            raise InputError("forbidden", repr(forbidden), "pairs of tags: (before, after)") from None
        for before, after in pairs:
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
        """Whether a path contains no forbidden transition."""
        path = torch.as_tensor(tags, dtype=torch.int64, device=self.start.device)
        inner = self.get_buffer("transitions_penalty")[path[:-1], path[1:]].sum()
        ends = self.get_buffer("start_penalty")[path[0]] + self.get_buffer("end_penalty")[path[-1]]
        return not bool(inner + ends)

    # ------------------------------------------------------------------------------------------ the chain

    def chain(self, emissions: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Chain:
        """The checked scores of a batch, time first."""
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
        # In the wider of the two dtypes, at least float32: log-sums over many paths lose too much in half precision.
        dtype = torch.promote_types(torch.promote_types(emissions.dtype, self.start.dtype), torch.float32)
        transitions, start, end = (part.to(dtype) for part in self.scores())
        return Chain(emissions.to(dtype), transitions, start, end, sizes)

    def scores(self) -> tuple[Tensor, Tensor, Tensor]:
        """Transitions, start and end, with the penalties of forbidden transitions."""
        learned = self.transitions, self.start, self.end
        if not self.restricted:
            return learned
        names = ("transitions_penalty", "start_penalty", "end_penalty")
        transitions, start, end = (own + self.get_buffer(n) for own, n in zip(learned, names, strict=True))
        return transitions, start, end

    def _paths(self, tags: Tensor, chain: Chain) -> tuple[Tensor, bool]:
        """Tags, time first, and whether some of them may be unknown."""
        if not isinstance(tags, Tensor) or tags.is_floating_point() or tags.dtype == torch.bool:
            raise DtypeError("tags", tags.dtype if isinstance(tags, Tensor) else type(tags).__name__, "int64 numbers")
        tags = tags.transpose(0, 1) if self.batch_first else tags
        if tags.shape != chain.emissions.shape[:2]:
            raise ShapeError("tags", tuple(tags.shape), f"{tuple(chain.emissions.shape[:2])}, as the emissions")
        inside = tags.masked_fill(~chain.mask, 0).to(chain.emissions.device, torch.int64)
        if torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(inside):
            return inside, True  # values cannot be inspected: use the general form
        low, high = int(inside.min()), int(inside.max())
        if high >= self.tags or (low < 0 and bool(((inside < 0) & (inside != IGNORE)).any())):
            raise InputError("tags", high if high >= self.tags else low, f"0 to {self.tags - 1}, or {IGNORE}: unknown")
        return inside, low < 0

    # ------------------------------------------------------------------------------------------ inference

    def forward(self, emissions: Tensor, tags: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """The log-likelihood of the tags, (B,); unknown tags (-100) are summed over."""
        chain = self.chain(emissions, lengths)
        paths, has_unknown = self._paths(tags, chain)
        if not has_unknown:
            return -chain_kernel.log_partition(chain, paths)
        other = torch.arange(self.tags, device=paths.device) != paths[..., None]
        excluded = other & (paths != IGNORE)[..., None]
        kept = chain._replace(emissions=chain.emissions.masked_fill(excluded, FORBIDDEN))
        return chain_kernel.log_partition(kept) - chain_kernel.log_partition(chain)

    def log_partition(self, emissions: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """The log-sum over all paths: (B,)."""
        return chain_kernel.log_partition(self.chain(emissions, lengths))

    @torch.no_grad()
    def viterbi(self, emissions: Tensor, lengths: Tensor | Sequence[int] | None = None) -> tuple[Tensor, Tensor]:
        """The best path of every sequence, (T, B) with -100 past its end, and its score, (B,)."""
        paths, scores = chain_kernel.best_path(self.chain(emissions, lengths))
        return (paths.T if self.batch_first else paths), scores

    def decode(self, emissions: Tensor, lengths: Tensor | Sequence[int] | None = None) -> list[list[int]]:
        """The best path of every sequence, as a list of its own length."""
        chain = self.chain(emissions, lengths)
        paths = chain_kernel.best_path(chain)[0].T.tolist()
        return [path[:length] for path, length in zip(paths, chain.lengths.tolist(), strict=True)]

    def marginals(self, emissions: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """p(y_t = k | x), (T, B, K), zero past the end: the derivative of the log-partition by the emissions."""
        needs_grad = torch.is_grad_enabled() and (emissions.requires_grad or self.start.requires_grad)
        with torch.enable_grad():
            chain = self.chain(emissions, lengths)
            if not needs_grad:
                chain = Chain(*(part.detach() for part in chain))
            seen = chain.emissions if chain.emissions.requires_grad else chain.emissions.requires_grad_()
            total = chain_kernel.log_partition(chain._replace(emissions=seen)).sum()
            (found,) = torch.autograd.grad(total, seen, create_graph=needs_grad)
        return found.transpose(0, 1) if self.batch_first else found

    @torch.no_grad()
    def sample(
        self,
        emissions: Tensor,
        lengths: Tensor | Sequence[int] | None = None,
        count: int = 1,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """`count` samples of paths per sequence, -100 past the end: (count, T, B)."""
        positive_int("count", count)
        chain = self.chain(emissions, lengths)
        alphas = chain_kernel.forward_scores(chain)
        sampled = torch.stack([draw_paths(chain, alphas, generator) for _ in range(count)])
        return sampled.transpose(1, 2) if self.batch_first else sampled


def _accept_pytorch_crf_names(module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Rename the parameters of pytorch-crf's CRF to ours."""
    for ours in ("start", "end"):
        theirs = f"{prefix}{ours}_transitions"
        if theirs in state_dict and f"{prefix}{ours}" not in state_dict:
            state_dict[f"{prefix}{ours}"] = state_dict.pop(theirs)
