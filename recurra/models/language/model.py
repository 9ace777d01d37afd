"""The language model: predicts each token of a text from the previous ones, forwards, backwards or both.

Tokens are given in reading order: for a backward model the text is reversed. A bidirectional model reads two texts side
by side, (T, B, 2): one as written and one reversed. Its directions share only the embedding and the softmax (Peters et
al. 2018).
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...cell import Cell
from ...data.batching import BatchSource, Streams
from ...errors import DtypeError, InputError, OptionError, ShapeError, UnknownNameError
from ...ragged import check_lengths, reverse
from ...storage import FolderContents, cell_name, distinct_tensors, is_plain, read_folder, write_folder
from .generate import generate
from .inputs import Embedding, TokenEncoder
from .softmaxes import AdaptiveSoftmax, FullSoftmax, OutputLayer, SampledSoftmax, TiedSoftmax
from .stack import LayerOutputs, Stack
from .streams import TwoWayStreams
from .vocabulary import TextError, TokenVocabulary, vocabulary_from

Direction = Literal["forward", "backward", "both"]
WAYS: Mapping[str, tuple[str, ...]] = {
    "forward": ("forward",),
    "backward": ("backward",),
    "both": ("forward", "backward"),
}
KIND = "LanguageModel"  # in config.json
OUTPUTS = ("full", "tied", "adaptive", "sampled")
#: names in the constructor's scope that are not settings of the model
_NOT_STORED = ("self", "__class__", "vocabulary", "options")
IGNORE = -100  # no target at this step, as in torch's cross-entropy


class LanguageModel(nn.Module):
    """A language model with any cell: p(token | previous tokens).

    `rc.LanguageModelEstimator` wraps it as an estimator.

    **Arguments**

    - `vocabulary`: `rc.models.Characters`, `Words` or `Subwords`.
    - `hidden_size`, `num_layers`, `cell`: of the recurrent layers of each direction.
    - `direction`: `"forward"`, `"backward"`, or `"both"`: two stacks that share encoder and output.
    - `embedding_size`: of a token; by default `hidden_size`.
    - `encoder`: a `TokenEncoder` instead of an embedding, such as one over the characters of a word. It may know more
      tokens than the vocabulary; those are predicted as `<unk>`.
    - `ways`: existing stacks, one for each direction, instead of new ones.
    - `output`: `"full"`, `"tied"` (to the embedding), `"adaptive"`, `"sampled"`, or an `OutputLayer`.
    - `dropout`: on the output of the last layer and between layers; `input_dropout`: on the embedding.
    - `residual`: every layer above the first adds its input.
    - `**options`: of `rc.Recurrent` and of the cell.

    **Returns**

    `model(tokens, state)`: tokens (T, B), for both directions (T, B, 2), in reading order → log-probabilities of the
    next tokens, (T, B, V) or (T, B, 2, V), and the state to continue from.

    **Example**

        >>> text = "to be or not to be " * 20
        >>> model = rc.models.LanguageModel(rc.models.Characters.from_text(text), 16, cell="gru")
        >>> batches = model.streams(text, batch_size=4, chunk=20)
        >>> result = rc.train.fit(model, batches, loss=rc.models.NextToken(), epochs=8, lr=0.03)
        >>> model.measure(text)["bits_per_character"] < 2.5
        True
        >>> len(model.generate("to be", 10, seed=0))
        15
    """

    def __init__(
        self,
        vocabulary: TokenVocabulary,
        hidden_size: int = 256,
        num_layers: int = 1,
        *,
        cell: str | type[Cell] = "lstm",
        direction: Direction = "forward",
        embedding_size: int | None = None,
        encoder: TokenEncoder | None = None,
        ways: Sequence[Stack] | None = None,
        output: str | OutputLayer = "full",
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        residual: bool = False,
        **options: Any,
    ):
        given = {**locals(), **options}
        super().__init__()
        self.settings = {name: value for name, value in given.items() if name not in _NOT_STORED}
        if not isinstance(vocabulary, TokenVocabulary):
            raise InputError("vocabulary", type(vocabulary).__name__, "Characters, Words or Subwords")
        if direction not in WAYS:
            raise UnknownNameError("direction", repr(direction), WAYS)
        if encoder is None:
            encoder = Embedding(len(vocabulary), hidden_size if embedding_size is None else embedding_size)
        elif embedding_size is not None:
            raise OptionError("embedding_size", embedding_size, "None, because the encoder has its own size")
        self.vocabulary, self.direction, self.encoder = vocabulary, direction, encoder
        self.dropout, self.input_dropout = dropout, input_dropout
        if ways is None:
            ways = [
                Stack(cell, encoder.output_size, hidden_size, num_layers, residual=residual, dropout=dropout, **options)
                for _ in WAYS[direction]
            ]
        if len(ways) != len(WAYS[direction]):
            raise InputError("ways", f"{len(ways)} stacks", f"one for each of {WAYS[direction]}")
        self.ways = nn.ModuleList(ways)  # the name is part of saved models
        self.state_size = ways[0].output_size
        self.output = self._output(output)

    def _output(self, output: str | OutputLayer) -> OutputLayer:
        size, width = len(self.vocabulary), self.state_size
        if isinstance(output, OutputLayer):
            return output
        if output == "full":
            return FullSoftmax(width, size)
        if output == "tied":
            if not isinstance(self.encoder, Embedding):
                raise OptionError("output", "'tied'", "an encoder that is an Embedding, whose weights are shared")
            return TiedSoftmax(width, self.encoder.table)
        if output == "adaptive":
            return AdaptiveSoftmax(width, size)
        if output == "sampled":
            return SampledSoftmax(width, size, min(8192, max(1, size // 4)))
        raise UnknownNameError("output", repr(output), OUTPUTS)

    @property
    def stacks(self) -> list[Stack]:
        """The stacks of all directions."""
        return [stack for stack in self.ways if isinstance(stack, Stack)]

    # ------------------------------------------------------------------------------------------ network

    def forward(
        self, tokens: Tensor, state: Any = None, lengths: Tensor | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """Tokens (T, B) → log-probabilities of the next ones, (T, B, V), and the state. See the class."""
        tops, state = self.read(tokens, state, lengths, resets)
        return self.output.log_probs(tops), state

    def nll(
        self,
        tokens: Tensor,
        targets: Tensor,
        state: Any = None,
        lengths: Tensor | None = None,
        resets: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """Negative log-likelihoods in the shape of the targets, zero where a target is -100; and the state."""
        if targets.shape != tokens.shape:
            raise ShapeError("targets", f"shape {tuple(targets.shape)}", f"that of the tokens, {tuple(tokens.shape)}")
        tops, state = self.read(tokens, state, lengths, resets)
        targets = self._predictable(targets)
        valid = targets != IGNORE
        if bool(valid.all()):
            return self.output.nll(tops.flatten(0, -2), targets.flatten()).view(targets.shape), state
        values = tops.new_zeros(targets.shape)
        return values.masked_scatter(valid, self.output.nll(tops[valid], targets[valid])), state

    def _predictable(self, targets: Tensor) -> Tensor:
        """Targets with tokens outside the vocabulary replaced by the unknown token."""
        if self.vocabulary.unknown is None:
            return targets
        return targets.masked_fill(targets >= len(self.vocabulary), self.vocabulary.unknown)

    def read(
        self, tokens: Tensor, state: Any = None, lengths: Tensor | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """The outputs of the last layer, (T, B, d), for both directions (T, B, 2, d); and the state."""
        _check_tokens(tokens, 3 if self.direction == "both" else 2, self.encoder.input_size)
        x = F.dropout(self.encoder(tokens), self.input_dropout, self.training)
        if self.direction != "both":
            outputs, state = self.stacks[0](x, state, lengths, resets)
            return F.dropout(outputs[-1], self.dropout, self.training), state
        tops, states = [], []
        for way, stack in enumerate(self.stacks):
            outputs, after = stack(x[..., way, :], None if state is None else state[way], lengths, resets)
            tops.append(outputs[-1])
            states.append(after)
        return F.dropout(torch.stack(tops, dim=2), self.dropout, self.training), tuple(states)

    def contexts(self, tokens: Tensor, lengths: Tensor | None = None) -> list[LayerOutputs]:
        """The outputs of all layers, for every direction, of texts (T, B) in written order.

        At step t the forward direction has read tokens 0 … t, the backward direction T - 1 … t.
        """
        _check_tokens(tokens, 2, self.encoder.input_size)
        if lengths is not None:
            lengths = check_lengths(lengths, tokens.shape[0], tokens.shape[1], tokens.device)
        x = self.encoder(tokens)
        found: list[LayerOutputs] = []
        for way, stack in zip(WAYS[self.direction], self.stacks, strict=True):
            if way == "forward":
                found.append(stack(x, lengths=lengths)[0])
            else:
                outputs, _ = stack(reverse(x, lengths), lengths=lengths)
                found.append(tuple(reverse(y, lengths) for y in outputs))
        return found

    # ------------------------------------------------------------------------------------------ texts

    def streams(self, text: str | Tensor, batch_size: int = 32, chunk: int = 100) -> BatchSource:
        """Batches of a text, or of its tokens in written order, for `rc.train.fit` with `NextToken()`.

        The text is cut into `batch_size` parallel streams, read `chunk` steps at a time with a carried state.
        """
        tokens = self._tokens_of(text)
        if self.direction == "both":
            return TwoWayStreams(tokens, batch_size, chunk)
        return Streams(tokens if self.direction == "forward" else tokens.flip(0), batch_size, chunk)

    def measure(self, text: str | Tensor, chunk: int = 1024) -> dict[str, float]:
        """The quality of the predictions on a text: nats per token, perplexity, and bits per character."""
        tokens = self._tokens_of(text).to(next(self.parameters()).device)
        if len(tokens) < 2:
            raise TextError("text", f"{len(tokens)} tokens", "at least two, to predict one from the other")
        total = sum(
            self._total_nll(tokens if way == "forward" else tokens.flip(0), k, chunk) for k, way in self._ways()
        )
        predicted = len(self.stacks) * (len(tokens) - 1)
        kept = self._predictable(tokens)
        decoded = [self.vocabulary.decode(kept[1:] if way == "forward" else kept[:-1]) for _, way in self._ways()]
        nats, bits = total / predicted, total / math.log(2)
        characters = max(1, sum(map(len, decoded)))
        return {"nats": nats, "perplexity": math.exp(nats), "bits_per_character": bits / characters}

    def _tokens_of(self, text: str | Tensor) -> Tensor:
        """The tokens of a text in written order, (T,)."""
        if not isinstance(text, Tensor):
            return self.vocabulary.encode(text)
        _check_tokens(text, 1, self.encoder.input_size)
        return text

    def _ways(self) -> list[tuple[int, str]]:
        return list(enumerate(WAYS[self.direction]))

    @torch.no_grad()
    def _total_nll(self, tokens: Tensor, way: int, chunk: int) -> float:
        """The total negative log-likelihood of one direction over a text in reading order."""
        training, total, state = self.training, 0.0, None
        self.eval()
        try:
            for start in range(0, len(tokens) - 1, chunk):
                part = tokens[start : start + chunk + 1]
                outputs, state = self.stacks[way](self.encoder(part[:-1, None]), state)
                total += float(self.output.nll(outputs[-1][:, 0], self._predictable(part[1:])).double().sum())
        finally:
            self.train(training)
        return total

    def generate(
        self,
        prompt: str = "",
        length: int = 200,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
    ) -> str:
        """The prompt and `length` sampled tokens after it; for a backward model, before it.

        `temperature` 0 takes the likeliest token at every step. `top_k` samples from the k likeliest tokens, `top_p`
        from the smallest set of tokens with total probability p.
        """
        return generate(self, prompt, length, temperature, top_k, top_p, seed)

    # ------------------------------------------------------------------------------------------ on disk

    def save(self, folder: str | Path) -> None:
        """Write a folder with `config.json` and `model.safetensors`; `LanguageModel.load` reads it."""
        own = [name for name, value in self.settings.items() if name != "cell" and not is_plain(value)]
        if own:
            raise OptionError(
                "save", f"a model with its own {', '.join(own)}", "one built from names and numbers alone"
            )
        settings = {**self.settings, "cell": cell_name(self.settings["cell"])}
        config = {"vocabulary": self.vocabulary.to_config(), "settings": settings}
        write_folder(folder, FolderContents(KIND, config, distinct_tensors(self)))

    @classmethod
    def load(cls, folder: str | Path) -> "LanguageModel":
        """The model that `save` wrote, in evaluation mode."""
        stored = read_folder(folder, KIND)
        with stored.expecting("the config.json of a language model"):
            vocabulary = vocabulary_from(stored.section("vocabulary"))
            with stored.building():
                model = cls(vocabulary, **stored.section("settings"))
        model.load_state_dict(stored.tensors(like=distinct_tensors(model)), strict=False)  # tied tensors are there once
        return model.eval()


class NextToken:
    """The loss of a language model for `rc.train.fit`: the mean negative log-likelihood in nats per token.

    **Example**

        >>> text = "to be or not to be " * 20
        >>> model = rc.models.LanguageModel(rc.models.Characters.from_text(text), 16, cell="gru")
        >>> batches = model.streams(text, batch_size=4, chunk=20)
        >>> len(rc.train.fit(model, batches, loss=rc.models.NextToken(), epochs=2, progress=False).history)
        2
    """

    def count(self, batch: Any) -> int:
        """The number of target tokens in a batch."""
        return int((batch.targets != IGNORE).sum())

    def __call__(self, model: Any, batch: Any, state: Any) -> tuple[dict[str, Tensor], Any]:
        nll, state = model.nll(batch.inputs, batch.targets, state, batch.lengths, batch.resets)
        return {"loss": nll.sum()}, state


def _check_tokens(tokens: Any, rank: int, size: int) -> None:
    layout = ("(T,)", "(T, B)", "(T, B, 2), the text and its reverse")[rank - 1]
    if not isinstance(tokens, Tensor) or tokens.is_floating_point():
        raise DtypeError("tokens", getattr(tokens, "dtype", type(tokens).__name__), f"whole numbers {layout}")
    if tokens.dim() != rank or (rank == 3 and tokens.shape[-1] != 2) or not tokens.numel():
        raise ShapeError("tokens", f"shape {tuple(tokens.shape)}", f"{layout}, at least one")
    if tokens.device.type == "cpu" and (int(tokens.min()) < 0 or int(tokens.max()) >= size):
        worst = int(tokens.min()) if int(tokens.min()) < 0 else int(tokens.max())
        raise InputError("tokens", worst, f"numbers from 0 to {size - 1}")
