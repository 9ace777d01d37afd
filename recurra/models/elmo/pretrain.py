"""From text to a trained ELMo: the language model whose layers it mixes.

    task = Pretraining(elmo, sentences, size=10_000)
    fit(task.model, task.streams(sentences), loss=NextToken(), ...)

Every sentence stands between its two marks; the forward direction predicts the words and the closing mark, the backward
direction the words and the opening one. Words are read by their characters, also those too rare to be predicted.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..language.model import LanguageModel
from ..language.output import Output
from ..language.sentences import check_sentences
from ..language.streams import TwoWayStreams
from ..language.vocabulary import Words
from .characters import CLOSE, OPEN, WordCharacters

if TYPE_CHECKING:
    from .model import ELMo


class Pretraining:
    """An ELMo as a language model of both directions, sharing its weights, over the words of `sentences`.

    `size`: how many words can be predicted, the most frequent ones; `output`: any softmax a language model takes;
    `dropout` is that of the words and before the softmax; between the layers it is the ELMo's own.
    """

    def __init__(
        self,
        elmo: "ELMo",
        sentences: Sequence[Sequence[str]],
        *,
        size: int | None = None,
        output: str | Output = "full",
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
        """Sentences for `fit`, in an order of their own every epoch; a word that was not there before is `<unk>`.

        States start anew at every sentence, as `embed` does by default; with `carry_state` they go on, as in the
        published training.
        """
        from ...data.sequences import SequenceSet  # a convenience, which reaches into the room of data

        check_sentences(sentences)
        rows = [self._numbers(words) for words in sentences]
        lengths = torch.tensor([len(row) for row in rows])
        prepared = SequenceSet.one_step_ahead(rows, lengths, "language", vocabulary=self.words.tokens)
        return TwoWayStreams(prepared, batch_size, chunk, seed, shuffle, carry_state=carry_state)

    def _numbers(self, words: Sequence[str]) -> Tensor:
        return torch.tensor([piece for [piece] in self.words.pieces([OPEN, *words, CLOSE])])
