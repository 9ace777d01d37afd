"""Batches for a bidirectional language model: a text and its reverse, side by side."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from ...data.batching import Streams
from ...data.sequences import Batch, SequenceSet
from ...errors import InputError


class TwoWayStreams:
    """`rc.data.Streams` of a text and of its reverse; batches are (T, B, 2).

    `sequences`: tokens (T,), or a set of the task "language", such as sentences: then each sequence is reversed by
    itself and states are reset at each, unless `carry_state` keeps them. Other options: see `rc.data.Streams`.
    """

    def __init__(
        self,
        sequences: SequenceSet | Tensor,
        batch_size: int,
        chunk: int,
        seed: int = 0,
        shuffle: bool = False,
        rank: int = 0,
        world_size: int = 1,
        carry_state: bool = False,
    ):
        self.sequences, self.batch_size, self.chunk, self.seed = sequences, batch_size, chunk, seed
        self.shuffle, self.rank, self.world_size, self.carry_state = shuffle, rank, world_size, carry_state
        shared = (batch_size, chunk, seed, shuffle, rank, world_size)
        self.forward, self.backward = Streams(sequences, *shared), Streams(reverse_sequences(sequences), *shared)

    def __len__(self) -> int:
        return len(self.forward)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        pairs = zip(self.forward.epoch(epoch, start), self.backward.epoch(epoch, start), strict=True)
        for forward, backward in pairs:
            yield replace(
                forward,
                inputs=torch.stack([forward.inputs, backward.inputs], dim=-1),
                targets=torch.stack([forward.targets, backward.targets], dim=-1),
                resets=None if self.carry_state else forward.resets,
            )


def reverse_sequences(sequences: SequenceSet | Tensor) -> SequenceSet | Tensor:
    """Every sequence reversed in time."""
    if isinstance(sequences, Tensor):
        return sequences.flip(0)
    if sequences.task != "language" or sequences.series is None:
        raise InputError("sequences", f"the task {sequences.task!r}", "tokens to be predicted one step ahead")
    series = [sequences.series[number].flip(0) for number in range(len(sequences))]
    return type(sequences).one_step_ahead(series, sequences.lengths + 1, "language", vocabulary=sequences.vocabulary)
