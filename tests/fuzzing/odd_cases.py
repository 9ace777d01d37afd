"""Odd cells in a layer, compared with a loop over `step` that is written here: values, gradients, effects, draws.

Two calls, with a change of what the step reads in between. Numbers may differ by rounding alone.
"""

import copy
import random
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fuzzing.odd_cells import OddCell, odd_cell
from torch import Tensor

import recurra as rc
from recurra.cell import Cell
from recurra.draws import StepDropout
from recurra.engine.found_draws import find_draws

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}


@dataclass(frozen=True)
class OddCase:
    B: int
    T: int
    dtype: torch.dtype
    train: bool  # with gradients
    look: str  # "call", "stream" or "trace"


def odd_case(seed: int) -> OddCase:
    rng = random.Random(f"odd case {seed}")
    dtype = torch.float64 if rng.random() < 0.8 else torch.float32
    return OddCase(rng.choice([1, 2, 3, 5, 8]), rng.choice([1, 2, 4]), dtype, rng.random() < 0.75,
                   rng.choices(["call", "stream", "trace"], [6, 1, 1])[0])  # fmt: skip


def check(seed: int) -> str:
    """What is wrong with the cell of this seed; empty if nothing is."""
    odd, case = odd_cell(seed), odd_case(seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = _by_hand(odd, case)
            with rc.set_backend("auto"):
                found = _by_layer(odd, case)
    except Exception:
        return f"odd cell {seed}, {case}\n{traceback.format_exc(limit=-8)}\n{_own(odd)}"
    if found is None:  # a refusal of a trace, with a recurra error
        return ""
    wrong = _differences(expected, found, TOLERANCE[case.dtype])
    return f"odd cell {seed}, {case}\n{wrong}\n\n{_own(odd)}" if wrong else ""


def _own(odd: OddCell) -> str:
    return odd.source[odd.source.index(f"class Odd{odd.seed}") :]


def _prepared(odd: OddCell, case: OddCase) -> tuple[Cell, dict[str, Any], rc.Recurrent, list[Tensor]]:
    cell_class, space = odd.build()
    torch.manual_seed(odd.seed)
    layer = rc.Recurrent(cell_class, 3, 6, dtype=case.dtype)
    xs = [torch.randn(case.T, case.B, 3, dtype=case.dtype, requires_grad=case.train) for _ in range(2)]
    return layer.cell_list[0], space, layer, xs


def _by_layer(odd: OddCell, case: OddCase) -> dict[str, Any] | None:
    cell, space, layer, xs = _prepared(odd, case)

    def call(x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        if case.look == "stream":
            rows, state = [], h[None]
            for x_t in x:
                y, state = layer.step(x_t, state)
                rows.append(y)
            return torch.stack(rows), state[0]
        y, state, *_ = layer(x, h[None], return_trace=case.look == "trace")
        return y, state[0]

    try:
        return _two_calls(odd, case, cell, space, xs, call)
    except rc.RecurraError:
        if case.look == "trace":
            return None
        raise


def _by_hand(odd: OddCell, case: OddCase) -> dict[str, Any]:
    cell, space, _, xs = _prepared(odd, case)

    def call(x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        ys, steps = [], [x] if case.look != "stream" else x.split(1)
        for part in steps:  # a streamed step is a call, with masks of its own
            drawn = find_draws(cell)
            masks = cell.draw_masks(part.shape[0], part.shape[1], part)
            for t, x_t in enumerate(part.unbind(0)):
                masks_t = {n: m[t] if drawn[n].each == "step" else m for n, m in masks.items()}
                with _dropouts([masks_t.pop(n) for n, one in drawn.items() if isinstance(one, StepDropout)]):
                    h = cell.step(x_t, h, **masks_t)
                h, *_ = h if isinstance(h, tuple) else (h,)
                ys.append(h)
        return torch.stack(ys), h

    return _two_calls(odd, case, cell, space, xs, call)


@contextmanager
def _dropouts(masks: list[Tensor]) -> Iterator[None]:
    """Dropout is the product with these masks, in turn; without any, torch's own, as for a step that is not traced."""
    own, given = F.dropout, iter(masks)
    F.dropout = lambda v, p=0.5, training=True, inplace=False: v * next(given) if training else v
    try:
        if not masks:
            F.dropout = own
        yield
    finally:
        F.dropout = own


def _two_calls(odd: OddCell, case: OddCase, cell: Cell, space: dict, xs: list[Tensor], call: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, x in enumerate(xs):
        if number:
            odd.change(cell, space)
        h = (0.1 * torch.randn(case.B, 6, generator=torch.Generator().manual_seed(number))).to(case.dtype)
        h.requires_grad_(case.train)
        torch.manual_seed(number + 17)
        with torch.set_grad_enabled(case.train):
            y, state = call(x, h)
            found |= {f"y of call {number}": y.detach(), f"state of call {number}": state.detach()}
            if case.train:
                leaves = {"x": x, "h": h, **dict(cell.named_parameters())}
                loss = (y * torch.cos(torch.arange(y.numel(), dtype=y.dtype)).view_as(y)).sum() + state.sum()
                grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
                found |= {f"d {name} of call {number}": g for name, g in zip(leaves, grads, strict=True)}
        found[f"effects of call {number}"] = _effects(cell, space)
        found[f"next random number after call {number}"] = torch.rand(())
    return found


def _effects(cell: Cell, space: dict[str, Any]) -> dict[str, Any]:
    """Every attribute and buffer that a step may have changed."""
    own = {n: v for n, v in vars(cell).items() if isinstance(v, (int, float, list, dict, np.ndarray)) and n[0] != "_"}
    known = {"n", "log", "avg", "box", "depth", "array", "weights_", "mode", "low", "kind"}
    kept = {n: v for n, v in own.items() if n in known}
    return copy.deepcopy({**kept, **dict(cell.named_buffers()), "COUNTS": space["COUNTS"]})


def _differences(expected: Any, found: Any, tolerance: float, where: str = "") -> str:
    """Where two trees of results differ, as text."""
    if isinstance(expected, dict):
        if expected.keys() != found.keys():
            return f"{where}: {sorted(expected)} and {sorted(found)}"
        parts = [_differences(expected[k], found[k], tolerance, f"{where}/{k}") for k in expected]
        return "\n".join(filter(None, parts))
    if isinstance(expected, (list, tuple)):
        if len(expected) != len(found):
            return f"{where}: {len(found)} items, expected {len(expected)}"
        parts = [
            _differences(a, b, tolerance, f"{where}/{i}") for i, (a, b) in enumerate(zip(expected, found, strict=True))
        ]
        return "\n".join(filter(None, parts))
    if expected is None or found is None:
        other = found if expected is None else expected
        return "" if other is None or not other.abs().max() > 0 else f"{where}: {found}, expected {expected}"
    if isinstance(expected, (str, bool)):
        return "" if expected == found else f"{where}: {found}, expected {expected}"
    one, other = torch.as_tensor(expected).double(), torch.as_tensor(found).double()
    if one.shape != other.shape:
        return f"{where}: shape {tuple(other.shape)}, expected {tuple(one.shape)}"
    apart = (one - other).abs().max() if one.numel() else torch.tensor(0.0)
    scale = one.abs().max() + 1e-3 if one.numel() else 1.0
    return "" if apart <= tolerance * scale else f"{where}: apart by {float(apart):.1e} of {float(scale):.1e}"
