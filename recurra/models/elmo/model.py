"""ELMo: contextual word vectors from the layers of a bidirectional language model.

(Peters et al., Deep Contextualized Word Representations, 2018)
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from ...argument_checks import positive_int
from ...errors import InputError, ShapeError, UnknownNameError
from ...interop.allennlp import ElmoOptions, read_options, read_weights, write_files
from ...ragged import check_lengths, reverse
from ...storage import FolderContents, read_folder, write_folder
from ..language.sentences import check_sentences
from ..language.stack import Stack
from .characters import CharacterEncoder, add_sentence_marks, word_characters
from .mix import ScalarMix
from .weights import load_arrays, to_arrays

if TYPE_CHECKING:
    import numpy as np

KIND = "ELMo"  # in config.json
Layers = Literal["mix", "top", "all"]
#: the filters of the published models: (width, number of filters)
FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


class ELMo(nn.Module):
    """ELMo: contextual word vectors from characters, two stacks of projection LSTMs, and a learned sum of their layers.

    `ELMo.from_files` loads the published models, `rc.train.pretrain_elmo` trains one from text, and `embed` turns
    sentences into arrays. An ELMo can be the `embeddings` of a `rc.SequenceTagger` and the `extra_inputs` of a
    `rc.models.Tagger`.

    **Arguments**

    - `projection_size`, `hidden_size`, `num_layers`: of each direction. The defaults are the small published model; the
      original has 512 and 4096.
    - `character_size`, `filters`, `highways`, `longest`, `activation`: of the character encoder: the embedding of a
      character, (width, number) of the filters, highway layers, characters per word, `"relu"` or `"tanh"`.
    - `cell_clip`, `proj_clip`: clip the memory and the projected state of the LSTMs; None does not clip.
    - `residual`: every layer above the first adds its input.
    - `dropout`: between the layers.
    - `mix`: a `ScalarMix` of num_layers + 1 layers. One with `layer_norm` normalises per sentence in `embed`, so that
      the result does not depend on the batch.

    **Returns**

    `elmo(characters, lengths)`: words (T, B, longest), as `encode` gives them for each sentence → the mixed vectors
    (T, B, 2 · projection_size), forward half first, zero past the end of a sentence.

    **Example**

        >>> elmo = rc.ELMo(8, 16, filters=((1, 4), (2, 8)))
        >>> vectors = elmo.embed([["The", "cat", "sat"], ["Hello"]])
        >>> [v.shape for v in vectors]
        [(3, 16), (1, 16)]
        >>> elmo.embed([["Hello"]], layers="all")[0].shape  # the words and two layers
        (3, 1, 16)
    """

    def __init__(
        self,
        projection_size: int = 128,
        hidden_size: int = 1024,
        num_layers: int = 2,
        *,
        character_size: int = 16,
        filters: Sequence[tuple[int, int]] = FILTERS,
        highways: int = 2,
        longest: int = 50,
        activation: str = "relu",
        cell_clip: float | None = 3.0,
        proj_clip: float | None = 3.0,
        residual: bool = True,
        dropout: float = 0.0,
        mix: ScalarMix | None = None,
    ):
        super().__init__()
        pairs = _pairs(filters)
        self.options = ElmoOptions(
            projection_size=projection_size,
            hidden_size=hidden_size,
            num_layers=num_layers,
            character_size=character_size,
            filters=pairs,
            highways=highways,
            longest=longest,
            activation=activation,
            cell_clip=cell_clip,
            proj_clip=proj_clip,
            residual=residual,
        )
        self.encoder = CharacterEncoder(projection_size, character_size, pairs, highways, longest, activation)
        self.ways = nn.ModuleList(self._make_stack(dropout) for _ in range(2))  # forward, backward
        self.mix = ScalarMix(num_layers + 1) if mix is None else mix
        if self.mix.layers != num_layers + 1:
            raise InputError("mix", f"one of {self.mix.layers} layers", f"one of {num_layers + 1}: words and layers")
        self.output_size = 2 * projection_size

    def _make_stack(self, dropout: float) -> Stack:
        o = self.options
        return Stack(
            "projection_lstm",
            o.projection_size,
            o.hidden_size,
            o.num_layers,
            residual=o.residual,
            dropout=dropout,
            init=_glorot,
            proj_size=o.projection_size,
            peepholes=False,
            cell_clip=o.cell_clip,
            proj_clip=o.proj_clip,
            forget_bias=1.0,
        )

    @property
    def stacks(self) -> list[Stack]:
        """The forward and the backward stack."""
        return [stack for stack in self.ways if isinstance(stack, Stack)]

    # ------------------------------------------------------------------------------------------ vectors

    def encode(self, words: Sequence[str]) -> Tensor:
        """A sentence as the characters of its words: (T, longest)."""
        check_sentences([words])
        return torch.tensor([word_characters(word, self.options.longest, f"word {n}") for n, word in enumerate(words)])

    def forward(self, characters: Tensor, lengths: Tensor) -> Tensor:
        """Words (T, B, longest), as `encode` gives them → the mix of all layers, (T, B, 2 · projection_size)."""
        layers, _ = self.layers(characters, lengths)
        valid = torch.arange(len(characters), device=lengths.device)[:, None] < lengths  # (T, B)
        return self.mix(layers, valid) * valid[..., None]

    def layers(
        self, characters: Tensor, lengths: Tensor, state: Any = None
    ) -> tuple[tuple[Tensor, ...], tuple[Any, Any]]:
        """L + 1 layers of (T, B, 2 · projection_size), the encoded words first; and the final states."""
        longest = self.options.longest
        if characters.dim() != 3 or characters.shape[-1] != longest:
            raise ShapeError("characters", f"shape {tuple(characters.shape)}", f"(T, B, {longest})")
        lengths = check_lengths(lengths, characters.shape[0], characters.shape[1], characters.device)
        layers, after = self.read(add_sentence_marks(characters, lengths), lengths + 2, state)
        return tuple(layer[1:-1] for layer in layers), after

    def read(
        self, characters: Tensor, lengths: Tensor | None = None, state: Any = None
    ) -> tuple[tuple[Tensor, ...], tuple[Any, Any]]:
        """Like `layers`, for characters (T, B, longest) that already include the sentence marks."""
        x = self.encoder(characters)
        states = (None, None) if state is None else state
        forward, forward_state = self.ways[0](x, states[0], lengths)
        backward, backward_state = self.ways[1](reverse(x, lengths), states[1], lengths)
        pairs = zip(forward, (reverse(y, lengths) for y in backward), strict=True)
        return (torch.cat([x, x], -1), *(torch.cat(pair, -1) for pair in pairs)), (forward_state, backward_state)

    def embed(
        self,
        sentences: Sequence[Sequence[str]],
        layers: Layers = "mix",
        carry_state: bool = False,
        batch_size: int = 32,
    ) -> "list[np.ndarray]":
        """One array per sentence of n words, forward half first.

        `layers`: "mix" and "top" give (n, 2 · projection_size), "all" gives (L + 1, n, 2 · projection_size). With
        `carry_state` the sentences are one text: each starts from the final states of the previous one.
        """
        if layers not in ("mix", "top", "all"):
            raise UnknownNameError("layers", repr(layers), ("mix", "top", "all"))
        if not isinstance(batch_size, int) or batch_size < 1:
            raise InputError("batch_size", batch_size, "a positive whole number")
        check_sentences(sentences)
        training = self.training
        self.eval()
        try:
            with torch.no_grad():
                found = dict(self._embed_batches(sentences, layers, carry_state, batch_size))
        finally:
            self.train(training)
        return [found[number] for number in range(len(sentences))]

    def _embed_batches(
        self, sentences: Sequence[Sequence[str]], layers: Layers, carry_state: bool, batch_size: int
    ) -> "Iterator[tuple[int, np.ndarray]]":
        """(index of a sentence, its array); sentences of similar length share a batch."""
        order = list(range(len(sentences)))
        if carry_state:
            batch_size = 1
        else:
            order.sort(key=lambda number: len(sentences[number]))
        state = None
        for start in range(0, len(order), batch_size):
            numbers = order[start : start + batch_size]
            encoded = [self.encode(sentences[number]).to(self.mix.w.device) for number in numbers]
            lengths = torch.tensor([len(words) for words in encoded])
            whole, after = self.layers(nn.utils.rnn.pad_sequence(encoded), lengths, state)
            state = after if carry_state else None
            for row, (number, length) in enumerate(zip(numbers, lengths.tolist(), strict=True)):
                yield number, self._select_layers([layer[:length, row] for layer in whole], layers).cpu().numpy()

    def _select_layers(self, layers: list[Tensor], which: Layers) -> Tensor:
        if which == "top":
            return layers[-1]
        return torch.stack(layers) if which == "all" else self.mix(layers)

    def freeze(self) -> "ELMo":
        """Train only the mix, as most published work does."""
        self.requires_grad_(False)
        self.mix.requires_grad_(True)
        return self

    # ------------------------------------------------------------------------------------------ files

    def save(self, folder: str | Path) -> None:
        """Write options and weights, the mix included, to a folder; `ELMo.load` reads it."""
        write_folder(folder, FolderContents(KIND, {"options": self.settings()}, self.state_dict()))

    def settings(self) -> dict[str, Any]:
        """The constructor arguments as plain JSON; those of the mix are under "mix"."""
        mix = {"normalise": self.mix.normalise, "scale": self.mix.gamma is not None, "layer_norm": self.mix.layer_norm}
        return {**asdict(self.options), "filters": [list(pair) for pair in self.options.filters], "mix": mix}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "ELMo":
        """An ELMo with these settings and new weights."""
        options: dict[str, Any] = dict(settings)
        return cls(**options | {"mix": ScalarMix(options["num_layers"] + 1, **options["mix"])})

    @classmethod
    def load(cls, folder: str | Path) -> "ELMo":
        """The ELMo that `save` or `recurra pretrain` wrote, in evaluation mode."""
        stored = read_folder(folder, KIND)
        with stored.expecting("the options of an ELMo"), stored.building():
            model = cls.from_settings(stored.section("options"))
        model.load_state_dict(stored.tensors(like=model.state_dict()))
        return model.eval()

    @classmethod
    def from_files(cls, options: str | Path, weights: str | Path, **changes: Any) -> "ELMo":
        """Load the official `options.json` and HDF5 weights; `changes` may set `mix` and `dropout`."""
        read = read_options(options)
        arrays = read_weights(weights, read)
        settings = {name: getattr(read, name) for name in read.__dataclass_fields__}
        model = cls(**settings, **changes)
        load_arrays(model.encoder, model.stacks, arrays)
        return model

    def save_files(self, options: str | Path, weights: str | Path) -> None:
        """Write the official `options.json` and HDF5 weights. They do not include the mix."""
        write_files(options, weights, self.options, to_arrays(self.encoder, self.stacks, self.options))


def _glorot(cell: nn.Module) -> None:
    """The initialisation of bilm-tf's LSTMs: Glorot over the concatenated matrix of all gates, zero bias."""
    hidden, width = cell.i.U.shape  # pyrefly: ignore
    recurrent = cell.i.W.shape[1]  # pyrefly: ignore
    bound = (6.0 / (width + recurrent + 4 * hidden)) ** 0.5
    for name, parameter in cell.named_parameters():
        if name.endswith(".b"):
            nn.init.zeros_(parameter)
        elif name.startswith("R"):
            nn.init.xavier_uniform_(parameter)
        else:
            nn.init.uniform_(parameter, -bound, bound)


def _pairs(filters: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    try:
        return tuple((positive_int("filters", width), positive_int("filters", count)) for width, count in filters)
    except (TypeError, ValueError):
        raise InputError("filters", repr(filters), "pairs of whole numbers: (width, number of filters)") from None
