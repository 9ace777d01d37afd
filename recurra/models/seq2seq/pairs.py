"""Pairs of texts as batches: symbols, their numbers, and padding."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ...argument_checks import positive_int
from ...data.batching import check_rank, empty_batch, generator
from ...data.sequences import IGNORE, Batch
from ...errors import InputError, UnknownNameError

START, STOP, UNKNOWN = 0, 1, 2
LEVELS = ("character", "word")


@dataclass(frozen=True)
class Symbols:
    """The symbols of texts: 0 starts, 1 stops, 2 is unknown, the others are characters or words.

    **Example**

        >>> symbols = rc.models.Symbols.of(["one", "two"], level="character")
        >>> symbols.encode("to", stop=True), symbols.decode(symbols.encode("two"))
        (tensor([6, 5, 1]), 'two')
    """

    level: str
    symbols: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise UnknownNameError("level", repr(self.level), LEVELS)
        if len(set(self.symbols)) != len(self.symbols) or not all(isinstance(s, str) for s in self.symbols):
            raise InputError("symbols", f"{len(self.symbols)} symbols", "different texts")
        object.__setattr__(self, "numbers", {symbol: k for k, symbol in enumerate(self.symbols, start=3)})

    @classmethod
    def of(cls, texts: Sequence[str], level: str) -> "Symbols":
        """The symbols that occur in the texts."""
        return cls(level, tuple(sorted({symbol for text in texts for symbol in split(text, level)})))

    def __len__(self) -> int:
        return len(self.symbols) + 3

    def encode(self, text: str, stop: bool = False) -> Tensor:
        """The numbers of a text, (T,); with `stop` at the end if wanted. An empty text is one `stop`."""
        numbers: dict[str, int] = self.numbers  # pyrefly: ignore
        found = [numbers.get(symbol, UNKNOWN) for symbol in split(text, self.level)]
        return torch.tensor([*found, STOP] if stop or not found else found, dtype=torch.int64)

    def decode(self, tokens: Tensor) -> str:
        """The text of symbols; `start`, `stop` and unknown ones are left out."""
        found = [self.symbols[k - 3] for k in tokens.tolist() if k >= 3]
        return (" " if self.level == "word" else "").join(found)


def split(text: str, level: str) -> Sequence[str]:
    if not isinstance(text, str):
        raise InputError("text", type(text).__name__, "a text")
    return text.split() if level == "word" else text


class Pairs:
    """Batches of sources and targets for `rc.train.fit`, in an order that depends on (seed, epoch) alone.

    **Arguments**: `sources` and `targets`, lists of (S,) and (T,) tokens; `batch_size`, of all processes together;
    `seed`; `shuffle`; `rank` and `world_size` of this process. Pairs of similar length share a batch. Each process gets
    its share of every batch; that of a small last one may be empty.

    **Example**

        >>> pairs = rc.models.Pairs([torch.tensor([3, 4, 5]), torch.tensor([3])], [torch.tensor([6, 1])] * 2, 2)
        >>> batch = next(pairs.epoch(0))
        >>> batch.inputs.shape, batch.targets.shape, sorted(batch.lengths.tolist())
        (torch.Size([3, 2]), torch.Size([2, 2]), [1, 3])
    """

    def __init__(
        self,
        sources: Sequence[Tensor],
        targets: Sequence[Tensor],
        batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        rank: int = 0,
        world_size: int = 1,
    ):
        check_rank(rank, world_size)
        for name, value in (("sources", sources), ("targets", targets)):
            if not hasattr(value, "__len__") or not all(isinstance(each, Tensor) for each in value):
                raise InputError(name, type(value).__name__, "a list of tensors, one a sequence")
        if len(sources) != len(targets) or not len(sources):
            raise InputError(
                "targets", f"{len(targets)} for {len(sources)} sources", "one for each source, at least one"
            )
        self.sources, self.targets = list(sources), list(targets)
        self.batch_size, self.seed, self.shuffle = positive_int("batch_size", batch_size), seed, shuffle
        self.rank, self.world_size = rank, world_size

    def __len__(self) -> int:
        return -(-len(self.sources) // self.batch_size)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, from batch number `start` on."""
        for ids in self.plan(epoch)[start:]:
            yield self.batch(ids)

    def plan(self, epoch: int) -> list[Tensor]:
        """The numbers of the pairs in every batch of this process."""
        return [ids[self.rank :: self.world_size] for ids in self._batches(epoch)]

    def _batches(self, epoch: int) -> list[Tensor]:
        count = len(self.sources)
        if not self.shuffle:
            return list(torch.arange(count).split(self.batch_size))
        random = generator(self.seed, epoch)
        order = torch.randperm(count, generator=random)
        lengths = torch.tensor([len(self.sources[k]) for k in order.tolist()])
        near = torch.cat([part[lengths[part].argsort()] for part in torch.arange(count).split(16 * self.batch_size)])
        batches = list(order[near].split(self.batch_size))
        return [batches[k] for k in torch.randperm(len(batches), generator=random).tolist()]

    def batch(self, ids: Tensor) -> Batch:
        """These pairs, padded: sources with 0, targets with -100."""
        if not len(ids):
            return empty_batch()
        sources = [self.sources[k] for k in ids.tolist()]
        targets = pad_sequence([self.targets[k] for k in ids.tolist()], padding_value=IGNORE)
        return Batch(pad_sequence(sources), targets, torch.tensor([len(s) for s in sources]), ids)
