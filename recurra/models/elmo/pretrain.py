"""Pretraining of an ELMo: the bidirectional language model whose layers it mixes.

    task = Pretraining(elmo, sentences, size=10_000)
    fit(task.model, task.streams(sentences), loss=NextToken(), ...)

Every sentence is enclosed in two marks. The forward direction predicts the words and the end mark, the backward
direction the words and the begin mark. Words too rare to be predicted are still read by their characters.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...data.sequences import SequenceSet
from ..language.model import LanguageModel
from ..language.sentences import check_sentences
from ..language.softmaxes import OutputLayer
from ..language.streams import TwoWayStreams
from ..language.vocabulary import Words
from .characters import CLOSE, OPEN, WordCharacters

if TYPE_CHECKING:
    from .model import ELMo


class Pretraining:
    """A bidirectional language model over the words of `sentences` that shares the weights of an ELMo.

    **Arguments**

    - `elmo`: the ELMo to train; its own `dropout` acts between the layers.
    - `sentences`: lists of words.
    - `size`: predict only so many of the most frequent words.
    - `output`: as in `rc.models.LanguageModel`.
    - `dropout`: on the words' vectors and before the softmax.

    `model` is the language model, `streams(sentences)` the batches for `rc.train.fit`.

    **Example**

        >>> sentences = [["the", "cat", "sat"], ["the", "dog", "ran"]] * 4
        >>> elmo = rc.ELMo(8, 16, filters=((1, 4), (2, 8)))
        >>> task = rc.models.Pretraining(elmo, sentences)
        >>> batches = task.streams(sentences, batch_size=2, chunk=5)
        >>> result = rc.train.fit(task.model, batches, loss=rc.models.NextToken(), epochs=1)
        >>> result.stopped
        'finished'
    """

    def __init__(
        self,
        elmo: "ELMo",
        sentences: Sequence[Sequence[str]],
        *,
        size: int | None = None,
        output: str | OutputLayer = "full",
        dropout: float = 0.1,
    ):
        check_sentences(sentences)
        self.words = Words.from_sentences(([OPEN, *words, CLOSE] for words in sentences), boundary=False)
        self.model = LanguageModel(
            Words(self.words.tokens[:size]),
            direction="both",
            encoder=WordCharacters(elmo.encoder, self.words.tokens),
            ways=elmo.stacks,
            output=output,
            dropout=dropout,
            input_dropout=dropout,
        )

    def streams(
        self,
        sentences: Sequence[Sequence[str]],
        batch_size: int = 32,
        chunk: int = 20,
        *,
        seed: int = 0,
        shuffle: bool = True,
        carry_state: bool = False,
    ) -> TwoWayStreams:
        """Batches of sentences for `rc.train.fit`, shuffled anew every epoch; words not seen before are `<unk>`.

        States are reset at every sentence, as `embed` does by default; `carry_state` keeps them, as in the published
        training.
        """
        check_sentences(sentences)
        rows = [self._numbers(words) for words in sentences]
        lengths = torch.tensor([len(row) for row in rows])
        prepared = SequenceSet.one_step_ahead(rows, lengths, "language", vocabulary=self.words.tokens)
        return TwoWayStreams(prepared, batch_size, chunk, seed, shuffle, carry_state=carry_state)

    def _numbers(self, words: Sequence[str]) -> Tensor:
        return torch.tensor([piece for [piece] in self.words.pieces([OPEN, *words, CLOSE])])
