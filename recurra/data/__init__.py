"""Sequences from files and from generators, and the batches models train on."""

from recurra.data.batching import Batches, BatchSource, Streams, collate
from recurra.data.errors import DataError
from recurra.data.sequences import Batch, Example, SequenceSet

__all__ = ["Batch", "BatchSource", "Batches", "DataError", "Example", "SequenceSet", "Streams", "collate"]
