"""`W h + U x + b`: the affine maps of a cell, with weights that may be derived from stored ones."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import init


class Regulariser(nn.Module):
    """A derivation of a weight that is not part of the cell's equations, such as dropped entries."""


class Affine(nn.Module):
    """`W h + U x + b` over any operands, called as `affine(x, h)`. Made by `Cell.affine`.

    The weight of "x" is `U`, that of a single state `W`, those of several states `W_<state>`; the bias is `b` or None.
    """

    U: nn.Parameter
    W: nn.Parameter
    b: Any  # a parameter, or None

    def __init__(self, operands: Mapping[str, int], size: int, bias: bool):
        super().__init__()
        self.operands = dict(zip(_weight_names(tuple(operands)), operands, strict=True))  # weight name → operand name
        for name, width in zip(self.operands, operands.values(), strict=True):
            weight = nn.Parameter(torch.empty(size, width))
            init.glorot_(weight) if name == "U" else init.orthogonal_(weight)
            self.register_parameter(name, weight)
        self.register_parameter("b", nn.Parameter(torch.zeros(size)) if bias else None)

    def forward(self, *values: Tensor) -> Tensor:
        products = zip(values, (getattr(self, name) for name in self.operands), strict=True)
        total = F.linear(*next(products), self.b)
        for value, weight in products:
            total = total + F.linear(value, weight)
        return total

    def derive(self, name: str, derivation: nn.Module, raw: nn.Parameter | None = None) -> None:
        """Make tensor `name` equal to `derivation(name_raw)`, computed once per call, outside the time loop.

        A second derivation is applied to the result of the first. `raw` is the parameter to store, by default the
        present one. torch.nn.utils.parametrize does the same with a class property, which functional_call cannot
        replace; here the engines set the derived tensor as an attribute during a call.
        """
        if name not in self.derivations:
            raw = getattr(self, name) if raw is None else raw
            delattr(self, name)
            self.register_parameter(f"{name}_raw", raw)
            self._modules.setdefault("derivations", nn.ModuleDict())[name] = nn.Sequential()  # pyrefly: ignore
        self.derivations[name].append(derivation)  # pyrefly: ignore

    @property
    def derivations(self) -> Mapping[str, nn.Module]:
        """Tensor → how it is derived. Empty for most affines, which then have no submodule."""
        return self.__dict__.get("_modules", {}).get("derivations", {})

    def __getattr__(self, name: str) -> Any:
        if name in (derivations := self.derivations):
            return derivations[name](getattr(self, f"{name}_raw"))
        return super().__getattr__(name)

    def stored(self, name: str) -> nn.Parameter:
        """The stored parameter of a weight: the weight itself, or what it is derived from."""
        return getattr(self, f"{name}_raw" if name in self.derivations else name)

    def drop_bias(self) -> None:
        """Remove the bias."""
        if "b" in self.derivations:
            del self._modules["derivations"]["b"], self.b_raw  # pyrefly: ignore
        self.register_parameter("b", None)

    def recurrent(self) -> tuple[str, ...]:
        """Names of the weights that multiply something other than x."""
        return tuple(name for name, operand in self.operands.items() if operand != "x")

    def __repr__(self) -> str:
        """One line: the terms of the sum."""
        terms = [f"{weight} {operand}" for weight, operand in self.operands.items()]
        return f"Affine({' + '.join(terms if self.b is None else [*terms, 'b'])})"


def _weight_names(operands: tuple[str, ...]) -> tuple[str, ...]:
    """The attribute name of each operand's weight."""
    states = [name for name in operands if name != "x"]
    return tuple("U" if name == "x" else "W" if len(states) == 1 else f"W_{_suffix(name)}" for name in operands)


def _suffix(operand: str) -> str:
    """`h[3]` → `3`: the weight of a delayed state is named after the delay."""
    return operand.split("[")[1].rstrip("]") if "[" in operand else operand
