"""Batches from a sequence set, in an order that depends on (seed, epoch) alone.

`Batches` pads whole sequences of similar length. `Streams` cuts sequences of any length into chunks, for truncated
backpropagation through time with a carried state. Both resume from any position with `epoch(e, start)`.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..argument_checks import instance_of, positive_int
from ..errors import InputError, ShapeError
from .sequences import IGNORE, Batch, SequenceSet
from .stores import offsets, stored_positions


class BatchSource(Protocol):
    """The data of a training loop: `len(source)` batches per epoch, reproducible from any position.

    **Example**

        >>> data = rc.data.SequenceSet.from_arrays([torch.randn(4, 3), torch.randn(2, 3)], [0, 1], "classification")
        >>> source = rc.data.Batches(data, batch_size=1)
        >>> len(source), next(source.epoch(0)).inputs.shape[1:]
        (2, torch.Size([1, 3]))
    """

    def __len__(self) -> int: ...

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]: ...


def generator(seed: int, *position: int) -> torch.Generator:
    """A random generator for a position such as (epoch, index), independent of those of other positions."""
    digest = hashlib.blake2b(repr((seed, *position)).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def collate(sequences: SequenceSet, ids: Sequence[int] | Tensor) -> Batch:
    """The sequences `ids` as one padded batch: inputs and numeric targets with zeros, labels with `IGNORE`.

    **Example**

        >>> data = rc.data.SequenceSet.from_arrays([torch.randn(n, 3) for n in (5, 2)], [0, 1], "classification")
        >>> batch = rc.data.collate(data, [0, 1])
        >>> batch.inputs.shape, batch.lengths.tolist(), batch.targets.tolist()
        (torch.Size([5, 2, 3]), [5, 2], [0, 1])
    """
    instance_of("sequences", sequences, SequenceSet, "a SequenceSet")
    try:
        ids = torch.as_tensor(ids, dtype=torch.int64)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError("ids", repr(ids), "numbers of sequences") from error
    if ids.dim() != 1:
        raise InputError("ids", f"shape {tuple(ids.shape)}", "numbers of sequences (n,)")
    if not len(ids):
        return empty_batch()
    examples = [sequences[i] for i in ids.tolist()]
    inputs = pad_sequence([example.inputs for example in examples])
    targets = [example.target for example in examples]
    if sequences.per_step:
        padding = 0 if targets[0].is_floating_point() else IGNORE
        joined = pad_sequence(targets, padding_value=padding)
    else:
        joined = torch.stack(targets)
    return Batch(inputs, joined, sequences.lengths[ids], ids)


def empty_batch(carried: bool = False) -> Batch:
    """The share of a process in a batch that has fewer sequences than there are processes; no model sees it."""
    none = torch.zeros(0, dtype=torch.int64)
    return Batch(torch.zeros(0, 0), torch.zeros(0, 0), none, none, carried=carried)


class Batches:
    """Padded batches of whole sequences, bucketed by length.

    With `world_size` processes each gets its share of every batch, so that their gradients add up to that of one
    process. The shares of a batch may differ by one sequence; that of a small last batch may be empty.

    **Arguments**

    - `sequences`: a `SequenceSet`.
    - `batch_size`: sequences per batch, those of all processes together.
    - `seed`, `shuffle`: the order of an epoch is a function of (seed, epoch).
    - `bucket`: this many batches are drawn together and sorted by length, to reduce padding; 1 does not sort. The
      default is 16 when shuffling, otherwise 1, which keeps the order of the set.
    - `rank`, `world_size`: of this process in distributed training.
    - `drop_last`: leave out an incomplete last batch.
    - `window`: shuffle only within windows of this many sequences, in the order of the file, and shuffle the windows. A
      file larger than memory is then read about once per epoch. By default, of a Parquet file that is larger than its
      cache, as many as half of the cache holds; otherwise all.

    **Example**

        >>> import torch, recurra as rc
        >>> data = rc.data.SequenceSet.from_arrays([torch.randn(n, 3) for n in (5, 2, 4)], [0, 1, 0], "classification")
        >>> batches = rc.data.Batches(data, batch_size=2, shuffle=False)
        >>> [tuple(batch.inputs.shape) for batch in batches.epoch(0)]  # (T, B, D)
        [(5, 2, 3), (4, 1, 3)]
    """

    def __init__(
        self,
        sequences: SequenceSet,
        batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        bucket: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = False,
        window: int | None = None,
    ):
        _check_positive(bucket=bucket, window=window)
        check_rank(rank, world_size)
        if not isinstance(sequences, SequenceSet):
            raise InputError("sequences", type(sequences).__name__, "a SequenceSet")
        if not len(sequences):
            raise InputError("sequences", "an empty set", "at least one sequence")
        self.sequences, self.batch_size = sequences, positive_int("batch_size", batch_size)
        self.seed, self.shuffle = seed, shuffle
        self.bucket = bucket or (16 if shuffle else 1)
        self.rank, self.world_size, self.drop_last = rank, world_size, drop_last
        below, self._positions = stored_positions(sequences.inputs, torch.arange(len(sequences)))
        cached = getattr(below, "shuffle_window", None)  # of its sequences, of which these may be a part
        self.window = window or (None if cached is None else max(1, cached * len(sequences) // len(below)))

    def __len__(self) -> int:
        full, rest = divmod(len(self.sequences), self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, from batch number `start` on."""
        for ids in self.plan(epoch)[start:]:
            yield collate(self.sequences, ids)

    def plan(self, epoch: int) -> list[Tensor]:
        """The sequence numbers of every batch of this rank, in order."""
        random = generator(self.seed, epoch)
        order = self._sort_by_length(self._draw_order(random), self.bucket * self.batch_size)
        groups = list(order.split(self.batch_size))
        if len(groups[-1]) < self.batch_size and self.drop_last:
            groups.pop()
        if self.shuffle:
            groups = self._shuffle_batches(groups, random)
        return [group[self.rank :: self.world_size] for group in groups]

    def _draw_order(self, random: torch.Generator) -> Tensor:
        count = len(self.sequences)
        if not self.shuffle:
            return torch.arange(count)
        if self.window is None:
            return torch.randperm(count, generator=random)
        windows = self._positions.argsort(stable=True).split(self.window)
        order = torch.randperm(len(windows), generator=random).tolist()
        return torch.cat([windows[w][torch.randperm(len(windows[w]), generator=random)] for w in order])

    def _sort_by_length(self, order: Tensor, pool: int) -> Tensor:
        if self.bucket == 1:
            return order
        lengths = self.sequences.lengths
        return torch.cat([part[lengths[part].argsort(stable=True)] for part in order.split(pool)])

    def _shuffle_batches(self, groups: list[Tensor], random: torch.Generator) -> list[Tensor]:
        """Batches in random order inside their bucket; the last one, which may be smaller, stays last."""
        *full, last = groups
        pools = [full[k : k + self.bucket] for k in range(0, len(full), self.bucket)]
        mixed = [pool[j] for pool in pools for j in torch.randperm(len(pool), generator=random).tolist()]
        return [*mixed, last]


class Streams:
    """Chunks of concatenated sequences for truncated backpropagation through time.

    All sequences are concatenated and cut into `batch_size` lanes of equal length, which are read in parallel, `chunk`
    steps at a time. The state is carried from chunk to chunk (`Batch.carried`) and reset where a sequence begins
    (`Batch.resets`). Only the current chunk is copied, so a sequence may have any length. The remainder of the last
    steps, fewer than lanes, is left out. With `world_size` processes each reads its share of the lanes.

    **Arguments**

    - `sequences`: a `SequenceSet` with a target at every step, or a tensor (T, D) or (T,) whose next step is predicted.
    - `batch_size`: lanes, those of all processes together.
    - `chunk`: steps per batch.
    - `seed`, `shuffle`: the order of the sequences in an epoch.
    - `rank`, `world_size`: of this process in distributed training.

    **Example**

        >>> import torch, recurra as rc
        >>> streams = rc.data.Streams(torch.arange(21), batch_size=2, chunk=5)
        >>> first = next(streams.epoch(0))
        >>> len(streams), first.inputs[:, 0].tolist(), first.targets[:, 0].tolist()
        (2, [0, 1, 2, 3, 4], [1, 2, 3, 4, 5])
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
    ):
        _check_positive(batch_size=batch_size, chunk=chunk)
        check_rank(rank, world_size)
        if isinstance(sequences, Tensor):
            sequences = stream(sequences)
        if not instance_of("sequences", sequences, SequenceSet, "a SequenceSet, or a tensor").per_step:
            raise InputError("task", sequences.task, "a task with a target at every step")
        self.sequences, self.batch_size, self.chunk, self.seed = sequences, batch_size, chunk, seed
        self.shuffle, self.rank, self.world_size = shuffle, rank, world_size
        self.lane = int(sequences.lengths.sum()) // batch_size  # steps
        if self.lane < 1:
            steps = f"{int(sequences.lengths.sum())} steps for {batch_size} lanes"
            raise ShapeError("batch_size", steps, "at least one step per lane")

    def __len__(self) -> int:
        return -(-self.lane // self.chunk)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The chunks of one epoch, from chunk number `start` on; only chunk 0 starts from the initial state."""
        view = _ConcatenatedSequences(self.sequences, self._order(epoch))
        for index in range(start, len(self)):
            yield self._chunk(view, index)

    def _order(self, epoch: int) -> Tensor:
        count = len(self.sequences)
        return torch.randperm(count, generator=generator(self.seed, epoch)) if self.shuffle else torch.arange(count)

    def _chunk(self, view: "_ConcatenatedSequences", index: int) -> Batch:
        first, last = index * self.chunk, min((index + 1) * self.chunk, self.lane)
        origins = [lane * self.lane for lane in range(self.rank, self.batch_size, self.world_size)]
        if not origins:
            return empty_batch(carried=index > 0)
        parts = [view.read(origin + first, origin + last) for origin in origins]
        resets = torch.zeros(last - first, len(origins), dtype=torch.bool)
        for lane, step in ((lane, step) for lane, (_, _, begins) in enumerate(parts) for step in begins):
            resets[step, lane] = True
        resets[0] &= index > 0  # the first chunk starts from the initial state anyway
        return Batch(
            inputs=torch.stack([inputs for inputs, _, _ in parts], dim=1),
            targets=torch.stack([targets for _, targets, _ in parts], dim=1),
            lengths=torch.full((len(origins),), last - first),
            ids=torch.tensor([view.sequence_at(origin + first) for origin in origins]),
            resets=resets if bool(resets.any()) else None,
            carried=index > 0,
        )


class _ConcatenatedSequences:
    """The sequences of a set as one long sequence, without copying them."""

    def __init__(self, sequences: SequenceSet, order: Tensor):
        self.sequences, self.order = sequences, order.tolist()
        self.starts = offsets(sequences.lengths[order]).tolist()

    def sequence_at(self, position: int) -> int:
        return self.order[bisect_right(self.starts, position) - 1]

    def read(self, start: int, stop: int) -> tuple[Tensor, Tensor, list[int]]:
        """Inputs, targets, and the steps at which a sequence begins, from position `start` to `stop`."""
        inputs, targets, begins = [], [], []
        position, number = start, bisect_right(self.starts, start) - 1
        while position < stop:
            begin, end = self.starts[number : number + 2]
            until = min(stop, end)
            part = self.sequences.window(self.order[number], position - begin, until - begin)
            inputs.append(part.inputs)
            targets.append(part.target)
            begins += [position - start] if position == begin else []
            position, number = until, number + 1
        if len(inputs) == 1:
            return inputs[0], targets[0], begins
        return torch.cat(inputs), torch.cat(targets), begins


def stream(values: Tensor) -> SequenceSet:
    """A set of one sequence, (T, D) numbers or (T,) tokens, whose targets are its next steps."""
    if values.ndim not in (1, 2) or len(values) < 2:
        raise ShapeError("values", tuple(values.shape), "(T, D) numbers or (T,) tokens, at least two steps")
    tokens = not values.is_floating_point() and values.ndim == 1
    series = values.long() if tokens and values.dtype != torch.int64 else values
    series = series[:, None] if series.ndim == 1 and not tokens else series
    return SequenceSet.one_step_ahead([series], torch.tensor([len(series)]), "language" if tokens else "next_step")


def _check_positive(**sizes: int | None) -> None:
    for name, size in sizes.items():
        if size is not None:
            positive_int(name, size)


def check_rank(rank: int, world_size: int) -> None:
    """Raise unless `rank` is that of one of `world_size` processes."""
    if not isinstance(rank, int) or not 0 <= rank < world_size:
        raise InputError("rank", f"{rank} of {world_size}", "a rank from 0 to world_size - 1")
