"""A run over several processes, as `torchrun` starts them: collectives for gradients, counts and stop requests.

Gradients are summed in one flat message after the backward pass. In a recurrent network the gradient of a weight is
complete only when the loop over time has ended, so there is little to overlap with. In return a process may split its
batch, or leave a parameter unused, independently of the others.
"""

import atexit
import inspect
import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from recurra.errors import InputError
from recurra.train.fit_errors import RankError

Source = TypeVar("Source")


class Processes:
    """The process group of this run. With one process every operation is the identity."""

    def __init__(self, device: torch.device):
        self.rank, self.size, self._control = 0, 1, None
        if not dist.is_available():
            return
        if not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", 1)) > 1:
            dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
            atexit.register(_destroy_process_group)  # only at exit: the next fit or evaluate uses the same group
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

    def broadcast_model(self, model: nn.Module) -> None:
        """Copy weights and buffers from rank 0 to all ranks, and seed each rank differently."""
        if self.size == 1:
            return
        for tensor in [*model.parameters(), *model.buffers()]:
            self._collective(dist.broadcast, tensor.data, 0)
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


def _destroy_process_group() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
