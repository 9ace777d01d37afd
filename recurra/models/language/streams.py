"""A text for a model of both directions: one tape as written, one from its end, read side by side."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...errors import InputError

if TYPE_CHECKING:
    from ...data.sequences import Batch, SequenceSet


class TwoWayStreams:
    """`Streams` of a text and of the same text from its end; batches are (T, B, 2).

    `sequences`: tokens (T,), or a set whose sequences are to be predicted one step ahead, such as sentences: then each
    is turned around by itself, and the states start anew at each, unless `carry_state` lets them go on. The other
    options are those of `Streams`.
    """

    def __init__(
        self,
        sequences: "SequenceSet | Tensor",
        batch_size: int,
        chunk: int,
        seed: int = 0,
        shuffle: bool = False,
        rank: int = 0,
        world_size: int = 1,
        carry_state: bool = False,
    ):
        from ...data.batching import Streams  # a convenience around what the room of data makes

        self.sequences, self.batch_size, self.chunk, self.seed = sequences, batch_size, chunk, seed
        self.shuffle, self.rank, self.world_size, self.carry_state = shuffle, rank, world_size, carry_state
        shared = (batch_size, chunk, seed, shuffle, rank, world_size)
        self.onward, self.back = Streams(sequences, *shared), Streams(turned(sequences), *shared)

    def __len__(self) -> int:
        return len(self.onward)

    def epoch(self, epoch: int, start: int = 0) -> "Iterator[Batch]":
        for onward, back in zip(self.onward.epoch(epoch, start), self.back.epoch(epoch, start), strict=True):
            yield replace(
                onward,
                inputs=torch.stack([onward.inputs, back.inputs], dim=-1),
                targets=torch.stack([onward.targets, back.targets], dim=-1),
                resets=None if self.carry_state else onward.resets,
            )


def turned(sequences: "SequenceSet | Tensor") -> "SequenceSet | Tensor":
    """Every sequence from its end."""
    if isinstance(sequences, Tensor):
        return sequences.flip(0)
    if sequences.task != "language" or sequences.series is None:
        raise InputError("sequences", f"the task {sequences.task!r}", "tokens to be predicted one step ahead")
    series = [sequences.series[number].flip(0) for number in range(len(sequences))]
    return type(sequences).one_step_ahead(series, sequences.lengths + 1, "language", vocabulary=sequences.vocabulary)
