"""The encoder–decoder of Cho et al. 2014, over any cells, with or without attention.

    summary c = the encoder's output at its last step (and first, of a backward direction)
    s_0 = tanh(V c + b)                                   the decoder's first states
    s_t = decoder(s_{t-1}, [embed(y_{t-1}); c])           without attention: c is read at every step
    s_t = decoder(s_{t-1}, embed(y_{t-1}))                with attention:
    a_t = softmax_s(score(s_t, m_s)),  c_t = Σ_s a_ts m_s,  o_t = tanh(W [s_t; c_t])
    p(y_t | y_{<t}, x) = softmax(V_y o_t + b_y)

Attention reads the new state s_t, as in Luong et al. 2015, so that with known targets the decoder runs over all steps
in one call of the engine, and the attention of all steps is one product.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...argument_checks import positive_int, probability
from ...cell import TIME
from ...data.sequences import IGNORE, Batch
from ...engine.reference import valid_steps
from ...errors import InputError, OptionError, ShapeError, UnknownNameError
from ...last_outputs import last_outputs
from ...layer_states import stack_states
from ...layers import Recurrent
from ...ragged import check_lengths
from .attention import ATTENTIONS


class Encoded(NamedTuple):
    """What the decoder reads of a batch of sources."""

    memory: Tensor  # (S, B, F) outputs of the encoder
    valid: Tensor  # (S, B) bool
    summary: Tensor  # (B, F)

    def rows(self, index: Tensor) -> "Encoded":
        """The sources with these numbers."""
        return Encoded(self.memory[:, index], self.valid[:, index], self.summary[index])


class EncoderDecoder(nn.Module):
    """A sequence in, another sequence out: an encoder reads, a decoder writes (Cho et al. 2014).

    Also known as a sequence-to-sequence model (seq2seq).

    **Arguments**

    - `encoder`: an `rc.Recurrent` of any cell, depth and direction.
    - `decoder`: an `rc.Recurrent` with one direction. Its `input_size` is that of the target embeddings, plus, without
      attention, the encoder's `output_size`.
    - `outputs`: V, the number of target tokens, `start` and `stop` among them.
    - `inputs`: the number of source tokens, which are embedded; None if sources are vectors (S, B, D).
    - `attention`: None, "additive" (Bahdanau et al. 2015) or "dot" (Luong et al. 2015).
    - `start`, `stop`: the target tokens before the first and after the last.
    - `dropout`: of embeddings and of the last hidden layer.

    **Returns** from `model(source, target, lengths)`: source (S, B) tokens or (S, B, D), target (T, B) tokens that end
    with `stop`, then -100 → logits (T, B, V) of each target token given the true ones before it (teacher forcing).
    `greedy` and `beam` in `rc.models` write without targets; `rc.models.NextSymbol` is the loss for `rc.train.fit`.

    **Example**

        >>> encoder = rc.GRU(8, 16, bidirectional=True)
        >>> model = rc.models.EncoderDecoder(encoder, rc.LSTM(8, 16), outputs=10, inputs=20, attention="additive")
        >>> source, target = torch.randint(20, (7, 3)), torch.randint(2, 10, (5, 3))
        >>> model(source, target, lengths=[7, 2, 4]).shape
        torch.Size([5, 3, 10])
        >>> tokens, scores = rc.models.greedy(model, source, lengths=[7, 2, 4], longest=6)
        >>> len(tokens), scores.shape
        (3, torch.Size([3]))
    """

    def __init__(
        self,
        encoder: Recurrent,
        decoder: Recurrent,
        outputs: int,
        inputs: int | None = None,
        attention: str | None = None,
        *,
        start: int = 0,
        stop: int = 1,
        dropout: float = 0.0,
    ):
        super().__init__()
        _check_layers(encoder, decoder)
        self.encoder, self.decoder = encoder, decoder
        self.outputs, self.start, self.stop = positive_int("outputs", outputs), start, stop
        for name, token in (("start", start), ("stop", stop)):
            if not isinstance(token, int) or not 0 <= token < outputs:
                raise InputError(name, token, f"a token from 0 to {outputs - 1}")
        if attention is not None and attention not in ATTENTIONS:
            raise UnknownNameError("attention", repr(attention), (*ATTENTIONS, "None"))
        context = encoder.output_size if attention is None else 0
        width = decoder.input_size - context
        if width < 1:
            wanted = f"more than the {context} values of the encoder, which it reads beside a target embedding"
            raise InputError("decoder", f"input_size = {decoder.input_size}", wanted)
        self.source = None if inputs is None else nn.Embedding(positive_int("inputs", inputs), encoder.input_size)
        self.target = nn.Embedding(outputs, width)
        self.bridge = nn.Linear(encoder.output_size, sum(self._state_sizes()))
        self.attention = None if attention is None else ATTENTIONS[attention](decoder.output_size, encoder.output_size)
        sizes = decoder.output_size + encoder.output_size, decoder.output_size
        self.combine = None if attention is None else nn.Linear(*sizes)
        self.output = nn.Linear(decoder.output_size, outputs)
        self.dropout = nn.Dropout(dropout)

    # ------------------------------------------------------------------------------------------ reading

    def encode(self, source: Tensor, lengths: Tensor | Sequence[int] | None = None) -> tuple[Encoded, Any]:
        """What the decoder reads of sources (S, B) or (S, B, D), and its first state."""
        x = self._embed_source(source)
        steps, batch = x.shape[:2]
        sizes = torch.full((batch,), steps, device=x.device) if lengths is None else lengths
        return self.encode_checked(x, check_lengths(sizes, steps, batch, x.device))

    def encode_checked(self, x: Tensor, sizes: Tensor) -> tuple[Encoded, Any]:
        """`encode` of embedded sources (S, B, D) and their lengths (B,)."""
        memory = self.encoder(x, lengths=sizes)[0]
        summary = last_outputs(self.encoder, memory, sizes)
        return Encoded(memory, valid_steps(sizes, x.shape[0]), summary), self._first_state(summary)

    def _embed_source(self, source: Tensor) -> Tensor:
        if not isinstance(source, Tensor) or source.dim() != (3 if self.source is None else 2):
            expected = f"(S, B, {self.encoder.input_size})" if self.source is None else "tokens (S, B)"
            raise ShapeError("source", tuple(getattr(source, "shape", ())), expected)
        return source if self.source is None else self.dropout(self.source(source))

    def _state_sizes(self) -> list[int]:
        states = [s for cell in self.decoder.cell_list for s in cell.carried if s.name != TIME]
        return [math.prod(s.shape(1)) for s in states]

    def _first_state(self, summary: Tensor) -> Any:
        parts = iter(self.bridge(summary).tanh().split(self._state_sizes(), -1))
        batch = summary.shape[0]
        cells = self.decoder.cell_list
        given = [cell.initial_state(batch, summary) for cell in cells]
        states = [
            tuple(
                v if s.name == TIME else next(parts).reshape(v.shape) for s, v in zip(cell.carried, values, strict=True)
            )
            for cell, values in zip(cells, given, strict=True)
        ]
        return stack_states(cells, states, True)

    # ------------------------------------------------------------------------------------------ writing

    def decode(self, previous: Tensor, encoded: Encoded, state: Any) -> tuple[Tensor, Any]:
        """Logits (T, B, V) after each of the tokens `previous` (T, B), and the state after them."""
        x = self.dropout(self.target(previous))
        if self.attention is None:
            x = torch.cat([x, encoded.summary.expand(x.shape[0], -1, -1)], -1)
        h, state = self.decoder(x, state)
        if self.attention is not None and self.combine is not None:
            context, _ = self.attention(h, encoded.memory, encoded.valid)
            h = self.combine(torch.cat([h, context], -1)).tanh()
        return self.output(self.dropout(h)), state

    def attention_weights(
        self, source: Tensor, target: Tensor, lengths: Tensor | Sequence[int] | None = None
    ) -> Tensor:
        """(T, B, S): how much each target token reads of each source step, with the true tokens before it."""
        if self.attention is None:
            raise OptionError("attention_weights", "a model without attention", "attention='additive' or 'dot'")
        encoded, state = self.encode(source, lengths)
        h, _ = self.decoder(self.target(self._shifted(target)), state)
        return self.attention(h, encoded.memory, encoded.valid)[1]

    def _shifted(self, target: Tensor) -> Tensor:
        """The tokens before each target: `start` first; padding becomes `stop`."""
        if not isinstance(target, Tensor) or target.dim() != 2 or target.is_floating_point():
            raise ShapeError("target", tuple(getattr(target, "shape", ())), "tokens (T, B)")
        known = target.masked_fill(target == IGNORE, self.stop)
        return torch.cat([torch.full_like(known[:1], self.start), known[:-1]])

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        lengths: Tensor | Sequence[int] | None = None,
        sampling: float = 0.0,
    ) -> Tensor:
        """Logits (T, B, V) of the targets (T, B).

        `sampling` is the share of steps at which the decoder reads a token drawn from its own probabilities instead of
        the true one (scheduled sampling, Bengio et al. 2015).
        """
        probability("sampling", sampling)
        encoded, state = self.encode(source, lengths)
        previous = self._shifted(target)
        if not sampling:
            return self.decode(previous, encoded, state)[0]
        found: list[Tensor] = []
        for t in range(len(previous)):
            token = previous[t : t + 1]
            if found:
                drawn = torch.multinomial(found[-1][0].detach().float().softmax(-1), 1).T
                token = torch.where(torch.rand_like(token, dtype=torch.float32) < sampling, drawn, token)
            logits, state = self.decode(token, encoded, state)
            found.append(logits)
        return torch.cat(found)


class NextSymbol:
    """The loss of an encoder–decoder for `rc.train.fit`: the mean negative log-likelihood in nats per target token.

    `sampling` is that of `EncoderDecoder.forward`, in training only.

    **Example**

        >>> model = rc.models.EncoderDecoder(rc.GRU(8, 16), rc.LSTM(24, 16), outputs=10, inputs=20)
        >>> pairs = rc.models.Pairs([torch.tensor([3, 4, 5]), torch.tensor([3])], [torch.tensor([6, 1])] * 2, 2)
        >>> len(rc.train.fit(model, pairs, loss=rc.models.NextSymbol(), epochs=2, progress=False).history)
        2
    """

    def __init__(self, sampling: float = 0.0):
        self.sampling = probability("sampling", sampling)

    def count(self, batch: Batch) -> int:
        """The number of target tokens in a batch."""
        return int((batch.targets != IGNORE).sum())

    def __call__(self, model: nn.Module, batch: Batch, state: Any) -> tuple[dict[str, Tensor], Any]:
        sampling = self.sampling if model.training else 0.0
        logits = model(batch.inputs, batch.targets, batch.lengths, sampling)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        loss = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORE, reduction="sum")
        return {"loss": loss}, None


def _check_layers(encoder: Any, decoder: Any) -> None:
    for name, layer in (("encoder", encoder), ("decoder", decoder)):
        if not isinstance(layer, Recurrent) or layer.batch_first:
            got = "batch_first=True" if isinstance(layer, Recurrent) else type(layer).__name__
            raise InputError(name, got, "an rc.Recurrent that reads (T, B, D)")
        if layer.initial == "carried":
            raise OptionError(name, "initial='carried'", "sequences that start anew")
    if decoder.directions != 1:
        raise OptionError("decoder", "a bidirectional layer", "one direction: what follows is not written yet")
