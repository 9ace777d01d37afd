"""A recurra layer and the torch.nn layer with the same equations and weights, copied by hand, gate by gate."""

from typing import Any

import torch
from torch import Tensor, nn

import recurra as rc

KINDS = ("RNN", "LSTM", "GRU")


def twins(kind: str, input_size: int, hidden_size: int, **arguments: Any) -> tuple[rc.Recurrent, nn.RNNBase]:
    """`(recurra's, torch's)`; `arguments` are those both know."""
    theirs = getattr(nn, kind)(input_size, hidden_size, dtype=torch.float64, **arguments)
    for weight in theirs.parameters():
        nn.init.uniform_(weight, -0.9, 0.9)
    extra = {"reset_after": True} if kind == "GRU" else {}
    ours = getattr(rc, kind)(input_size, hidden_size, dtype=torch.float64, **arguments, **extra)
    copy_weights(kind, ours, theirs)
    return ours, theirs


@torch.no_grad()
def copy_weights(kind: str, ours: rc.Recurrent, theirs: nn.RNNBase) -> None:
    for k, cell in enumerate(ours.cells):
        layer, reverse = divmod(k, 2 if theirs.bidirectional else 1)
        suffix = f"l{layer}" + ("_reverse" if reverse else "")
        weights = {n: getattr(theirs, f"{n}_{suffix}", None) for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
        {"RNN": _copy_rnn, "LSTM": _copy_lstm, "GRU": _copy_gru}[kind](cell, *weights.values())


def _copy_rnn(cell: Any, U: Tensor, W: Tensor, b: Tensor | None, c: Tensor | None) -> None:
    _fill(cell.a, U, W, b, c)


def _copy_lstm(cell: Any, U: Tensor, W: Tensor, b: Tensor | None, c: Tensor | None) -> None:
    for gate, *parts in zip("ifgo", *(_chunks(v, 4) for v in (U, W, b, c)), strict=True):
        _fill(getattr(cell, gate), *parts)


def _copy_gru(cell: Any, U: Tensor, W: Tensor, b: Tensor | None, c: Tensor | None) -> None:
    """torch's update gate keeps where recurra's overwrites: σ(-a) = 1 - σ(a)."""
    (r, z, n) = zip(*(_chunks(v, 3) for v in (U, W, b, c)), strict=True)
    _fill(cell.r, *r)
    _fill(cell.z, *(None if v is None else -v for v in z))
    cell.c.U.copy_(n[0])
    cell.m.W.copy_(n[1])
    if b is not None:
        cell.c.b.copy_(n[2])
        cell.m.b.copy_(n[3])


def _fill(affine: Any, U: Tensor, W: Tensor, b: Tensor | None, c: Tensor | None) -> None:
    affine.U.copy_(U)
    affine.W.copy_(W)
    if b is not None:
        affine.b.copy_(b + c)


def _chunks(value: Tensor | None, count: int) -> tuple[Tensor | None, ...]:
    return (None,) * count if value is None else value.chunk(count)
