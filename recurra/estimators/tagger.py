"""`rc.SequenceTagger`: `rc.models.Tagger` with the scikit-learn interface."""

from copy import deepcopy
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ..argument_checks import is_real
from ..cell import Cell
from ..data.batching import Batches
from ..errors import InputError, OptionError
from ..models.elmo import ELMo
from ..models.tagging import Tagger, Vocabulary, accuracy, entity_scores
from ..storage import FolderContents, read_folder, write_folder
from ..train import randomness
from ..train.fit import fit as train
from ..train.schedule import cosine
from . import input_conversion, saved_options
from .inspection import split_pair
from .training_options import check_training_options, draw_seed, to_int

Sentences = list[list[str]]
OF_THE_CORPUS = ("least", "word_length", "forms")  # options of `Tagger.of`, which the vocabulary keeps


class SequenceTagger(BaseEstimator):
    """A tagger: one tag for every word of a sentence, by a bidirectional network with a CRF on top.

    Sentences are lists of words, tags lists of strings: BIO, IOB1, BIOES entity tags or any other labels. Fitted
    attributes: `tagger_`, `classes_`, `history_`. Many of scikit-learn's checks do not apply, see
    `rc.estimators.inapplicable_checks`.

    **Arguments**

    - `cell`: a registered name such as "lstm", or a cell class.
    - `hidden_size`, `num_layers`: of each direction.
    - `output`: "crf", "softmax" or "hmm".
    - `dropout`: of the network; `tagger_options` are further ones of `rc.models.Tagger`, such as `chars`.
    - `embeddings`: word vectors beside the tagger's own: an `rc.ELMo`, or the folder of one that `recurra pretrain` or
      `save` wrote. They are frozen, but for the weights of the sum of their layers, and are saved with the model.
    - `epochs`, `batch_size`, `lr`, `optimizer`, `clip`, `device`: of `rc.train.fit`; the learning rate falls to zero
      along a cosine.
    - `validation`: the share of sentences held out. Training stops after `patience` epochs without an improvement on
      them and keeps the best weights.
    - `random_state`: the seed. `verbose`: show the progress.

    **Example**

        >>> import recurra as rc
        >>> X, y = [["Ada", "lives", "in", "Paris"]] * 4, [["B-PER", "O", "O", "B-LOC"]] * 4
        >>> model = rc.SequenceTagger("gru", hidden_size=8, epochs=20, lr=0.02, dropout=0.0, random_state=0).fit(X, y)
        >>> model.predict([["Ada", "in", "Paris"]])
        [['B-PER', 'O', 'B-LOC']]
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
        embeddings: ELMo | str | Path | None = None,
        epochs: int = 12,
        batch_size: int = 16,
        lr: float = 2e-3,
        optimizer: str = "adam",
        clip: float | None = 5.0,
        validation: float = 0.0,
        patience: int = 5,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.cell, self.hidden_size, self.num_layers, self.output = cell, hidden_size, num_layers, output
        self.embeddings = embeddings
        self.dropout, self.tagger_options, self.epochs, self.batch_size = dropout, tagger_options, epochs, batch_size
        self.lr = lr
        self.optimizer, self.clip, self.validation, self.patience = optimizer, clip, validation, patience
        self.device, self.random_state, self.verbose = device, random_state, verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train on sentences and their tags, or on a long table `unique_id, word, tag` with one row per word."""
        X, y = input_conversion.sentences(X, y)
        if y is None:
            raise InputError("y", "nothing", "the tags of every sentence, or a table that has them")
        check_training_options(self, "tagger_options")
        if not is_real(self.validation) or not 0 <= self.validation < 1:
            raise InputError("validation", repr(self.validation), "a share from 0 to below 1")
        seed = draw_seed(self.random_state)
        with randomness.preserve_rng():
            torch.manual_seed(seed)
            self.tagger_ = Tagger.of(X, y, **(self.tagger_options or {}) | self._options(self._elmo()))
            self._train(self.tagger_.encode(X, y), seed)
        self.classes_ = np.array(self.tagger_.vocabulary.classes)
        return self

    def _options(self, elmo: ELMo | None) -> dict[str, Any]:
        """Arguments of the tagger beside its vocabulary."""
        given = {name: value for name, value in (self.tagger_options or {}).items() if name not in OF_THE_CORPUS}
        own = {"cell": self.cell, "output": self.output, "dropout": self.dropout, **given}
        own |= {} if elmo is None else {"extra_inputs": elmo}
        return own | {"hidden_size": to_int(self.hidden_size), "num_layers": to_int(self.num_layers)}

    def _elmo(self) -> ELMo | None:
        """A copy of the given word vectors, of which only the mix is trained."""
        if self.embeddings is None:
            return None
        if "extra_inputs" in (self.tagger_options or {}):
            raise OptionError("embeddings", "extra_inputs in tagger_options, too", "one of the two")
        if not isinstance(self.embeddings, ELMo | str | Path):
            raise InputError("embeddings", type(self.embeddings).__name__, "an rc.ELMo or its folder")
        given = self.embeddings
        return (deepcopy(given) if isinstance(given, ELMo) else ELMo.load(given)).freeze()

    def _train(self, data: Any, seed: int) -> None:
        order = np.random.default_rng(seed).permutation(len(data)).tolist()
        held = order[: int(self.validation * len(data))]
        learned = data.select(sorted(order[len(held) :])) if held else data
        result = train(
            self.tagger_,
            Batches(learned, to_int(self.batch_size), seed=seed),
            Batches(data.select(held), to_int(self.batch_size), shuffle=False) if held else None,
            loss=self.tagger_.objective(),
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
        self.tagger_.eval()

    def inspection_inputs(self, data: Any, sequences: int = 4) -> tuple[Tagger, Any]:
        """The tagger and a few encoded sentences, for `rc.inspect` and `rc.report`."""
        check_is_fitted(self, "tagger_")
        words = input_conversion.sentences(split_pair(data)[0])[0]
        return self.tagger_, self.tagger_.encode(list(words[:sequences]))

    def predict(self, X: Any) -> Sentences:
        """The tags of every sentence, in the order of the sentences; a text is split at white space."""
        check_is_fitted(self, "tagger_")
        return self.tagger_.tag(input_conversion.sentences(X)[0])

    def predict_proba(self, X: Any) -> list[np.ndarray]:
        """One array (words, tags) per sentence; the tags are in the order of `classes_`."""
        check_is_fitted(self, "tagger_")
        return [found.numpy() for found in self.tagger_.probabilities(input_conversion.sentences(X)[0])]

    def score(self, X: Any, y: Any = None) -> float:
        """Entity-level F1 if the tags mark entities, otherwise the accuracy per word."""
        X, y = input_conversion.sentences(X, y)
        found = self.predict(X)
        return accuracy(y, found) if self.tagger_.vocabulary.scheme is None else entity_scores(y, found).f1

    def save(self, folder: str | Path) -> None:
        """Write `config.json`, with the vocabulary, and `model.safetensors`."""
        write_folder(folder, self.folder_contents())

    def folder_contents(self) -> FolderContents:
        """What `save` writes."""
        check_is_fitted(self, "tagger_")
        given, elmo = self.embeddings, self.tagger_.extra_inputs
        place = str(given) if isinstance(given, str | Path) else None  # the weights are in the folder itself
        options = saved_options.options_to_json({**self.get_params(deep=False), "embeddings": place})
        fitted = {"vocabulary": self.tagger_.vocabulary.to_json(), "history_": self.history_}
        fitted |= {"elmo": elmo.settings()} if isinstance(elmo, ELMo) else {}
        return FolderContents(type(self).__name__, {"options": options, "fitted": fitted}, self.tagger_.state_dict())

    def export(self, path: str | Path) -> Path:
        """Write an ONNX file: encoded words `x` (T, B, width) and `lengths` (B,) → `tags` and `tag_scores`.

        The tags (T, B) are the best path, -100 at padding; the scores (T, B, K) are those of each word alone.
        `tagger_.encode` encodes the words; the metadata have the vocabulary. The file is compared with the model in
        onnxruntime before it is put in place.
        """
        from .tagger_export import export

        check_is_fitted(self, "tagger_")
        return export(self.tagger_, path)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The estimator that `save` wrote. A user-defined cell must be registered before."""
        stored = read_folder(folder, cls.__name__)
        self = cls(**saved_options.options_from_json(stored.section("options"), cls().get_params(deep=False), folder))
        fitted = stored.section("fitted")
        with stored.expecting("the vocabulary of a tagger"):
            vocabulary, self.history_ = Vocabulary(**fitted["vocabulary"]), fitted["history_"]
            with stored.building():
                elmo = ELMo.from_settings(fitted["elmo"]).freeze() if "elmo" in fitted else None
                self.tagger_ = Tagger(vocabulary, **self._options(elmo))
        self.tagger_.load_state_dict(stored.tensors(like=self.tagger_.state_dict()))
        self.tagger_.eval()
        self.classes_ = np.array(vocabulary.classes)
        return self
