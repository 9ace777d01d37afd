"""`rc.SequenceToSequence`: `rc.models.EncoderDecoder` over texts, with the scikit-learn interface."""

from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch.nn.utils.rnn import pad_sequence

from ..argument_checks import is_real, positive_int
from ..cell import Cell
from ..cells import find
from ..errors import InputError, ShapeError
from ..inspect.sample import Sample
from ..layers import Recurrent
from ..models.seq2seq import EncoderDecoder, NextSymbol, Pairs, Symbols, beam
from ..models.seq2seq.pairs import split
from ..storage import FolderContents, read_folder, write_folder
from ..train import randomness
from ..train.fit import fit as train
from ..train.schedule import cosine
from . import input_conversion, saved_options
from .inspection import SourceReader, split_pair
from .training_options import check_training_options, draw_seed, to_int

PREDICT_BATCH = 128  # texts written at a time


class SequenceToSequence(BaseEstimator):
    """Turns one text into another: spelling, pronunciation, transliteration, formats, short translations.

    An encoder reads the source, a decoder writes the target symbol by symbol, with attention on the source. Fitted
    attributes: `model_`, `source_symbols_`, `target_symbols_`, `longest_`, `history_`. Many of scikit-learn's checks do
    not apply, see `rc.estimators.inapplicable_checks`.

    **Arguments**

    - `cell`: of encoder and decoder, a registered name such as "gru", or a cell class.
    - `hidden_size`, `num_layers`: of the decoder, and of each direction of the encoder; `bidirectional`: whether the
      encoder reads both directions.
    - `attention`: "additive", "dot" or None.
    - `level`: symbols are "character" or "word".
    - `embedding_size`: of the symbols. `dropout`: of the network. `cell_options`: further ones of the cells.
    - `sampling`: the share of steps at which training feeds the decoder its own symbols (scheduled sampling).
    - `beam_width`, `length_penalty`: of the beam search in `predict`; 1 is greedy.
    - `epochs`, `batch_size`, `lr`, `optimizer`, `clip`, `device`: of `rc.train.fit`; the learning rate falls to zero
      along a cosine.
    - `validation`: the share of pairs held out. Training stops after `patience` epochs without an improvement on them
      and keeps the best weights.
    - `random_state`: the seed. `verbose`: show the progress.

    **Example**

        >>> import recurra as rc
        >>> X, y = ["one", "two", "three"] * 8, ["1", "2", "3"] * 8
        >>> model = rc.SequenceToSequence(hidden_size=16, embedding_size=8, epochs=30, lr=0.02, random_state=0)
        >>> model.fit(X, y).predict(["two", "three"])
        ['2', '3']
    """

    def __init__(
        self,
        cell: type[Cell] | str = "gru",
        hidden_size: int = 128,
        num_layers: int = 1,
        bidirectional: bool = True,
        attention: str | None = "additive",
        level: str = "character",
        *,
        cell_options: dict[str, Any] | None = None,
        embedding_size: int = 64,
        dropout: float = 0.0,
        sampling: float = 0.0,
        beam_width: int = 1,
        length_penalty: float = 1.0,
        epochs: int = 20,
        batch_size: int = 32,
        lr: float = 5e-3,
        optimizer: str = "adam",
        clip: float | None = 1.0,
        validation: float = 0.0,
        patience: int = 5,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.cell, self.hidden_size, self.num_layers, self.bidirectional = cell, hidden_size, num_layers, bidirectional
        self.attention, self.level, self.cell_options = attention, level, cell_options
        self.embedding_size, self.dropout = embedding_size, dropout
        self.sampling, self.beam_width, self.length_penalty = sampling, beam_width, length_penalty
        self.epochs, self.batch_size, self.lr, self.optimizer, self.clip = epochs, batch_size, lr, optimizer, clip
        self.validation, self.patience, self.device = validation, patience, device
        self.random_state, self.verbose = random_state, verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Train on texts X and the texts y that they become, one for each."""
        X, y = self._texts(X, "X"), self._texts(y, "y")
        if len(X) != len(y) or not X:
            raise ShapeError("y", f"{len(y)} texts", f"one for each of {len(X)} sources, at least one")
        self._check_options()
        seed = draw_seed(self.random_state)
        self.source_symbols_, self.target_symbols_ = (Symbols.of(texts, self.level) for texts in (X, y))
        sources, targets = self._sources(X), [self.target_symbols_.encode(text, stop=True) for text in y]
        self.longest_ = 2 * max(len(target) for target in targets)
        with randomness.preserve_rng():
            torch.manual_seed(seed)
            self.model_ = self._build()
            self._train(sources, targets, seed)
        return self

    def _texts(self, texts: Any, argument: str) -> list[str]:
        if isinstance(texts, str):
            raise InputError(argument, "one text", "a list of texts")
        return input_conversion.texts(texts)

    def _check_options(self) -> None:
        check_training_options(self)
        positive_int("beam_width", to_int(self.beam_width))
        if not is_real(self.validation) or not 0 <= self.validation < 1:
            raise InputError("validation", repr(self.validation), "a share from 0 to below 1")

    def _sources(self, texts: list[str]) -> list[torch.Tensor]:
        return [self.source_symbols_.encode(text) for text in texts]

    def _build(self) -> EncoderDecoder:
        cell = find(self.cell) if isinstance(self.cell, str) else self.cell
        width, layers, embedding = (to_int(v) for v in (self.hidden_size, self.num_layers, self.embedding_size))
        options: dict[str, Any] = {"dropout": self.dropout, **(self.cell_options or {})}
        encoder = Recurrent(cell, embedding, width, layers, bidirectional=self.bidirectional, **options)
        context = 0 if self.attention else encoder.output_size
        decoder = Recurrent(cell, embedding + context, width, layers, **options)
        sizes = len(self.target_symbols_), len(self.source_symbols_)
        return EncoderDecoder(encoder, decoder, *sizes, self.attention, dropout=self.dropout)

    def _train(self, sources: list[torch.Tensor], targets: list[torch.Tensor], seed: int) -> None:
        order = np.random.default_rng(seed).permutation(len(sources)).tolist()
        held = order[: int(self.validation * len(order))]
        learned, size = sorted(order[len(held) :]), to_int(self.batch_size)
        parts = [([sources[k] for k in ids], [targets[k] for k in ids]) for ids in (learned, held)]
        result = train(
            self.model_,
            Pairs(*parts[0], size, seed=seed),
            Pairs(*parts[1], size, shuffle=False) if held else None,
            loss=NextSymbol(self.sampling),
            optimizer=self.optimizer,
            lr=self.lr,
            schedule=cosine(),
            epochs=to_int(self.epochs),
            clip=self.clip,
            patience=to_int(self.patience) if held else None,
            device=self.device,
            progress=self.verbose,
        )
        self.history_ = result.history
        self.model_.eval().cpu()

    def inspection_inputs(self, data: Any, sequences: int = 4) -> tuple[SourceReader, Sample]:
        """The encoder and a few sources with their symbols, for `rc.inspect` and `rc.report`."""
        check_is_fitted(self, "model_")
        texts = self._texts(split_pair(data)[0], "X")[:sequences]
        sources = self._sources(texts)
        labels = tuple(tuple(split(text, self.level)) or ("",) for text in texts)
        lengths = torch.tensor([len(source) for source in sources])
        return SourceReader(self.model_), Sample(pad_sequence(sources), lengths, labels=labels)

    @torch.no_grad()
    def encode(self, X: Any) -> list[np.ndarray]:
        """What the decoder reads of each source: one array (symbols, features) each."""
        check_is_fitted(self, "model_")
        sources = self._sources(self._texts(X, "X"))
        read = SourceReader(self.model_)
        return [read(source[:, None], torch.tensor([len(source)]))[:, 0].numpy() for source in sources]

    def predict(self, X: Any) -> list[str]:
        """The text that each source becomes."""
        return [best[0] for best in self.candidates(X, to_int(self.beam_width))]

    def candidates(self, X: Any, count: int = 5) -> list[list[str]]:
        """The `count` best texts for each source, best first, by beam search."""
        check_is_fitted(self, "model_")
        sources = self._sources(self._texts(X, "X"))
        found: list[list[str]] = [[] for _ in sources]
        order = sorted(range(len(sources)), key=lambda k: len(sources[k]))
        for first in range(0, len(order), PREDICT_BATCH):
            ids = order[first : first + PREDICT_BATCH]
            part = Pairs([sources[k] for k in ids], [sources[k] for k in ids], len(ids), shuffle=False)
            batch = part.batch(torch.arange(len(ids)))
            options = positive_int("count", count), self.longest_, float(self.length_penalty)
            written, _ = beam(self.model_, batch.inputs, batch.lengths, *options)
            for k, outputs in zip(ids, written, strict=True):
                found[k] = [self.target_symbols_.decode(tokens) for tokens in outputs]
        return found

    def score(self, X: Any, y: Any) -> float:
        """The share of sources whose prediction is exactly the text in y."""
        y = self._texts(y, "y")
        found = self.predict(X)
        if len(found) != len(y):
            raise ShapeError("y", f"{len(y)} texts", f"one for each of {len(found)} sources")
        return float(np.mean([a == b for a, b in zip(found, y, strict=True)]))

    def save(self, folder: str | Path) -> None:
        """Write `config.json`, with the symbols, and `model.safetensors`."""
        write_folder(folder, self.folder_contents())

    def folder_contents(self) -> FolderContents:
        """What `save` writes."""
        check_is_fitted(self, "model_")
        options = saved_options.options_to_json(self.get_params(deep=False))
        symbols = {"source": list(self.source_symbols_.symbols), "target": list(self.target_symbols_.symbols)}
        fitted = {"symbols": symbols, "longest_": self.longest_, "history_": self.history_}
        return FolderContents(type(self).__name__, {"options": options, "fitted": fitted}, self.model_.state_dict())

    def export(self, folder: str | Path) -> tuple[Path, Path]:
        """Write `encoder.onnx` and `decoder.onnx` into a folder, made if it is missing, and return their paths.

        The encoder reads `source` (S, B) and `lengths` (B,). Its outputs have the names of the decoder's inputs, which
        are those and the tokens written so far; the decoder returns `log_probabilities` (T, B, V) and its states, as
        `next_` and the name of the state. The metadata have the symbols. Both files are compared with the model in
        onnxruntime before they are put in place.
        """
        from .translation_export import export

        check_is_fitted(self, "model_")
        return export(self, folder)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The estimator that `save` wrote. A user-defined cell must be registered before."""
        stored = read_folder(folder, cls.__name__)
        self = cls(**saved_options.options_from_json(stored.section("options"), cls().get_params(deep=False), folder))
        fitted = stored.section("fitted")
        with stored.expecting("the symbols of a sequence-to-sequence model"):
            names = fitted["symbols"]
            self.source_symbols_ = Symbols(self.level, tuple(names["source"]))
            self.target_symbols_ = Symbols(self.level, tuple(names["target"]))
            self.longest_, self.history_ = positive_int("longest_", fitted["longest_"]), fitted["history_"]
        with stored.building():
            self.model_ = self._build()
        self.model_.load_state_dict(stored.tensors(like=self.model_.state_dict()))
        self.model_.eval()
        return self
