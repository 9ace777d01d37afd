"""`pretrain_elmo`: an ELMo from unlabelled sentences."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from recurra.argument_checks import is_real, positive_int
from recurra.errors import InputError
from recurra.models.elmo import ELMo, Pretraining
from recurra.models.language import NextToken
from recurra.models.language.sentences import check_sentences
from recurra.train import randomness
from recurra.train.fit import fit
from recurra.train.fit_arguments import OptimizerLike
from recurra.train.run import FitResult
from recurra.train.schedule import cosine

FILTERS = ((1, 16), (2, 16), (3, 32), (4, 64))  # (width, number): of a small model


class PretrainedELMo(NamedTuple):
    """An ELMo in evaluation mode, and how it was trained.

    **Example**

        >>> text = [["the", "cat", "sat"], ["a", "dog", "ran"]] * 4
        >>> small = {"filters": ((1, 4), (2, 8)), "epochs": 1, "batch_size": 4}
        >>> found = rc.train.pretrain_elmo(text, projection_size=8, hidden_size=16, **small)
        >>> found.elmo.embed([["the", "dog"]])[0].shape, len(found.result.history)
        ((2, 16), 1)
    """

    elmo: ELMo
    result: FitResult

    @property
    def perplexity(self) -> float:
        """exp(nats per token), the mean of both directions: of the sentences held out, else of the last epoch."""
        nats = self.result.best_loss
        return float(np.exp(self.result.history[-1]["loss"] if nats is None else nats))


def pretrain_elmo(
    sentences: Sequence[Sequence[str]],
    projection_size: int = 64,
    hidden_size: int = 256,
    num_layers: int = 2,
    *,
    size: int = 10_000,
    filters: Sequence[tuple[int, int]] = FILTERS,
    dropout: float = 0.1,
    epochs: int = 10,
    batch_size: int = 32,
    chunk: int = 20,
    lr: float = 2e-3,
    optimizer: OptimizerLike = "adam",
    clip: float | None = 1.0,
    validation: float = 0.05,
    patience: int = 3,
    device: str = "auto",
    seed: int = 0,
    progress: bool | None = None,
) -> PretrainedELMo:
    """An ELMo trained on unlabelled sentences: a language model in both directions (Peters et al. 2018).

    Its vectors are those of a word in its sentence. `rc.SequenceTagger(embeddings=elmo)` and `rc.models.Tagger` read
    them; `elmo.save(folder)` keeps them for `recurra fit --embeddings folder`.

    **Arguments**

    - `sentences`: lists of words.
    - `projection_size`, `hidden_size`, `num_layers`, `filters`: of `rc.ELMo`; a vector has 2 · `projection_size`
      numbers.
    - `size`: only so many of the most frequent words are predicted; all are read, by their characters.
    - `dropout`: on the words' vectors, between the layers and before the softmax.
    - `epochs`, `lr`, `optimizer`, `clip`, `device`, `progress`: of `rc.train.fit`; the learning rate falls to zero
      along a cosine. `batch_size` rows of sentences are read `chunk` words at a time.
    - `validation`: the share of sentences held out. Training stops after `patience` epochs without an improvement on
      them and keeps the best weights.
    - `seed`: of the weights, the held-out part and the order of sentences.

    **Returns** a `PretrainedELMo`: `elmo`, `result` (a `FitResult`) and `perplexity`.

    **Example**

        >>> sentences = [["the", "cat", "sat"], ["the", "dog", "ran"]] * 8
        >>> elmo, result = rc.train.pretrain_elmo(sentences, 8, 16, epochs=2, batch_size=2, filters=((1, 4), (2, 8)))
        >>> elmo.embed([["the", "cat", "ran"]])[0].shape
        (3, 16)
    """
    check_sentences(sentences)
    if not is_real(validation) or not 0 <= validation < 1:
        raise InputError("validation", repr(validation), "a share from 0 to below 1")
    order = np.random.default_rng(seed).permutation(len(sentences)).tolist()
    held = order[: int(validation * len(order))]
    learned, kept_out = ([sentences[k] for k in sorted(ids)] for ids in (order[len(held) :], held))
    with randomness.preserve_rng():
        torch.manual_seed(seed)
        elmo = ELMo(projection_size, hidden_size, num_layers, filters=filters, dropout=dropout)
        task = Pretraining(elmo, learned, size=positive_int("size", size), dropout=dropout)
        options: dict[str, Any] = {"seed": seed, "batch_size": batch_size, "chunk": chunk}
        result = fit(
            task.model,
            task.streams(learned, **options),
            task.streams(kept_out, min(batch_size, len(held)), chunk, shuffle=False) if held else None,
            loss=NextToken(),
            optimizer=optimizer,
            lr=lr,
            schedule=cosine(),
            epochs=epochs,
            clip=clip,
            patience=patience if held else None,
            device=device,
            progress=progress,
        )
    return PretrainedELMo(_without_dropout(elmo), result)


def _without_dropout(trained: ELMo) -> ELMo:
    """The same weights in a module that a later training, of a tagger on top, leaves without noise."""
    found = ELMo.from_settings(trained.settings())
    found.load_state_dict(trained.state_dict())
    return found.eval()
