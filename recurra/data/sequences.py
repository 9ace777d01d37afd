"""`SequenceSet`, which every reader returns, and `Batch`, which every model trains on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from ..errors import DtypeError, InputError, LengthsError, ShapeError, UnknownNameError
from .html_table import html_table
from .stores import Columns, Rows, Spans, Store, window

if TYPE_CHECKING:
    from .readers.column_roles import Roles

Task = Literal["classification", "regression", "tagging", "transduction", "forecasting", "next_step", "language"]

#: the target of one sequence of length T, and of a padded batch (T, B)
TARGETS: dict[Task, str] = {
    "classification": "one class per sequence: (), (B,) int64",
    "regression": "numbers for a sequence: (q,), (B, q)",
    "tagging": "one class per step: (T,), (T, B) int64",
    "transduction": "numbers at every step: (T, q), (T, B, q)",
    "forecasting": "the values one step later: (T, q), (T, B, q)",
    "next_step": "the frame one step later: (T, q), (T, B, q)",
    "language": "the token one step later: (T,), (T, B) int64",
}

PER_STEP: frozenset[str] = frozenset({"tagging", "transduction", "forecasting", "next_step", "language"})

#: integer targets at padded steps; the value `torch.nn.functional.cross_entropy` ignores by default
IGNORE = -100


class Example(NamedTuple):
    """One sequence and its target.

    **Example**

        >>> data = rc.data.SequenceSet.from_arrays([torch.randn(4, 3), torch.randn(2, 3)], [0, 1], "classification")
        >>> example = data[1]
        >>> example.inputs.shape, int(example.target)
        (torch.Size([2, 3]), 1)
    """

    inputs: Tensor  # (T, D) float, or (T,) int64 tokens
    target: Tensor


@dataclass(frozen=True)
class SequenceSet:
    """Sequences of any lengths with their targets, in memory or read from a file on access.

    `data[i]` is the `Example` `(inputs, target)` number i. The shape of a target follows from `task`: one class
    (classification), numbers (regression), a class or numbers at every step (tagging, transduction), or the next step
    of the sequence itself (forecasting, next_step, language). Most sets come from `rc.data.read`, `from_arrays` or
    `one_step_ahead`.

    **Arguments**

    - `inputs`, `targets`: stores: a list of tensors, a tensor, or a lazy view of a file.
    - `lengths`: (N,) int64.
    - `task`: see above.
    - `names`, `features`, `target_names`, `classes`, `vocabulary`: names of sequences, columns, labels and tokens.
    - `series`: the sequences with their last step, where the targets are the next steps.
    - `times`: the timestamps (T,) int64 of the steps. `texts`: the tokens as text. `source`: the file.
    - `categories`: the values of text columns that are inputs. `roles`: what the columns of a table are, and why.
    - `notes`: what the reader changed: rows sorted, gaps filled.

    **Example**

        >>> import torch, recurra as rc
        >>> data = rc.data.SequenceSet.from_arrays([torch.randn(n, 3) for n in (5, 2, 4)], [0, 1, 0], "classification")
        >>> len(data), data.input_size, data.output_size, data[1].inputs.shape
        (3, 3, 2, torch.Size([2, 3]))
        >>> train, valid = data.split(2 / 3, 1 / 3)
    """

    inputs: Store
    targets: Store
    lengths: Tensor  # (N,) int64
    task: Task
    names: Sequence[str] | None = None  # of the sequences
    features: tuple[str, ...] = ()  # of the input columns
    target_names: tuple[str, ...] = ()  # of the target columns
    classes: tuple[str, ...] = ()  # label k is classes[k]
    vocabulary: tuple[str, ...] = ()  # token k is vocabulary[k]
    series: Store | None = field(default=None, repr=False)
    times: Store | None = field(default=None, repr=False)  # of the steps of `series`, else of `inputs`: (T,) int64
    texts: Sequence[Sequence[str]] | None = field(default=None, repr=False)  # the tokens as written
    source: str = ""
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)  # of input columns of text
    roles: "Roles | None" = field(default=None, repr=False)  # of the columns of the table
    notes: tuple[str, ...] = ()  # what the reader changed: rows sorted, gaps filled

    def __post_init__(self):
        if self.task not in TARGETS:
            raise UnknownNameError("task", self.task, get_args(Task))
        if not (len(self.inputs) == len(self.targets) == len(self.lengths)):
            counts = f"{len(self.inputs)} inputs, {len(self.targets)} targets and {len(self.lengths)} lengths"
            raise ShapeError("SequenceSet", counts, "equal numbers")
        if len(self.lengths) and int(self.lengths.min()) < 1:
            raise LengthsError("lengths", f"{int(self.lengths.min())}", "sequences of at least one step")

    def __repr__(self) -> str:
        return "\n".join([f"SequenceSet for {self.task}", *(f"  {name:<9}  {text}" for name, text in self._facts())])

    def _repr_html_(self) -> str:
        """The contents and the roles of columns as tables, for notebooks."""
        tables = html_table(("sequences", f"for {self.task}"), self._facts())
        if self.roles is None:
            return tables
        rows = [(column.name, column.type, column.role, column.why) for column in self.roles.columns]
        return tables + html_table(("column", "type", "role", "why"), rows)

    def _facts(self) -> list[tuple[str, str]]:
        """What the set holds, in a few lines."""
        count, found = len(self), []
        lengths = (int(self.lengths.min()), int(self.lengths.max())) if count else (0, 0)
        steps = str(lengths[0]) if lengths[0] == lengths[1] else f"{lengths[0]:,} to {lengths[1]:,}"
        found.append(("sequences", f"{count:,} of {steps} steps"))
        for name, values in (("features", self.features), ("targets", self.target_names), ("classes", self.classes)):
            found += [(name, _first_names(values))] if values else []
        found += [("tokens", f"{len(self.vocabulary):,}")] if self.vocabulary else []
        found += [("source", self.source)] if self.source else []
        return found + [("note", note) for note in self.notes]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Example:
        index = self._position(index)
        return Example(self.inputs[index], self.targets[index])

    def __iter__(self) -> Iterator[Example]:
        return (self[i] for i in range(len(self)))

    def window(self, index: int, start: int, stop: int) -> Example:
        """Steps `start` to `stop` of one sequence and its targets; a lazy store reads only these."""
        index = self._position(index)
        if not self.per_step:
            raise InputError("task", self.task, "a task with a target at every step")
        return Example(window(self.inputs, index, start, stop), window(self.targets, index, start, stop))

    def name(self, index: int) -> str:
        """The name of a sequence, or its number."""
        index = self._position(index)
        return str(index) if self.names is None else str(self.names[index])

    def _position(self, index: int) -> int:
        if not -len(self) <= index < len(self):
            raise IndexError(f"sequence {index} of {len(self)}")
        return index % len(self)

    @property
    def per_step(self) -> bool:
        """Whether there is a target at every step, not one per sequence."""
        return self.task in PER_STEP

    @property
    def input_size(self) -> int:
        """Features of one step, or the size of the vocabulary when the inputs are tokens."""
        if self.vocabulary:
            return len(self.vocabulary)
        first = window(self.inputs, 0, 0, 1)
        return first.shape[1] if first.ndim == 2 else int(max(x.max() for x in self.inputs)) + 1

    @property
    def output_size(self) -> int:
        """The output size of a model: classes, tokens, or target columns."""
        if self.task == "language":
            return self.input_size
        if self.task in ("classification", "tagging"):
            return len(self.classes) or int(max(y.max() for y in self.targets)) + 1
        target = window(self.targets, 0, 0, 1) if self.per_step else self.targets[0]
        return target.shape[-1]

    def select(self, ids: Sequence[int] | Tensor) -> "SequenceSet":
        """A view of the sequences `ids`, in that order."""
        ids = torch.as_tensor(ids, dtype=torch.int64)
        if len(ids) and not -len(self) <= int(ids.min()) <= int(ids.max()) < len(self):
            raise InputError("ids", f"{int(ids.min())}..{int(ids.max())}", f"numbers of the {len(self)} sequences")
        ids = ids % max(len(self), 1)
        optional = {key: getattr(self, key) for key in ("series", "times")}
        lists = {key: getattr(self, key) for key in ("names", "texts")}
        return replace(
            self,
            inputs=Rows(self.inputs, ids),
            targets=Rows(self.targets, ids),
            lengths=self.lengths[ids],
            **{key: None if store is None else Rows(store, ids) for key, store in optional.items()},
            **{key: None if items is None else [items[i] for i in ids.tolist()] for key, items in lists.items()},
        )

    def split(self, *fractions: float, seed: int = 0) -> tuple["SequenceSet", ...]:
        """Disjoint random parts: `train, valid, test = data.split(0.8, 0.1, 0.1)`."""
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        bounds = _bounds(fractions, torch.tensor([len(self)]))[:, 0].tolist()
        return tuple(self.select(order[a:b]) for a, b in pairwise(bounds))

    def split_time(self, *fractions: float) -> tuple["SequenceSet", ...]:
        """Every sequence cut along time, the past first: the split for streams and forecasting."""
        if not self.per_step:
            raise InputError("task", self.task, "a task with a target at every step")
        bounds = _bounds(fractions, self.lengths)  # (parts + 1, N)
        return tuple(self._between(a, b) for a, b in pairwise(bounds))

    def _between(self, starts: Tensor, stops: Tensor) -> "SequenceSet":
        if bool((stops <= starts).any()):
            raise LengthsError("fractions", "a part without any step", "parts of at least one step of every sequence")
        ahead = 0 if self.series is None else 1  # a series is one step longer than its inputs
        texts = self.texts
        if texts is not None:
            spans = zip(texts, starts.tolist(), stops.tolist(), strict=True)
            texts = [text[a : b + ahead] for text, a, b in spans]
        return replace(
            self,
            inputs=Spans(self.inputs, starts, stops),
            targets=Spans(self.targets, starts, stops),
            lengths=stops - starts,
            series=None if self.series is None else Spans(self.series, starts, stops + ahead),
            times=None if self.times is None else Spans(self.times, starts, stops + ahead),
            texts=texts,
        )

    @classmethod
    def one_step_ahead(
        cls,
        series: Store,
        lengths: Tensor,
        task: Task = "forecasting",
        *,
        columns: Sequence[int] | None = None,
        **about,
    ) -> "SequenceSet":
        """A set of views: step t of a series is the input, step t + 1 (or `columns` of it) the target."""
        if len(lengths) and int(lengths.min()) < 2:
            short = int(lengths.argmin())
            raise LengthsError(
                "lengths", f"sequence {short} of one step", "at least two steps, to predict one from the other"
            )
        zeros, ones = torch.zeros_like(lengths), torch.ones_like(lengths)
        ahead: Store = Spans(series, ones, lengths)
        return cls(
            inputs=Spans(series, zeros, lengths - 1),
            targets=ahead if columns is None else Columns(ahead, columns),
            lengths=lengths - 1,
            task=task,
            series=series,
            **about,
        )

    @classmethod
    def from_arrays(cls, inputs, targets, task: Task, **about) -> "SequenceSet":
        """A set from an array (N, T, D) or a list of arrays (T, D), with targets of the shape that `task` has."""
        sequences = [_sequence(x) for x in inputs]
        if not sequences:
            raise InputError("inputs", "no sequence", "at least one")
        labels = task in ("classification", "tagging", "language")
        try:
            rows = [_classes(y) if labels else torch.as_tensor(y, dtype=sequences[0].dtype) for y in targets]
        except (TypeError, ValueError, RuntimeError) as error:
            expected = "classes as whole numbers, from 0 on" if labels else "numbers"
            raise InputError("targets", error, f"{expected}, one entry per sequence") from error
        store = torch.stack(rows) if task == "classification" else rows
        if task == "classification" and (lowest := min((int(y.min()) for y in rows if y.numel()), default=0)) < 0:
            raise InputError("targets", lowest, "classes as whole numbers, from 0 on")
        if len(widths := {tuple(x.shape[1:]) for x in sequences}) > 1:
            raise ShapeError("inputs", f"features of shapes {sorted(widths)}", "as many features in every sequence")
        lengths = torch.tensor([len(x) for x in sequences], dtype=torch.int64)
        return cls(sequences, store, lengths, task, **about)


def _first_names(names: Sequence[object], limit: int = 8) -> str:
    shown = ", ".join(str(name) for name in names[:limit])
    return f"{len(names)}: {shown}" + (", …" if len(names) > limit else "")


def _classes(values) -> Tensor:
    """Classes as whole numbers; a fraction is none, and is not cut off."""
    given = torch.as_tensor(values)
    whole = given.long()
    if not torch.equal(whole.to(given.dtype), given):
        raise ValueError(f"{values}")
    return whole


def _sequence(values) -> Tensor:
    """(T, D) floats or (T,) tokens; a float vector (T,) is one feature."""
    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError("inputs", error, "a sequence of numbers, (T, D), or of tokens, (T,)") from error
    if tensor.is_complex():
        raise DtypeError("inputs", tensor.dtype, "real numbers; their real and imaginary parts as columns")
    if tensor.is_floating_point():
        tensor = tensor[:, None] if tensor.ndim == 1 else tensor
    elif tensor.ndim == 1:
        tensor = tensor.long()
    else:
        tensor = tensor.to(torch.get_default_dtype())
    if tensor.ndim not in (1, 2):
        raise ShapeError("inputs", f"a sequence of shape {tuple(tensor.shape)}", "(T, D) numbers or (T,) tokens")
    return tensor


def _bounds(fractions: Sequence[float], totals: Tensor) -> Tensor:
    """The boundaries of the parts: (parts + 1, N)."""
    if not fractions or min(fractions) <= 0 or sum(fractions) > 1 + 1e-9:
        raise InputError("fractions", fractions, "positive fractions whose sum is at most one")
    ends = torch.tensor((0.0, *fractions), dtype=torch.float64).cumsum(0)
    return (ends[:, None] * totals[None, :].double() + 1e-6).long()


@dataclass
class Batch:
    """Sequences padded to the longest, time first.

    **Arguments**

    - `inputs`: (T, B, D) float, or (T, B) int64 tokens.
    - `targets`: (B,), (B, q), (T, B) or (T, B, q).
    - `lengths`, `ids`: (B,) int64; `ids` are the numbers of the sequences in their set.
    - `resets`: (T, B) bool, or None: the steps before which the state is reset, in a stream.
    - `carried`: the state continues from the previous batch.

    **Example**

        >>> import torch, recurra as rc
        >>> lengths = torch.tensor([3, 2])
        >>> batch = rc.data.Batch(torch.randn(3, 2, 4), torch.zeros(2, 1), lengths, torch.arange(2))
        >>> batch.mask.tolist()  # (T, B)
        [[True, True], [True, True], [True, False]]
    """

    inputs: Tensor  # (T, B, D) float, or (T, B) int64 tokens
    targets: Tensor  # (B,), (B, q), (T, B) or (T, B, q)
    lengths: Tensor  # (B,) int64
    ids: Tensor  # (B,) int64
    resets: Tensor | None = None  # (T, B) bool
    carried: bool = False

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def mask(self) -> Tensor:
        """(T, B): True at data, False at padding."""
        steps = torch.arange(self.inputs.shape[0], device=self.lengths.device)
        return steps[:, None] < self.lengths

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Batch":
        """The batch on another device."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Batch":
        """A copy in page-locked memory, so that `to(device, non_blocking=True)` overlaps with computation."""
        return self._map(Tensor.pin_memory)

    def _map(self, function) -> "Batch":
        resets = None if self.resets is None else function(self.resets)
        moved = (function(tensor) for tensor in (self.inputs, self.targets, self.lengths, self.ids))
        return Batch(*moved, resets=resets, carried=self.carried)
