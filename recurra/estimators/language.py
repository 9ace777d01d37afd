"""`rc.LanguageModelEstimator`: `rc.models.LanguageModel` with the scikit-learn interface."""

from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ..argument_checks import is_real
from ..cell import Cell
from ..errors import InputError
from ..models.language import LanguageModel, NextToken
from ..models.language.vocabulary import TokenVocabulary, build_vocabulary, vocabulary_from
from ..storage import FolderContents, read_folder, write_folder
from ..train import randomness
from ..train.fit import fit as train
from . import input_conversion, saved_options
from .inspection import CHARACTERS, split_pair
from .training_options import check_training_options, draw_seed, to_int


class LanguageModelEstimator(BaseEstimator):
    """A language model of one text, or of several, which are joined by line breaks.

    Fitted attributes: `model_`, `tokens_`, `history_`. Many of scikit-learn's checks do not apply, see
    `rc.estimators.inapplicable_checks`.

    **Arguments**

    - `cell`: a registered name such as "lstm", or a cell class.
    - `hidden_size`, `num_layers`, `dropout`: of the network; `model_options` are further ones of
      `rc.models.LanguageModel`.
    - `level`: the tokens are "character", "word" or "subword".
    - `epochs`, `lr`, `optimizer`, `clip`, `device`: of `rc.train.fit`.
    - `batch_size`, `chunk`: the text is cut into `batch_size` parts, read in parallel, `chunk` steps at a time
      (truncated backpropagation through time).
    - `validation`: the share at the end of the text that is held out. Training stops after `patience` epochs without an
      improvement on it and keeps the best weights.
    - `random_state`: the seed. `verbose`: show the progress.

    **Example**

        >>> import recurra as rc
        >>> text = "the cat sat on the mat. " * 20
        >>> model = rc.LanguageModelEstimator("gru", hidden_size=16, epochs=2, batch_size=4, random_state=0).fit(text)
        >>> model.predict_proba(["the ca"]).shape == (1, len(model.tokens_))
        True
        >>> len(model.generate("the", length=10, seed=0))
        13
    """

    def __init__(
        self,
        cell: type[Cell] | str = "lstm",
        hidden_size: int = 128,
        num_layers: int = 1,
        level: str = "character",
        dropout: float = 0.0,
        *,
        model_options: dict[str, Any] | None = None,
        epochs: int = 10,
        batch_size: int = 16,
        chunk: int = 50,
        lr: float = 5e-3,
        optimizer: str = "adam",
        clip: float | None = 1.0,
        validation: float = 0.0,
        patience: int = 3,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.cell, self.hidden_size, self.num_layers, self.level = cell, hidden_size, num_layers, level
        self.dropout, self.model_options, self.epochs, self.batch_size = dropout, model_options, epochs, batch_size
        self.chunk, self.lr, self.optimizer, self.clip, self.validation = chunk, lr, optimizer, clip, validation
        self.patience, self.device, self.random_state, self.verbose = patience, device, random_state, verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train on a text, a list of texts, or the column `text` of a table; `y` is not used."""
        text = "\n".join(input_conversion.texts(X))
        check_training_options(self, "model_options")
        if not is_real(self.validation) or not 0 <= self.validation < 1:
            raise InputError("validation", repr(self.validation), "a share from 0 to below 1")
        seed = draw_seed(self.random_state)
        with randomness.preserve_rng():
            torch.manual_seed(seed)
            self.model_ = self._build(vocabulary_of(self.level, text))
            self._train(self.model_.vocabulary.encode(text))
        self.tokens_ = self.model_.vocabulary.tokens
        return self

    def _build(self, vocabulary: Any) -> LanguageModel:
        sizes = to_int(self.hidden_size), to_int(self.num_layers)
        return LanguageModel(vocabulary, *sizes, cell=self.cell, dropout=self.dropout, **(self.model_options or {}))

    def _train(self, tokens: torch.Tensor) -> None:
        cut = len(tokens) - int(self.validation * len(tokens))
        lanes, chunk = to_int(self.batch_size), to_int(self.chunk)
        held = self.model_.streams(tokens[cut:], 1, 4 * chunk) if cut < len(tokens) - 1 else None
        result = train(
            self.model_,
            self.model_.streams(tokens[:cut], lanes, chunk),
            held,
            loss=NextToken(),
            optimizer=self.optimizer,
            lr=self.lr,
            epochs=to_int(self.epochs),
            clip=self.clip,
            patience=to_int(self.patience) if held is not None else None,
            device=self.device,
            progress=self.verbose,
        )
        self.history_ = result.history
        self.model_.eval().cpu()

    def inspection_inputs(self, data: Any, sequences: int = 4) -> tuple[LanguageModel, torch.Tensor]:
        """The model and the beginning of a text as tokens (T, 1), for `rc.inspect` and `rc.report`."""
        check_is_fitted(self, "model_")
        text = "\n".join(input_conversion.texts(split_pair(data)[0]))
        return self.model_, self.model_.vocabulary.encode(text[:CHARACTERS])[:, None]

    @torch.no_grad()
    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, tokens): the probability of every token of `tokens_` to follow each text."""
        check_is_fitted(self, "model_")
        if isinstance(X, str):
            raise InputError("X", "one text", "a list of texts")
        encoded = [self.model_.vocabulary.encode(text) for text in input_conversion.texts(X)]
        log_probs = [self.model_(tokens[:, None])[0][-1, 0] for tokens in encoded]
        return torch.stack(log_probs).double().exp().numpy()

    def predict(self, X: Any) -> np.ndarray:
        """(n,): the most probable next token of each text."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.array(self.tokens_)[best]

    def generate(self, prompt: str = "", length: int = 200, **options: Any) -> str:
        """The prompt and `length` generated tokens; options of `LanguageModel.generate`: temperature, seed, …"""
        check_is_fitted(self, "model_")
        return self.model_.generate(prompt, length, **options)

    def measure(self, X: Any) -> dict[str, float]:
        """Nats per token, perplexity and bits per character of a text."""
        check_is_fitted(self, "model_")
        return self.model_.measure("\n".join(input_conversion.texts(X)))

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log-likelihood per token, in nats; higher is better."""
        return -self.measure(X)["nats"]

    def save(self, folder: str | Path) -> None:
        """Write `config.json`, with the vocabulary, and `model.safetensors`."""
        write_folder(folder, self.folder_contents())

    def folder_contents(self) -> FolderContents:
        """What `save` writes."""
        check_is_fitted(self, "model_")
        options = saved_options.options_to_json(self.get_params(deep=False))
        fitted = {"vocabulary": self.model_.vocabulary.to_config(), "history_": self.history_}
        return FolderContents(type(self).__name__, {"options": options, "fitted": fitted}, self.model_.state_dict())

    def export(self, path: str | Path) -> Path:
        """Write an ONNX file: `tokens` (T, B), `lengths` (B,) and the states of the layers → log-probabilities
        (T, B, V) of the next tokens, and the new states.

        The metadata have the vocabulary. The file is compared with the model in onnxruntime before it is put in place.
        """
        from .language_export import export

        check_is_fitted(self, "model_")
        return export(self.model_, path)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The estimator that `save` wrote. A user-defined cell must be registered before."""
        stored = read_folder(folder, cls.__name__)
        self = cls(**saved_options.options_from_json(stored.section("options"), cls().get_params(deep=False), folder))
        fitted = stored.section("fitted")
        with stored.expecting("the vocabulary of a language model"):
            vocabulary, self.history_ = vocabulary_from(fitted["vocabulary"]), fitted["history_"]
        with stored.building():
            self.model_, self.tokens_ = self._build(vocabulary), vocabulary.tokens
        self.model_.load_state_dict(stored.tensors(like=self.model_.state_dict()))
        self.model_.eval()
        return self


def vocabulary_of(level: Any, text: str) -> TokenVocabulary:
    """The vocabulary of a text, with a symbol for what the text does not have."""
    return build_vocabulary(level, text, **({"unknown": True} if level == "character" else {}))
