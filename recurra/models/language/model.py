"""Language models: a text read by any cell, forwards, backwards or both ways, each token predicted from those before.

Tokens are handed over in reading order: a backward model's text begins with its last token. A model of both directions
reads two texts side by side, (T, B, 2): one as written, one from its end; they share embedding and softmax, and nothing
else (Peters et al. 2018).
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...cell import Cell
from ...errors import DtypeError, InputError, OptionError, ShapeError, UnknownNameError
from ...ragged import check_lengths, reverse
from ...storage import FolderContents, cell_name, distinct_tensors, is_plain, read_folder, write_folder
from .generate import generate
from .inputs import Embedding, TokenEncoder
from .output import AdaptiveSoftmax, Output, SampledSoftmax, Softmax, TiedSoftmax
from .stack import Outputs, Stack
from .vocabulary import TextError, Vocabulary, vocabulary_from

if TYPE_CHECKING:
    from ...data.batching import BatchSource

Direction = Literal["forward", "backward", "both"]
WAYS: Mapping[str, tuple[str, ...]] = {
    "forward": ("forward",),
    "backward": ("backward",),
    "both": ("forward", "backward"),
}
KIND = "LanguageModel"  # in config.json
OUTPUTS = ("full", "tied", "adaptive", "sampled")
#: what the constructor is given and `save` does not store among the settings
_NOT_STORED = ("self", "__class__", "vocabulary", "options")
IGNORE = -100  # no target at this step; the value torch's cross-entropy leaves out


class LanguageModel(nn.Module):
    """p(token | those before it), with any cell.

    vocabulary     `Characters`, `Words` or `Subwords`.
    direction      "forward", "backward", or "both": two stacks that share encoder and softmax.
    encoder        by default an embedding of each token; or such as `WordCharacters`, which reads a word's characters.
                   One that knows more tokens than the vocabulary reads them all, and predicts `<unk>` for the others.
    ways           stacks that exist already, one a direction, instead of those that size, layers and cell describe.
    output         "full", "tied" (to the embedding), "adaptive", "sampled", or one of those built by hand.
    dropout        on the last layer's output and between layers; `input_dropout` on the embedding.
    residual       each layer above the first adds its input.

    Other options are those of `Recurrent` and of the cell.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        hidden_size: int = 256,
        num_layers: int = 1,
        *,
        cell: str | type[Cell] = "lstm",
        direction: Direction = "forward",
        embedding_size: int | None = None,
        encoder: TokenEncoder | None = None,
        ways: Sequence[Stack] | None = None,
        output: str | Output = "full",
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        residual: bool = False,
        **options: Any,
    ):
        given = {**locals(), **options}
        super().__init__()
        self.settings = {name: value for name, value in given.items() if name not in _NOT_STORED}
        if not isinstance(vocabulary, Vocabulary):
            raise InputError("vocabulary", type(vocabulary).__name__, "Characters, Words or Subwords")
        if direction not in WAYS:
            raise UnknownNameError("direction", repr(direction), WAYS)
        if encoder is None:
            encoder = Embedding(len(vocabulary), hidden_size if embedding_size is None else embedding_size)
        elif embedding_size is not None:
            raise OptionError("embedding_size", embedding_size, "none beside an encoder of your own")
        self.vocabulary, self.direction, self.encoder = vocabulary, direction, encoder
        self.dropout, self.input_dropout = dropout, input_dropout
        if ways is None:
            ways = [
                Stack(cell, encoder.output_size, hidden_size, num_layers, residual=residual, dropout=dropout, **options)
                for _ in WAYS[direction]
            ]
        if len(ways) != len(WAYS[direction]):
            raise InputError("ways", f"{len(ways)} stacks", f"one for each of {WAYS[direction]}")
        self.ways = nn.ModuleList(ways)
        self.state_size = ways[0].output_size
        self.output = self._output(output)

    def _output(self, output: str | Output) -> Output:
        size, width = len(self.vocabulary), self.state_size
        if isinstance(output, Output):
            return output
        if output == "full":
            return Softmax(width, size)
        if output == "tied":
            if not isinstance(self.encoder, Embedding):
                raise OptionError("output", "'tied'", "an encoder that is an embedding, to be tied to")
            return TiedSoftmax(width, self.encoder.table)
        if output == "adaptive":
            return AdaptiveSoftmax(width, size)
        if output == "sampled":
            return SampledSoftmax(width, size, min(8192, max(1, size // 4)))
        raise UnknownNameError("output", repr(output), OUTPUTS)

    @property
    def stacks(self) -> list[Stack]:
        """One for each direction, typed."""
        return [stack for stack in self.ways if isinstance(stack, Stack)]

    # ------------------------------------------------------------------------------------------ reading

    def forward(
        self, tokens: Tensor, state: Any = None, lengths: Tensor | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """(T, B) tokens → log-probabilities of the next ones (T, B, V), and the state; both ways (T, B, 2, V)."""
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
        """Negative log-likelihoods of the targets, as large as they are, zero where a target is -100; and the state."""
        if targets.shape != tokens.shape:
            raise ShapeError("targets", f"shape {tuple(targets.shape)}", f"that of the tokens, {tuple(tokens.shape)}")
        tops, state = self.read(tokens, state, lengths, resets)
        targets = self._predictable(targets)
        real = targets != IGNORE
        if bool(real.all()):
            return self.output.nll(tops.flatten(0, -2), targets.flatten()).view(targets.shape), state
        values = tops.new_zeros(targets.shape)
        return values.masked_scatter(real, self.output.nll(tops[real], targets[real])), state

    def _predictable(self, targets: Tensor) -> Tensor:
        """Tokens that can be read, and not predicted, are unknown."""
        if self.vocabulary.unknown is None:
            return targets
        return targets.masked_fill(targets >= len(self.vocabulary), self.vocabulary.unknown)

    def read(
        self, tokens: Tensor, state: Any = None, lengths: Tensor | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """The last layer's states: (T, B, d), or both ways (T, B, 2, d)."""
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

    def contexts(self, tokens: Tensor, lengths: Tensor | None = None) -> list[Outputs]:
        """What every direction makes of texts as written, (T, B): for each, the outputs of its layers in that order.

        Step t of the forward direction has read tokens 0 … t, of the backward direction T - 1 … t.
        """
        _check_tokens(tokens, 2, self.encoder.input_size)
        if lengths is not None:
            lengths = check_lengths(lengths, tokens.shape[0], tokens.shape[1], tokens.device)
        x = self.encoder(tokens)
        found: list[Outputs] = []
        for way, stack in zip(WAYS[self.direction], self.stacks, strict=True):
            if way == "forward":
                found.append(stack(x, lengths=lengths)[0])
            else:
                outputs, _ = stack(reverse(x, lengths), lengths=lengths)
                found.append(tuple(reverse(y, lengths) for y in outputs))
        return found

    # ------------------------------------------------------------------------------------------ texts

    def streams(self, text: str | Tensor, batch_size: int = 32, chunk: int = 100) -> "BatchSource":
        """A text, or its tokens as written, for `fit` with `NextToken()`: lanes side by side, the state carried on.

        A convenience, which reaches into the room of data.
        """
        from ...data.batching import Streams
        from .streams import TwoWayStreams

        tokens = self._text(text)
        if self.direction == "both":
            return TwoWayStreams(tokens, batch_size, chunk)
        return Streams(tokens if self.direction == "forward" else tokens.flip(0), batch_size, chunk)

    def measure(self, text: str | Tensor, chunk: int = 1024) -> dict[str, float]:
        """Of a text, read as one: nats a token, perplexity, and bits a character of what was predicted."""
        tokens = self._text(text).to(next(self.parameters()).device)
        if len(tokens) < 2:
            raise TextError("text", f"{len(tokens)} tokens", "at least two, to predict one from the other")
        total = sum(self._surprise(tokens if way == "forward" else tokens.flip(0), k, chunk) for k, way in self._ways())
        predicted = len(self.stacks) * (len(tokens) - 1)
        kept = self._predictable(tokens)
        decoded = [self.vocabulary.decode(kept[1:] if way == "forward" else kept[:-1]) for _, way in self._ways()]
        nats, bits = total / predicted, total / math.log(2)
        characters = max(1, sum(map(len, decoded)))
        return {"nats": nats, "perplexity": math.exp(nats), "bits_per_character": bits / characters}

    def _text(self, text: str | Tensor) -> Tensor:
        """(T,) tokens as written."""
        if not isinstance(text, Tensor):
            return self.vocabulary.encode(text)
        _check_tokens(text, 1, self.encoder.input_size)
        return text

    def _ways(self) -> list[tuple[int, str]]:
        return list(enumerate(WAYS[self.direction]))

    @torch.no_grad()
    def _surprise(self, tokens: Tensor, way: int, chunk: int) -> float:
        """The sum of negative log-likelihoods of one direction over a text in reading order."""
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
        """The prompt and `length` tokens that may follow it; a backward model writes what may come before it.

        `temperature` 0 takes the likeliest token every time. `top_k` and `top_p` draw from the k likeliest tokens, and
        from the fewest that together have probability p.
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
            model = cls(vocabulary_from(stored.section("vocabulary")), **stored.section("settings"))
        model.load_state_dict(stored.tensors(like=distinct_tensors(model)), strict=False)  # tied tensors are there once
        return model.eval()


class NextToken:
    """What `fit` minimises: the mean negative log-likelihood, in nats a token, over all directions."""

    def count(self, batch: Any) -> int:
        return int((batch.targets != IGNORE).sum())

    def __call__(self, model: Any, batch: Any, state: Any) -> tuple[dict[str, Tensor], Any]:
        nll, state = model.nll(batch.inputs, batch.targets, state, batch.lengths, batch.resets)
        return {"loss": nll.sum()}, state


def _check_tokens(tokens: Any, rank: int, size: int) -> None:
    layout = ("(T,)", "(T, B)", "(T, B, 2), the text and the text from its end")[rank - 1]
    if not isinstance(tokens, Tensor) or tokens.is_floating_point():
        raise DtypeError("tokens", getattr(tokens, "dtype", type(tokens).__name__), f"whole numbers {layout}")
    if tokens.dim() != rank or (rank == 3 and tokens.shape[-1] != 2) or not tokens.numel():
        raise ShapeError("tokens", f"shape {tuple(tokens.shape)}", f"{layout}, at least one")
    if tokens.device.type == "cpu" and (int(tokens.min()) < 0 or int(tokens.max()) >= size):
        worst = int(tokens.min()) if int(tokens.min()) < 0 else int(tokens.max())
        raise InputError("tokens", worst, f"numbers from 0 to {size - 1}")
