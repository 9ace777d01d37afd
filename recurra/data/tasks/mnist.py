"""Sequential and permuted MNIST: digits read pixel by pixel."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from ...errors import InputError, UnknownNameError
from ..batching import collate, generator
from ..readers.idx import read_idx
from ..sequences import Batch, SequenceSet
from ..stores import Permuted
from . import scores
from .base import CanonicalTask, one_hot, register


@register("sequential_mnist")
@dataclass(frozen=True)
class SequentialMNIST(CanonicalTask):
    """Sequential MNIST: classify a digit from its 784 pixels, by rows or in a fixed random order (Le et al. 2015).

    The trivial answer is the most frequent digit.

    **Arguments**

    - `folder`: has the IDX files, gzip or not.
    - `split`: "train" or "test".
    - `permuted`: read the pixels in a random order, the same for all digits, from `permutation_seed`.

    **Example**

        >>> from pathlib import Path
        >>> image = [0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 28, 0, 0, 0, 28] + 784 * [0]  # files like MNIST's, of one digit
        >>> _ = Path("train-images-idx3-ubyte").write_bytes(bytes(image))
        >>> _ = Path("train-labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 1, 7]))
        >>> task = rc.data.tasks.sequential_mnist(".", permuted=True)
        >>> task.data[0].inputs.shape
        torch.Size([784, 1])
    """

    folder: str | Path
    split: Literal["train", "test"] = "train"
    permuted: bool = False
    permutation_seed: int = 0

    kind, metric, better = "classification", "accuracy", "higher"
    input_size, output_size = 1, 10

    def __post_init__(self):
        if self.split not in ("train", "test"):
            raise UnknownNameError("split", self.split, ("train", "test"))

    @cached_property
    def data(self) -> SequenceSet:
        """All digits of the split, in the order of the file."""
        prefix = "train" if self.split == "train" else "t10k"
        found = sorted(Path(self.folder).glob(f"{prefix}-images*idx3-ubyte*"))
        if not found:
            raise InputError("folder", self.folder, f"a folder with {prefix}-images-idx3-ubyte.gz and its labels")
        digits = read_idx(found[0])
        if not self.permuted:
            return digits
        order = torch.randperm(int(digits.lengths[0]), generator=generator(self.permutation_seed))
        about = {"classes": digits.classes, "source": digits.source}
        return SequenceSet(Permuted(digits.inputs, order), digits.targets, digits.lengths, digits.task, **about)

    @property
    def baseline(self) -> float:
        counts = torch.bincount(self._labels, minlength=10)
        return float(counts.max()) / len(self._labels)

    @cached_property
    def _labels(self) -> Tensor:
        return torch.stack([self.data.targets[i] for i in range(len(self.data))])

    def draw(self, count: int, random: torch.Generator) -> Batch:
        return collate(self.data, torch.randint(0, len(self.data), (count,), generator=random))

    def trivial(self, batch: Batch) -> Tensor:
        frequent = torch.bincount(self._labels, minlength=10).argmax()
        return one_hot(frequent.expand(len(batch)), self.output_size)

    def score(self, outputs: Tensor, batch: Batch) -> float:
        return scores.accuracy(outputs, batch.targets)
