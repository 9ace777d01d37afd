"""Writing with an encoder–decoder: greedy and beam search, batched."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ...argument_checks import instance_of, positive_int
from ...layers import Recurrent
from .model import EncoderDecoder


@contextmanager
def writing(model: EncoderDecoder) -> Iterator[None]:
    """Without gradients and dropout."""
    training = instance_of("model", model, EncoderDecoder, "an rc.EncoderDecoder").training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def greedy(
    model: EncoderDecoder, source: Tensor, lengths: Tensor | Sequence[int] | None = None, longest: int = 100
) -> tuple[list[Tensor], Tensor]:
    """The most probable token at every step.

    **Arguments**: `source` and `lengths` as in `EncoderDecoder`; `longest`: the most tokens written.

    **Returns** one tensor of tokens per source, without `stop`, and the log-probability of each, (B,).

    **Example**

        >>> model = rc.models.EncoderDecoder(rc.GRU(4, 8), rc.GRU(12, 8), outputs=6, inputs=9)
        >>> tokens, scores = rc.models.greedy(model, torch.randint(9, (5, 2)), longest=4)
        >>> max(len(t) for t in tokens) <= 4
        True
    """
    positive_int("longest", longest)
    with writing(model):
        return _greedy(model, source, lengths, longest)


def _greedy(model: EncoderDecoder, source: Tensor, lengths: Any, longest: int) -> tuple[list[Tensor], Tensor]:
    encoded, state = model.encode(source, lengths)
    batch = encoded.summary.shape[0]
    token = torch.full((1, batch), model.start, dtype=torch.int64, device=encoded.summary.device)
    written, running = [], torch.ones(batch, dtype=torch.bool, device=token.device)
    total = torch.zeros(batch, dtype=encoded.summary.dtype, device=token.device)
    for _ in range(longest):
        logits, state = model.decode(token, encoded, state)
        log_probs = logits[0].log_softmax(-1)
        best, token = log_probs.max(-1)[0], log_probs.argmax(-1)[None]
        total = total + torch.where(running, best, 0.0)
        written.append(torch.where(running, token[0], model.stop))
        running = running & (token[0] != model.stop)
        if not bool(running.any()):
            break
    return _until_stop(torch.stack(written, 1), model.stop), total


def beam(
    model: EncoderDecoder,
    source: Tensor,
    lengths: Tensor | Sequence[int] | None = None,
    width: int = 5,
    longest: int = 100,
    length_penalty: float = 1.0,
) -> tuple[list[list[Tensor]], Tensor]:
    """Beam search: the `width` best beginnings are continued at every step.

    Beginnings are ranked by log p / n^α, with n tokens, `stop` included, and α = `length_penalty`: 0 ranks by
    probability and prefers short outputs, 1 by the mean per token. A beginning that ended keeps its place in the beam
    while no better one takes it.

    **Arguments**: `source` and `lengths` as in `EncoderDecoder`; `width`: of the beam; `longest`: the most tokens
    written; `length_penalty`: α.

    **Returns** for each source `width` outputs, best first, without `stop`, and their normalised scores, (B, width).

    **Example**

        >>> model = rc.models.EncoderDecoder(rc.GRU(4, 8), rc.GRU(12, 8), outputs=6, inputs=9)
        >>> found, scores = rc.models.beam(model, torch.randint(9, (5, 2)), width=3, longest=4)
        >>> len(found), len(found[0]), scores.shape
        (2, 3, torch.Size([2, 3]))
    """
    for name, value in (("width", width), ("longest", longest)):
        positive_int(name, value)
    with writing(model):
        return _Beams(model, source, lengths, width, length_penalty).search(longest)


class _Beams:
    """`width` beginnings for each of B sources, and the state of the decoder after each."""

    def __init__(self, model: EncoderDecoder, source: Tensor, lengths: Any, width: int, length_penalty: float):
        self.model, self.width, self.length_penalty = model, width, length_penalty
        encoded, state = model.encode(source, lengths)
        self.batch, device = encoded.summary.shape[0], encoded.summary.device
        rows = torch.arange(self.batch, device=device).repeat_interleave(width)
        self.encoded, self.state = encoded.rows(rows), select_rows(model.decoder, state, rows)
        self.total = torch.full((self.batch, width), -torch.inf, dtype=encoded.summary.dtype, device=device)
        self.total[:, 0] = 0.0  # all beams are alike before the first step
        self.written = torch.zeros(self.batch, width, 0, dtype=torch.int64, device=device)
        self.sizes = torch.zeros(self.batch, width, dtype=torch.int64, device=device)
        self.ended = torch.zeros(self.batch, width, dtype=torch.bool, device=device)
        self.token = torch.full((1, self.batch * width), model.start, dtype=torch.int64, device=device)

    def search(self, longest: int) -> tuple[list[list[Tensor]], Tensor]:
        for _ in range(longest):
            self.advance()
            if bool(self.ended.all()):
                break
        scores, order = self.normalised(self.total, self.sizes).sort(dim=1, descending=True)
        best = self.written.gather(1, order[..., None].expand_as(self.written))
        return [_until_stop(outputs, self.model.stop) for outputs in best], scores

    def advance(self) -> None:
        """Continue every beginning by every token and keep the best."""
        log_probs = self.next_log_probs()  # (B, width, V)
        candidates = self.total[..., None] + log_probs
        grown = self.sizes + (~self.ended).long()
        ranked = self.normalised(candidates, grown[..., None]).flatten(1)
        place = ranked.topk(self.width, dim=1).indices  # (B, width)
        parent, symbol = place // log_probs.shape[-1], place % log_probs.shape[-1]
        self.total = candidates.flatten(1).gather(1, place)
        before = self.written.gather(1, parent[..., None].expand(-1, -1, self.written.shape[2]))
        self.written = torch.cat([before, symbol[..., None]], 2)
        self.sizes = grown.gather(1, parent)
        self.ended = self.ended.gather(1, parent) | (symbol == self.model.stop)
        rows = (torch.arange(self.batch, device=place.device)[:, None] * self.width + parent).flatten()
        self.state, self.token = select_rows(self.model.decoder, self.state, rows), symbol.view(1, -1)

    def normalised(self, total: Tensor, sizes: Tensor) -> Tensor:
        return total / sizes.to(total.dtype) ** self.length_penalty

    def next_log_probs(self) -> Tensor:
        """log p of each next token; a beginning that ended goes on with `stop`, at no cost."""
        logits, self.state = self.model.decode(self.token, self.encoded, self.state)
        log_probs = logits[0].log_softmax(-1).view(self.batch, self.width, -1)
        stop = torch.full_like(log_probs, -torch.inf)
        stop[..., self.model.stop] = 0.0
        return torch.where(self.ended[..., None], stop, log_probs)


def _until_stop(written: Tensor, stop: int) -> list[Tensor]:
    """Rows of tokens, each up to its first `stop`."""
    ends = torch.cat([written == stop, torch.ones_like(written[:, :1], dtype=torch.bool)], 1).int().argmax(1)
    return [row[:end] for row, end in zip(written, ends.tolist(), strict=True)]


def select_rows(layer: Recurrent, state: Any, rows: Tensor) -> Any:
    """The state of a layer for these sequences: (layers, B, …), or one (B, …) per layer where widths differ."""
    cells = layer.cell_list
    columns = state if len(cells[0].carried) > 1 else (state,)
    picked = tuple(
        column.index_select(1, rows) if isinstance(column, Tensor) else tuple(v.index_select(0, rows) for v in column)
        for column in columns
    )
    return picked if len(columns) > 1 else picked[0]
