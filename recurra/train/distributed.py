"""A run over several processes, as `torchrun` starts them: collectives for gradients, counts and stop requests.

Gradients are summed in one flat message after the backward pass. In a recurrent network the gradient of a weight is
complete only when the loop over time has ended, so there is little to overlap with. In return a process may split its
batch, or leave a parameter unused, independently of the others.
"""

import atexit
import inspect
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from recurra.errors import InputError
from recurra.train.fit_errors import OtherProcessError, RankError

Source = TypeVar("Source")
Result = TypeVar("Result")
_meeting: Any = None  # the key-value store at which the processes met, where this module made the group


class Processes:
    """The process group of this run. With one process every operation is the identity."""

    def __init__(self):
        self.rank, self.size, self._control = 0, 1, None
        if not dist.is_available():
            return
        if not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", 1)) > 1:
            _join()
        if dist.is_initialized():
            self.rank, self.size = dist.get_rank(), dist.get_world_size()
            # Counts and stop requests go over gloo: they must not wait for GPU work.
            self._control = dist.group.WORLD if "gloo" in dist.get_backend_config() else dist.new_group(backend="gloo")

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which writes files and prints."""
        return self.rank == 0

    def sum(self, values: Sequence[float]) -> list[float]:
        return self._agree(values, dist.ReduceOp.SUM)

    def largest(self, values: Sequence[float]) -> list[float]:
        return self._agree(values, dist.ReduceOp.MAX)

    def _agree(self, values: Sequence[float], operation: Any) -> list[float]:
        if self.size == 1:
            return list(values)
        message = torch.tensor(values, dtype=torch.float64)
        self._collective(dist.all_reduce, message, operation, group=self._control)
        return message.tolist()

    def gather(self, value: Any) -> list[Any]:
        """A plain value of every process, in the order of their ranks."""
        found: list[Any] = [value] * self.size
        if self.size > 1:
            self._collective(dist.all_gather_object, found, value, group=self._control)
        return found

    def of_first(self, value: Result) -> Result:
        """The value that rank 0 has, such as a random seed."""
        return self.gather(value)[0]

    @contextmanager
    def all_or_none(self) -> Iterator[None]:
        """If the block fails in some processes, all raise at its end: the first of them its own error."""
        problem: Exception | None = None
        try:
            yield
        except Exception as error:
            problem = error
        reasons = self.gather(None if problem is None else _first_line(problem))
        failed = [rank for rank, reason in enumerate(reasons) if reason is not None]
        if problem is not None and failed[0] == self.rank:
            raise problem
        if failed:
            first = failed[0]
            raise OtherProcessError(f"process {first} of {self.size} failed: {reasons[first]}") from problem

    def broadcast_model(self, model: nn.Module) -> None:
        """Copy weights and buffers from rank 0 to all ranks, and seed each rank differently."""
        if self.size == 1:
            return
        for tensor in [*model.parameters(), *model.buffers()]:
            whole = not (tensor.is_floating_point() or tensor.is_complex())
            message = tensor.data.long() if whole else tensor.data  # gloo does not send int16
            self._collective(dist.broadcast, message, 0)
            tensor.data.copy_(message)
        torch.manual_seed(torch.initial_seed() + self.rank)

    def sum_gradients(self, parameters: Iterable[nn.Parameter], loss: Tensor) -> Tensor:
        """Sum every gradient and the loss over the processes. An unused parameter counts as zero."""
        if self.size == 1:
            return loss
        trained = [p for p in parameters if p.requires_grad]
        for p in trained:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        loss = loss.double()
        for dtype in {p.dtype for p in trained}:
            self._sum_flat([p.grad for p in trained if p.dtype == dtype and p.grad is not None])
        self._collective(dist.all_reduce, loss)
        return loss

    def _sum_flat(self, tensors: list[Tensor]) -> None:
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        self._collective(dist.all_reduce, flat)
        for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def _collective(self, operation: Any, *arguments: Any, **options: Any) -> None:
        try:
            operation(*arguments, **options)
        except RuntimeError as error:  # what every backend raises when a connection closes or times out
            raise RankError(
                f"process {self.rank} of {self.size} lost the connection to another one: {_first_line(error)}"
            ) from error

    def shard(self, source: Source, argument: str) -> Source:
        """This rank's shard: the source rebuilt with its own arguments, `rank` and `world_size`."""
        if self.size == 1 or getattr(source, "world_size", None) == self.size:
            return source
        names = inspect.signature(type(source)).parameters
        if not {"rank", "world_size"} <= names.keys() or not all(hasattr(source, name) for name in names):
            expected = "a source of batches with `rank` and `world_size`, to be shared between processes"
            raise InputError(argument, type(source).__name__, expected)
        options = {name: getattr(source, name) for name in names} | {"rank": self.rank, "world_size": self.size}
        return type(source)(**options)


def _join() -> None:
    """Make the process group of the launcher: gloo for the CPU, NCCL for cards.

    A signal while the others are awaited ends the process at once: its handlers would run only after that.
    """
    global _meeting
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    with _signals_end_the_process():
        try:
            _meeting, rank, size = next(iter(dist.rendezvous("env://")))
        except ValueError as error:  # a variable is missing
            raise RankError(f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but {_first_line(error)}") from error
        dist.init_process_group(backend, store=_meeting, rank=rank, world_size=size)
    atexit.register(_destroy_process_group)  # only at exit: the next fit or evaluate uses the same group


@contextmanager
def _signals_end_the_process() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def is_first_to(action: str) -> bool:
    """Whether no other process of this job has asked the same before, such as to print an error message."""
    if _meeting is None:
        return int(os.environ.get("RANK", 0)) == 0
    try:
        return _meeting.add(f"recurra/{action}", 1) == 1
    except RuntimeError:  # the store has ended with the process that held it
        return True


def _destroy_process_group() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
        # A thread of gloo may still wait for Python's lock, to free its last tensor. Python ends such threads when it
        # exits, and a C++ thread that is ended so aborts the process.
        time.sleep(0.1)


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
