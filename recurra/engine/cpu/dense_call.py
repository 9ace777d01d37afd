"""Prepared calls without gradients: a dense batch, and a single step.

Both are made once for the shapes of their inputs and a set of weight tensors. A line of Python takes as long as a tenth
of a small step's arithmetic, so what a call checks, it checks for all tensors at once.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..torch_modes import hide_from_modes
from .executor import CpuExecutor
from .layout import dense

_ADDRESS, _CONTIGUOUS = Tensor.data_ptr, Tensor.contiguous
Start = Callable[[Tensor], Sequence[Tensor]]  # x → the states before its first step


class DenseCall:
    """A batch of equally long sequences."""

    @hide_from_modes
    def __init__(
        self,
        executor: CpuExecutor,
        shape: torch.Size,
        weights: dict[str, Tensor],
        read: list[Tensor],
        start: Start,
    ):
        """`read`: the weights the loop reads, and what is computed from weights before it."""
        self.executor, self.weights, self.start = executor, weights, start
        self.read = dict(zip(executor.weight_names, read, strict=True))
        self.derived = not all(name in weights for name in executor.weight_names)
        self.call = executor.forward_call(dense(*shape[:2]), self.read)

    def __call__(self, x: Tensor, states: Sequence[Tensor] | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        read = self.read
        if self.derived:
            read = dict(zip(self.executor.weight_names, self.executor.prologue(self.weights), strict=True))
        if states is None:
            states = [state[None] for state in self.start(x)]
        return self._run(x, states, read)

    @hide_from_modes
    def _run(self, x: Tensor, states: Sequence[Tensor], read: dict[str, Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        inputs = (*map(_CONTIGUOUS, (x, *states)),)
        outputs, finals = self.call.run(inputs, inputs[1:], self.call.pack(read))
        return outputs[0], finals


class StepCall:
    """One step of some rows.

    The call packs the weights again if they moved, or if any of their numbers changed: it compares a hash of all of
    them, since fused optimizers, `.data` and NumPy write past a tensor's version. A single row needs no hash: it reads
    the weights where they are.
    """

    def __init__(self, executor: CpuExecutor, x: Tensor, weights: dict[str, Tensor], start: Start):
        self.executor, self.start = executor, start
        self.read = {name: weights[name] for name in executor.weight_names}
        self.weights = list(self.read.values())
        self.matrices = [weight for weight in self.weights if weight.dim() > 1]  # others cannot be transposed
        self._prepare(x)

    @hide_from_modes
    def _prepare(self, x: Tensor) -> None:
        self.addresses = list(map(_ADDRESS, self.weights))
        self.contiguous = all(map(Tensor.is_contiguous, self.weights))
        call = self.executor.forward_call(dense(1, x.shape[0]), self.read, single_step=True)
        self.run, self.packed, self.in_place = call.run, call.pack(self.read), call.reads_in_place
        self.fingerprint = call.launch.kernel.pack.prepare_fingerprint(self.weights, call.launch.split.threads)
        self.numbers = self.fingerprint()

    def is_current(self) -> bool:
        """Whether the weights are where they were, and the packed ones still hold their numbers."""
        return (
            list(map(_ADDRESS, self.weights)) == self.addresses
            and all(map(Tensor.is_contiguous, self.matrices)) is self.contiguous
            and (self.in_place or (self.contiguous and self.fingerprint() == self.numbers))
        )

    def __call__(self, x: Tensor, states: Sequence[Tensor] | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        if not self.is_current():
            self._prepare(x)
        if states is None:
            states = [state[None] for state in self.start(x)]
        inputs = (*map(_CONTIGUOUS, (x, *states)),)
        outputs, finals = self.run(inputs, inputs[1:], self.packed)
        return outputs[0], finals
