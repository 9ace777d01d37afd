"""A tag for every word: rc.models.Tagger in scikit-learn's manner."""

from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ..cell import Cell
from ..data.batching import Batches
from ..errors import InputError
from ..models.tagging import Tagger, Vocabulary, accuracy, entity_scores
from ..storage import FolderContents, read_folder, write_folder
from ..train import randomness
from ..train.fit import fit as train
from . import inputs, saved_options
from .base import whole

Sentences = list[list[str]]


class SequenceTagger(BaseEstimator):
    """Tags for sentences, lists of words; the tags are lists of strings, in BIO, IOB1, BIOES, or any others.

    cell, hidden_size, num_layers: of each direction. output: "crf", "softmax" or "hmm". `tagger_options` are further
    ones of rc.models.Tagger, such as chars or word_size. validation: the share of sentences that judges the training,
    which then stops after `patience` epochs without an improvement and keeps the best weights.

    Fitted: `tagger_`, `classes_`, `history_`. scikit-learn's checks do not apply: they bring arrays of numbers.
    """

    def __init__(
        self,
        cell: type[Cell] | str = "lstm",
        hidden_size: int = 128,
        num_layers: int = 1,
        output: str = "crf",
        dropout: float = 0.5,
        *,
        tagger_options: dict[str, Any] | None = None,
        epochs: int = 15,
        batch_size: int = 16,
        lr: float = 5e-3,
        optimizer: str = "adam",
        clip: float | None = 5.0,
        validation: float = 0.0,
        patience: int = 5,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.cell, self.hidden_size, self.num_layers, self.output = cell, hidden_size, num_layers, output
        self.dropout, self.tagger_options, self.epochs, self.batch_size = dropout, tagger_options, epochs, batch_size
        self.lr = lr
        self.optimizer, self.clip, self.validation, self.patience = optimizer, clip, validation, patience
        self.device, self.random_state, self.verbose = device, random_state, verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from sentences and their tags, or from a long table `unique_id, word, tag`, one row a word."""
        if not 0 <= self.validation < 1:
            raise InputError("validation", self.validation, "a share from 0 to below 1")
        X, y = inputs.sentences(X, y)
        if y is None:
            raise InputError("y", "nothing", "the tags of every sentence, or a table that has them")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with randomness.undisturbed():
            torch.manual_seed(seed)
            self.tagger_ = Tagger.of(X, y, **self._options())
            self._train(self.tagger_.encode(X, y), seed)
        self.classes_ = np.array(self.tagger_.vocabulary.classes)
        return self

    def _options(self) -> dict[str, Any]:
        own = {"cell": self.cell, "output": self.output, "dropout": self.dropout, **(self.tagger_options or {})}
        return own | {"hidden_size": whole(self.hidden_size), "num_layers": whole(self.num_layers)}

    def _train(self, data: Any, seed: int) -> None:
        order = np.random.default_rng(seed).permutation(len(data)).tolist()
        held = order[: int(self.validation * len(data))]
        learned = data.select(sorted(order[len(held) :])) if held else data
        result = train(
            self.tagger_,
            Batches(learned, whole(self.batch_size), seed=seed),
            Batches(data.select(held), whole(self.batch_size), shuffle=False) if held else None,
            loss=self.tagger_.objective(),
            optimizer=self.optimizer,
            lr=self.lr,
            epochs=whole(self.epochs),
            clip=self.clip,
            patience=whole(self.patience) if held else None,
            device=self.device,
            progress=self.verbose,
        )
        self.history_ = result.history
        self.tagger_.eval()

    def predict(self, X: Any) -> Sentences:
        """The tags of every sentence, in the order in which sentences come."""
        check_is_fitted(self, "tagger_")
        return self.tagger_.tag(inputs.sentences(X)[0])

    def predict_proba(self, X: Any) -> list[np.ndarray]:
        """One (words, tags) array a sentence, the tags in the order of `classes_`."""
        check_is_fitted(self, "tagger_")
        return [found.numpy() for found in self.tagger_.probabilities(inputs.sentences(X)[0])]

    def score(self, X: Any, y: Any = None) -> float:
        """F1 of whole entities where the tags mark entities, else the share of words tagged right."""
        X, y = inputs.sentences(X, y)
        found = self.predict(X)
        return accuracy(y, found) if self.tagger_.vocabulary.scheme is None else entity_scores(y, found).f1

    def save(self, folder: str | Path) -> None:
        """Write `config.json`, with the vocabulary, and `model.safetensors`."""
        write_folder(folder, self.folder_contents())

    def folder_contents(self) -> FolderContents:
        """What `save` writes."""
        check_is_fitted(self, "tagger_")
        options = saved_options.options_to_json(self.get_params(deep=False))
        fitted = {"vocabulary": self.tagger_.vocabulary.to_json(), "history_": self.history_}
        return FolderContents(type(self).__name__, {"options": options, "fitted": fitted}, self.tagger_.state_dict())

    def export(self, path: str | Path) -> Path:
        """Write one ONNX file: `x` (T, B, width), the numbers of words, and `lengths` (B,) → `tags` and `tag_scores`.

        The tags (T, B) are the best path, -100 past an end; the scores (T, B, K) are those of every word for itself.
        The vocabulary is in the metadata; `tagger_.encode` gives the numbers. It is checked in onnxruntime before it
        appears.
        """
        from .tagger_export import export

        check_is_fitted(self, "tagger_")
        return export(self.tagger_, path)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The tagger that `save` wrote. A cell of one's own must be registered by then."""
        stored = read_folder(folder, cls.__name__)
        self = cls(**saved_options.options_from_json(stored.section("options"), cls().get_params(deep=False), folder))
        fitted = stored.section("fitted")
        with stored.expecting("the vocabulary of a tagger"):
            vocabulary, self.history_ = Vocabulary(**fitted["vocabulary"]), fitted["history_"]
        self.tagger_ = Tagger(vocabulary, **self._options())
        self.tagger_.load_state_dict(stored.tensors(like=self.tagger_.state_dict()))
        self.tagger_.eval()
        self.classes_ = np.array(vocabulary.classes)
        return self
