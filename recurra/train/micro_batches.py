"""Micro-batches: a batch that does not fit in memory is split into 2 to 16 parts with the same total gradient."""

import logging
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor

from recurra.data.sequences import Batch
from recurra.train import randomness
from recurra.train.fit_errors import OutOfMemoryError
from recurra.train.objective import lane_dimension, per_step
from recurra.train.tensor_trees import map_tensors

HALVINGS = 4
Result = TypeVar("Result")
logger = logging.getLogger("recurra.train")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this is an allocation failure of torch (CPU or GPU) or of Python."""
    if isinstance(error, OutOfMemoryError):
        return False
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


class MicroBatches:
    """The number of parts per batch. It only grows, so a run fails on memory once per size."""

    def __init__(self, parts: int = 1):
        self.parts = parts

    def run_in_memory(self, action: Callable[[], Result], batch_size: int) -> Result:
        """Call `action`; after an allocation failure, double `parts`, restore the RNG and call it again."""
        before = randomness.capture()
        while True:
            try:
                return action()
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                problem = error.with_traceback(None)  # its frames hold the tensors that did not fit
            self.halve(batch_size, problem)
            logger.warning("out of memory; batches of %d are now taken in %d parts", batch_size, self.parts)
            randomness.restore(before)

    def halve(self, batch_size: int, error: BaseException) -> None:
        """Double the number of parts, or raise `OutOfMemoryError` at the limit."""
        if self.parts >= min(2**HALVINGS, batch_size):
            raise OutOfMemoryError(
                f"a batch of {batch_size} sequences does not fit into memory, not even in {self.parts} parts: {error}; "
                "use a smaller batch_size, shorter sequences (Streams with a smaller chunk), a smaller model, "
                'or precision="bfloat16"'
            ) from error
        self.parts *= 2
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def split(self, batch: Batch, state: Any) -> list[tuple[Batch, Any]]:
        """Split a batch along its sequences, with the matching slice of the state."""
        size = len(batch)
        if self.parts == 1:
            return [(batch, state)]
        bounds = [size * k // self.parts for k in range(self.parts + 1)]
        spans = [(a, b) for a, b in pairwise(bounds) if b > a]
        return [(_part(batch, a, b), _state_part(state, size, a, b)) for a, b in spans]


def concat_states(states: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Concatenate the states of the parts into the state of the whole batch."""
    if len(states) == 1 or states[0] is None:
        return states[0]
    leaves = [_leaves(state) for state in states]
    columns = iter(list(zip(*leaves, strict=True)))

    def glue(tensor: Tensor) -> Tensor:
        return torch.cat(next(columns), dim=lane_dimension(tensor, sizes[0]))

    return map_tensors(glue, states[0])


def _leaves(tree: Any) -> list[Tensor]:
    found: list[Tensor] = []
    map_tensors(found.append, tree)
    return found


def _part(batch: Batch, start: int, stop: int) -> Batch:
    targets = batch.targets[:, start:stop] if per_step(batch) else batch.targets[start:stop]
    resets = None if batch.resets is None else batch.resets[:, start:stop]
    inputs, lengths, ids = batch.inputs[:, start:stop], batch.lengths[start:stop], batch.ids[start:stop]
    return Batch(inputs, targets, lengths, ids, resets, batch.carried)


def _state_part(state: Any, size: int, start: int, stop: int) -> Any:
    return map_tensors(lambda tensor: tensor.narrow(lane_dimension(tensor, size), start, stop - start), state)
