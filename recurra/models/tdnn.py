"""Time-delay networks: every layer reads the layer below at chosen time offsets, with weights shared over time.

z^l_t = f(b^l + Σ_{o ∈ O_l} W^l_o z^{l-1}_{t+o}). Consecutive offsets give the classic network (Waibel et al. 1989), a
convolution. Sparse offsets give the sub-sampled network (Peddinti, Povey & Khudanpur 2015), which computes only the
frames its outputs need.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..argument_checks import positive_int, positive_number
from ..cells.activations import Activation, activation
from ..errors import InputError, LengthsError, ShapeError, UnknownNameError
from ..ragged import check_lengths
from .common import Function, time_major

#: offsets of the published acoustic model: context [-13, +9]
PEDDINTI = (tuple(range(-2, 3)), (-1, 2), (-3, 3), (-7, 2), (0,))


class PNorm(nn.Module):
    """Replaces each group of units by its p-norm, then scales a frame to a root mean square of at most 1.

    **Example**

        >>> rc.models.PNorm(group=2)(torch.randn(7, 6)).shape
        torch.Size([7, 3])
    """

    def __init__(self, group: int = 10, p: float = 2.0, renormalise: bool = True):
        super().__init__()
        self.group, self.p, self.renormalise = positive_int("group", group), positive_number("p", p), renormalise

    def forward(self, a: Tensor) -> Tensor:
        """(…, units) → (…, units / group)."""
        if a.shape[-1] % self.group:
            raise ShapeError("units", a.shape[-1], f"a multiple of the group, {self.group}")
        y = a.unflatten(-1, (-1, self.group))
        y = torch.linalg.vector_norm(y, self.p, dim=-1)
        if not self.renormalise:
            return y
        return y / y.square().mean(dim=-1, keepdim=True).clamp_min(1.0).sqrt()


class TDNN(nn.Module):
    """A time-delay neural network: a stack of layers that read the layer below at chosen time offsets.

    With consecutive offsets it is a one-dimensional convolutional network (Waibel et al. 1989).

    **Arguments**

    - `input_size`: D, the number of input features.
    - `units`: the number of units of every layer.
    - `contexts`: for every layer its offsets, increasing, positive ones in the future; or a number n for the classic
      window -(n-1), …, 0.
    - `nonlinearity`: of the hidden layers: a name, a function, or a `rc.models.PNorm`.
    - `output`: of the last layer; by default the same.
    - `padding`: `"valid"` computes the frames whose whole context exists; `"edge"` repeats the first and the last frame
      and computes all frames.
    - `integrate`: reduces the outputs to one score per sequence: `"squares"` (Σ y², Waibel and Lang), `"sum"` or
      `"mean"`.
    - `batch_first`: x is (B, T, D) instead of (T, B, D).

    **Returns**

    `model(x, lengths)`: x (T, B, D) → outputs (T', B, F), or scores (B, F) with `integrate`. F is `output_size`.

    **Example**

        >>> model = rc.TDNN(16, [8, 3], [3, 5])
        >>> model.receptive_field
        (-6, 0)
        >>> model(torch.randn(15, 2, 16)).shape
        torch.Size([9, 2, 3])
    """

    def __init__(
        self,
        input_size: int,
        units: Sequence[int],
        contexts: Sequence[int | Sequence[int]],
        *,
        nonlinearity: str | Activation = "sigmoid",
        output: str | Activation | None = None,
        padding: str = "valid",
        integrate: str | None = None,
        batch_first: bool = False,
    ):
        super().__init__()
        self.input_size, self.batch_first = positive_int("input_size", input_size), batch_first
        if not isinstance(contexts, (list, tuple)) or not isinstance(units, (list, tuple)):
            raise InputError("units, contexts", f"{units!r} and {contexts!r}", "two lists, an entry for each layer")
        self.contexts = tuple(_offsets(context) for context in contexts)
        if not units or len(units) != len(self.contexts):
            raise InputError("contexts", f"{len(self.contexts)}", f"one for each of the {len(units)} layers")
        if padding not in ("valid", "edge"):
            raise UnknownNameError("padding", repr(padding), ("valid", "edge"))
        if integrate not in (None, *_REDUCTIONS):
            raise UnknownNameError("integrate", repr(integrate), _REDUCTIONS)
        self.padding, self.integrate = padding, integrate
        last = nonlinearity if output is None else output
        squashers = [*[activation(nonlinearity)] * (len(units) - 1), activation(last)]
        self.squashers = nn.ModuleList(s if isinstance(s, nn.Module) else Function(s) for s in squashers)
        self.layers = nn.ModuleList()
        width = input_size
        for size, offsets, squash in zip(units, self.contexts, self.squashers, strict=True):
            self.layers.append(nn.Linear(width * len(offsets), positive_int("units", size)))
            width = size // squash.group if isinstance(squash, PNorm) else size
        self.output_size = width

    @property
    def receptive_field(self) -> tuple[int, int]:
        """(left, right): output t depends on the inputs t + left … t + right."""
        return sum(o[0] for o in self.contexts), sum(o[-1] for o in self.contexts)

    def needed_frames(self, times: Sequence[int]) -> list[list[int]]:
        """The frames that outputs at `times` need: of the input first, then of every layer."""
        frames = [sorted(set(times))]
        for offsets in reversed(self.contexts):
            frames.insert(0, sorted({t + o for t in frames[0] for o in offsets}))
        return frames

    def forward(
        self, x: Tensor, lengths: Tensor | Sequence[int] | None = None, at: Sequence[int] | None = None
    ) -> Tensor:
        """(T, B, D) → outputs (T', B, F), or scores (B, F) with `integrate`.

        `at` lists the output frames to compute, in input time; by default all. With padding "valid", the first output
        is that of frame -left. Outputs past the end of a sequence are zero and excluded from a score.
        """
        x = time_major("x", x, self.input_size, self.batch_first)
        steps, batch = x.shape[:2]
        size = None if lengths is None else check_lengths(lengths, steps, batch, x.device)
        times = (
            self._times(steps, size)
            if at is None
            else _check_output_frames(at, steps, self.receptive_field, self.padding)
        )
        z = self._compute(x, size, times)
        valid = self._valid(times, size, x.device)
        if valid is not None:
            z = z * valid[..., None]
        if self.integrate is not None:
            return self._score(z, valid)
        return z.transpose(0, 1) if self.batch_first else z

    def _compute(self, x: Tensor, lengths: Tensor | None, times: Sequence[int]) -> Tensor:
        frames = self.needed_frames(times)
        z = _frames_of(x, frames[0], lengths)
        for layer, squash, offsets, have, want in zip(
            self.layers, self.squashers, self.contexts, frames, frames[1:], strict=False
        ):
            z = squash(layer(_splice(z, have, want, offsets)))
        order = {t: i for i, t in enumerate(frames[-1])}
        return z if list(times) == frames[-1] else z[[order[t] for t in times]]

    def _times(self, steps: int, lengths: Tensor | None) -> Sequence[int]:
        left, right = self.receptive_field
        if self.padding == "edge":
            return range(steps)
        shortest = steps if lengths is None else int(lengths.min())
        first, last = max(0, -left), min(0, -right)
        if shortest < first - last + 1:
            argument, error = ("x", ShapeError) if lengths is None else ("lengths", LengthsError)
            raise error(argument, f"{shortest} frames", f"at least {first - last + 1}; or padding='edge'")
        return range(first, steps + last)

    def _valid(self, times: Sequence[int], lengths: Tensor | None, device: torch.device) -> Tensor | None:
        """(T', B): which outputs lie within their sequence."""
        if lengths is None:
            return None
        ends = lengths if self.padding == "edge" else lengths - max(0, self.receptive_field[1])
        return torch.tensor(list(times), device=device)[:, None] < ends

    def _score(self, z: Tensor, valid: Tensor | None) -> Tensor:
        total = (z.square() if self.integrate == "squares" else z).sum(dim=0)
        if self.integrate != "mean":
            return total
        return total / (len(z) if valid is None else valid.sum(dim=0)[:, None])


_REDUCTIONS = ("squares", "sum", "mean")


def _offsets(context: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(context, int):
        return tuple(range(1 - positive_int("contexts", context), 1))
    offsets = tuple(context)
    if not offsets or not all(isinstance(offset, int) for offset in offsets) or list(offsets) != sorted(set(offsets)):
        raise InputError("contexts", offsets, "different whole numbers, from past to future")
    return offsets


def _check_output_frames(at: Sequence[int], steps: int, field: tuple[int, int], padding: str) -> list[int]:
    first, last = (0, steps) if padding == "edge" else (max(0, -field[0]), steps - max(0, field[1]))
    for t in at:
        if not first <= t < last:
            raise InputError("at", t, f"frames from {first} to {last - 1}, whose context exists")
    return list(at)


def _frames_of(x: Tensor, frames: Sequence[int], lengths: Tensor | None) -> Tensor:
    """The input at `frames`, (n, B, D); the first frame repeats before the start, the last past the end."""
    if lengths is None:
        if frames[0] >= 0 and frames[-1] < len(x) and len(frames) == frames[-1] - frames[0] + 1:
            return x[frames[0] : frames[-1] + 1]
        return x[torch.tensor(frames, device=x.device).clamp(0, len(x) - 1)]
    indices = torch.tensor(frames, device=x.device)[:, None].clamp_min(0).minimum(lengths - 1)  # (n, B)
    return x.gather(0, indices[..., None].expand(-1, -1, x.shape[-1]))


def _splice(z: Tensor, have: list[int], want: list[int], offsets: tuple[int, ...]) -> Tensor:
    """The frames `have` of z, concatenated at the offsets of every frame in `want`: (n, B, D · offsets)."""
    place = {t: i for i, t in enumerate(have)}
    parts = []
    for offset in offsets:
        rows = [place[t + offset] for t in want]
        is_contiguous = rows[-1] - rows[0] + 1 == len(rows)
        parts.append(z[rows[0] : rows[-1] + 1] if is_contiguous else z[rows])
    return torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]


__all__ = ["PEDDINTI", "TDNN", "PNorm"]
