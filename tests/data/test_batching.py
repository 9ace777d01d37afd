"""Batches and streams: order as a function of seed and epoch, padding, shards, and tapes that are never copied."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recurra.data import Batches, SequenceSet, Streams, collate
from recurra.data.batching import generator, stream
from recurra.data.sequences import IGNORE
from recurra.errors import InputError, ShapeError


def ragged(count: int, seed: int = 0) -> SequenceSet:
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 30, (count,), generator=random).tolist()
    inputs = [torch.full((n, 2), float(k)) for k, n in enumerate(lengths)]
    return SequenceSet.from_arrays(inputs, list(range(count)), "classification")


def ids(batches, epoch, start=0):
    return [batch.ids.tolist() for batch in batches.epoch(epoch, start)]


@given(
    count=st.integers(1, 60),
    batch_size=st.integers(1, 9),
    world_size=st.integers(1, 4),
    bucket=st.integers(1, 5),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    window=st.none() | st.integers(1, 20),
)
def test_every_sequence_once_on_some_rank(count, batch_size, world_size, bucket, shuffle, drop_last, window):
    data = ragged(count)
    ranks = [
        Batches(data, batch_size, 1, shuffle, bucket, rank, world_size, drop_last, window) for rank in range(world_size)
    ]
    plans = [batches.plan(5) for batches in ranks]
    assert all(len(plan) == len(batches) for plan, batches in zip(plans, ranks, strict=True))
    assert len({len(plan) for plan in plans}) == 1
    seen = [i for plan in plans for part in plan for i in part.tolist()]
    assert len(seen) == len(set(seen)) == (count // batch_size * batch_size if drop_last else count)
    for shares, batch in zip(
        zip(*plans, strict=True),
        Batches(data, batch_size, 1, shuffle, bucket, 0, 1, drop_last, window).plan(5),
        strict=True,
    ):
        assert sorted(i for share in shares for i in share.tolist()) == sorted(batch.tolist())
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_share_without_sequences_is_an_empty_batch():
    shares = [list(Batches(ragged(5), 4, shuffle=False, rank=rank, world_size=2).epoch(0)) for rank in range(2)]
    assert [[len(batch) for batch in share] for share in shares] == [[2, 1], [2, 0]]
    values = torch.arange(22)
    shares = [list(Streams(values, 1, 7, rank=rank, world_size=2).epoch(0)) for rank in range(2)]
    assert [[(len(batch), batch.carried) for batch in share] for share in shares] == [
        [(1, False), (1, True), (1, True)],
        [(0, False), (0, True), (0, True)],
    ]


def test_a_position_is_two_integers():
    batches = Batches(ragged(50), 4, seed=7)
    first = ids(batches, 3)
    assert ids(Batches(ragged(50), 4, seed=7), 3) == first
    for start in range(len(batches) + 1):
        assert ids(batches, 3, start) == first[start:]
    assert ids(batches, 4) != first
    assert ids(Batches(ragged(50), 4, seed=8), 3) != first


def test_the_global_random_state_is_neither_used_nor_touched():
    batches = Batches(ragged(50), 4)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = ids(batches, 0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert ids(batches, 0) == first


def test_buckets_save_padding_and_keep_randomness():
    data = ragged(400)

    def padding(batches):
        return sum(int((~batch.mask).sum()) for batch in batches.epoch(0))

    assert padding(Batches(data, 8, bucket=16)) < 0.3 * padding(Batches(data, 8, bucket=1))
    longest = [int(batch.lengths.max()) for batch in Batches(data, 8, bucket=50).epoch(0)][:-1]
    assert longest != sorted(longest)  # sorted inside the pool, batches in random order


def test_without_shuffling_the_order_is_the_files():
    assert ids(Batches(ragged(7), 3, shuffle=False), 0) == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_window_keeps_neighbours_together():
    batches = Batches(ragged(100), 5, window=10, bucket=1)
    order = [i for batch in ids(batches, 0) for i in batch]
    for k in range(0, 100, 10):
        assert max(order[k : k + 10]) - min(order[k : k + 10]) == 9
    assert order != sorted(order)


def test_neighbouring_seeds_and_epochs_are_unrelated():
    drawn = {
        tuple(torch.randperm(20, generator=generator(seed, epoch)).tolist()) for seed in range(5) for epoch in range(5)
    }
    assert len(drawn) == 25


def test_collate_pads_inputs_labels_and_numbers():
    tags = SequenceSet.from_arrays([torch.ones(2, 1), torch.ones(3, 1)], [[1, 2], [0, 1, 2]], "tagging")
    batch = collate(tags, [0, 1])
    assert batch.inputs.shape == (3, 2, 1)
    assert batch.inputs[2, 0] == 0
    assert batch.targets.tolist() == [[1, 0], [2, 1], [IGNORE, 2]]
    assert batch.mask.tolist() == [[True, True], [True, True], [False, True]]
    numbers = SequenceSet.from_arrays([torch.ones(1, 1), torch.ones(2, 1)], [[[5.0]], [[6.0], [7.0]]], "transduction")
    assert collate(numbers, [0, 1]).targets[..., 0].tolist() == [[5, 6], [0, 7]]
    tokens = SequenceSet.from_arrays([torch.tensor([4, 5]), torch.tensor([6])], [0, 1], "classification")
    assert collate(tokens, [0, 1]).inputs.tolist() == [[4, 6], [5, 0]]


def test_a_batch_moves_as_a_whole():
    batch = next(Streams(torch.arange(10), 2, 3).epoch(0, 1)).to("meta")
    tensors = (batch.inputs, batch.targets, batch.lengths, batch.ids)
    assert all(tensor.is_meta for tensor in tensors)
    assert batch.carried


def test_one_long_sequence_in_lanes():
    chunks = list(Streams(torch.arange(23), 2, 4).epoch(0))
    lanes = torch.cat([chunk.inputs for chunk in chunks])
    assert lanes.T.tolist() == [list(range(11)), list(range(11, 22))]
    assert torch.equal(torch.cat([chunk.targets for chunk in chunks]), lanes + 1)
    assert [chunk.carried for chunk in chunks] == [False, True, True]
    assert [chunk.lengths.tolist() for chunk in chunks] == [[4, 4], [4, 4], [3, 3]]
    assert all(chunk.resets is None for chunk in chunks)


def test_many_sequences_make_one_tape_with_resets():
    series = [torch.arange(start, start + n) for start, n in ((0, 4), (100, 6), (200, 3))]
    data = SequenceSet.one_step_ahead(series, torch.tensor([4, 6, 3]), "language")  # 3 + 5 + 2 steps
    chunks = list(Streams(data, 2, 3).epoch(0))
    assert torch.cat([c.inputs for c in chunks]).T.tolist() == [[0, 1, 2, 100, 101], [102, 103, 104, 200, 201]]
    assert torch.cat([c.targets for c in chunks]).T.tolist() == [[1, 2, 3, 101, 102], [103, 104, 105, 201, 202]]
    assert chunks[0].resets is None
    assert chunks[1].resets.T.tolist() == [[True, False], [True, False]]
    assert chunks[0].ids.tolist() == [0, 1]
    assert chunks[1].ids.tolist() == [1, 2]


def test_a_sequence_that_begins_inside_a_chunk_is_marked_there():
    series = [torch.arange(4), torch.arange(10, 14)]
    data = SequenceSet.one_step_ahead(series, torch.tensor([4, 4]), "language")
    (chunk,) = Streams(data, 1, 6).epoch(0)
    assert chunk.inputs[:, 0].tolist() == [0, 1, 2, 10, 11, 12]
    assert chunk.resets[:, 0].tolist() == [False, False, False, True, False, False]


def test_streams_resume_and_shard():
    values = torch.arange(101.0)[:, None]
    whole = Streams(values, 5, 7)
    chunks = list(whole.epoch(0))
    assert len(chunks) == len(whole)
    later = list(whole.epoch(0, 2))
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(later, chunks[2:], strict=True))
    shares = [list(Streams(values, 5, 7, rank=rank, world_size=2).epoch(0)) for rank in range(2)]
    for chunk, even, odd in zip(chunks, *shares, strict=True):
        assert torch.equal(chunk.inputs[:, ::2], even.inputs)
        assert torch.equal(chunk.inputs[:, 1::2], odd.inputs)


def test_shuffled_streams_follow_seed_and_epoch():
    series = [torch.arange(k, k + 3) for k in range(0, 60, 3)]
    data = SequenceSet.one_step_ahead(series, torch.full((20,), 3), "language")

    def order(seed, epoch):
        return torch.cat([c.inputs for c in Streams(data, 1, 40, seed, shuffle=True).epoch(epoch)]).flatten().tolist()

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1)
    assert sorted(order(0, 0)) == sorted(order(1, 0))


def test_a_million_steps_are_fed_without_a_copy():
    values = torch.arange(1_000_001.0)[:, None]
    data = stream(values)
    assert data[0].inputs.untyped_storage().data_ptr() == values.untyped_storage().data_ptr()
    streams = Streams(values, 10, 1000)
    total = sum(float(chunk.inputs.double().sum()) for chunk in streams.epoch(0))
    assert total == sum(range(1_000_000))
    assert len(streams) == 100


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Batches(ragged(3), 0), InputError, "batch_size"),
        (lambda: Batches(ragged(3), 2, rank=2, world_size=2), InputError, "rank"),
        (lambda: Batches(ragged(3).select([]), 2), InputError, "empty set"),
        (lambda: Streams(ragged(3), 2, 5), InputError, "at every step"),
        (lambda: Streams(torch.arange(5), 8, 5), ShapeError, "4 steps for 8 lanes"),
        (lambda: Streams(torch.ones(3, 3, 3), 1, 1), ShapeError, "at least two steps"),
    ],
)
def test_what_cannot_be_batched_is_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()
