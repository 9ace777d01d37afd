"""Prints a traced step as LaTeX equations.

Named values keep their names; other values are printed inline. The terms of a sum are ordered: recurrent products,
input products, others, biases.
"""

import inspect
import operator
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from ..affine import Affine, Regulariser
from ..cell import TIME, Cell
from ..draws import Noise
from .custom_vjp import custom_vjp_of
from .operations import ATOM, MEANING, PRODUCT, SUM, product_of
from .trace import Step, trace_equations

aten = torch.ops.aten

_GREEK = frozenset(
    """alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi rho sigma tau phi chi psi omega
    Gamma Delta Theta Lambda Sigma Phi Psi Omega""".split()  # noqa: SIM905
)
LONG = 50  # characters; a longer expression that is used twice gets a symbol
_ADDITIONS = (aten.add.Tensor, aten.add.Scalar)
_SUBTRACTIONS = (aten.sub.Tensor, aten.sub.Scalar)
_MULTIPLICATIONS = (aten.mul.Tensor, aten.mul.Scalar)


def equations(cell: Cell) -> str:
    """One `aligned` block: derived weights, noise, then every named value, state and output of the cell's own step."""
    lines = [*derived_weights(cell), *_noise(cell), *StepPrinter(cell, trace_equations(cell)).lines()]
    return "\\begin{aligned}\n" + " \\\\\n".join(f"{left} &= {right}" for left, right in lines) + "\n\\end{aligned}"


def _noise(cell: Cell) -> list[tuple[str, str]]:
    """The distribution of each noise: its mean and variance, or its bounds."""
    declared = [(name, drawn) for name, drawn in cell.masks.items() if isinstance(drawn, Noise)]
    return [(symbol(name, "t"), rf"\mathrm{{{drawn.distribution}}}\left(0, 1\right)") for name, drawn in declared]


class StepPrinter:
    """Prints a traced step, equation by equation."""

    def __init__(self, cell: Cell, step: Step):
        self.cell, self.step = cell, step
        self.symbols = {step.node(name): self._input(name) for name in step.inputs}
        self.symbols |= {step.node(name): weight_symbol(cell, name) for name in step.weights}

    def lines(self) -> list[tuple[str, str]]:
        """`(left, right)` in the order the step computes them."""
        order = {node: i for i, node in enumerate(self.step.graph.nodes)}
        wanted: list[tuple[fx.Node, str]] = []
        results = [_without_views(node) for node in self.step.results()]
        for name, node in zip(self.step.outputs[1:], results[1:], strict=False):
            wanted.append((node, symbol(name, "t")))
        taken = {left for _, left in wanted}
        finals = {node for node, _ in wanted}
        for name, node in zip(self.step.named, results[len(self.step.outputs) :], strict=True):
            left = symbol(name, "t")
            if node not in finals and node.op == "call_function":
                wanted.append((node, left if left not in taken else symbol(name + "'", "t")))
        if results[0] not in finals:
            wanted = [pair for pair in wanted if pair[0] is not results[0]] + [(results[0], "y_{t}")]
        wanted += self._shared({node for node, _ in wanted}, {left[0] for _, left in wanted})
        lines, printed = [], set()
        for node, left in sorted(dict.fromkeys(wanted), key=lambda pair: order[pair[0]]):
            known = node in printed or node.op != "call_function"  # two states of one value, or a state that is x
            lines.append((left, self.symbols[node] if known else Expressions(self.symbols).print(node, top=True)[0]))
            printed.add(node)
            if not known:
                self.symbols[node] = left
        return lines

    def _shared(self, named: set[fx.Node], letters: set[str]) -> list[tuple[fx.Node, str]]:
        """Symbols for long expressions without a name that are used more than once, as a loop in a step makes them."""
        letter = next(letter for letter in "qpvwz" + "klmn" if letter not in letters)
        found: list[tuple[fx.Node, str]] = []
        symbols = self.symbols | dict.fromkeys(named, "s_{t}")
        for node in self.step.graph.nodes:
            if node in symbols or node.op != "call_function" or len(node.users) < 2 or node.target is operator.getitem:
                continue
            if len(Expressions(symbols).print(node)[0]) > LONG:
                found.append((node, f"{letter}_{{{len(found) + 1},t}}"))
                symbols[node] = found[-1][1]
        return found

    # ------------------------------------------------------------------------------------------ names

    def _input(self, name: str) -> str:
        if name in ("x", TIME):
            return "x_{t}" if name == "x" else "t"
        base, _, delay = name.partition("[")
        if base in self.cell.states:
            return symbol(base, f"t-{delay.rstrip(']') or 1}")
        return symbol(name, "t" if self.cell.drawn_inputs()[name].each == "step" else "")


def weight_symbol(cell: Cell, name: str) -> str:
    """`i.W` → W_i. The only affine of a cell has no subscript; an affine of one matrix prints as its own name."""
    path, _, leaf = name.rpartition(".")
    affines = [module for module in cell.children() if isinstance(module, Affine)]
    owner = cell.get_submodule(path)
    if not path or (len(affines) == 1 and owner in affines):
        return symbol(leaf)
    gate = path.rpartition(".")[2]
    if isinstance(owner, Affine) and len(owner.operands) == 1 and owner.b is None and gate.isupper():
        return symbol(gate)
    base, _, of = leaf.partition("_")
    return symbol(f"{base}_{gate}_{of}" if of else f"{base}_{gate}")


def derived_weights(cell: Cell) -> list[tuple[str, str]]:
    """One equation for each derived weight, such as `W = exp(S - Sᵀ)`."""
    lines = []
    for path, affine in cell.named_modules():
        for name, chain in affine.derivations.items() if isinstance(affine, Affine) else ():
            if any(isinstance(derivation, Regulariser) for derivation in chain.children()):
                continue
            traced = make_fx(chain)(getattr(affine, f"{name}_raw").detach())
            constants = {id(buffer): key.rpartition(".")[2] for key, buffer in chain.named_buffers()}
            symbols = {}
            for node in traced.graph.nodes:
                if node.op == "placeholder":
                    symbols[node] = symbol(next(iter(inspect.signature(next(chain.children()).forward).parameters)))
                elif node.op == "get_attr":
                    symbols[node] = symbol(constants.get(id(getattr(traced, node.target)), "C"))
            result = next(n for n in traced.graph.nodes if n.op == "output").args[0]
            text, binds = Expressions(symbols).print(result)
            if (
                binds < ATOM or text not in symbols.values()
            ):  # rows repeated for the cells of a block print as themselves
                lines.append((weight_symbol(cell, f"{path}.{name}"), text))
    return lines


class Expressions:
    """Prints one value as an expression of the nodes that have symbols."""

    def __init__(self, symbols: dict[fx.Node, str]):
        self.symbols = symbols

    def print(self, node: object, top: bool = False) -> tuple[str, int]:
        """`(text, binding strength)`."""
        if not isinstance(node, fx.Node):
            return _number(node)
        if node in self.symbols and not top:
            return self.symbols[node], ATOM
        if node.op == "placeholder":
            return self.symbols[node], ATOM
        if node.target is operator.getitem:
            return self._part(node)
        if node.target in _ADDITIONS:
            return self._sum(node), SUM
        if node.target in _MULTIPLICATIONS and not all(isinstance(a, fx.Node) for a in node.args):
            return self._scaled(node)
        if node.target is aten.clamp.default:
            low, high = (*node.args[1:], None, None)[:2]
            bounds = ["-\\infty" if low is None else _number(low)[0], "\\infty" if high is None else _number(high)[0]]
            return rf"\mathrm{{clip}}\left({', '.join([self.print(node.args[0])[0], *bounds])}\right)", ATOM
        if node.target is aten.slice.Tensor and (part := _columns(node)):
            return rf"\left[{self.print(node.args[0])[0]}\right]_{{{part}}}", ATOM
        if node.target is aten._fft_c2c.default:
            inverse = "" if node.args[3] else "^{-1}"
            return rf"\mathcal{{F}}{inverse}\,{self._operand(node.args[0], ATOM)}", PRODUCT
        if node.target is aten.linear.default and product_of(node) is None:  # W xᵀ: a column for each sequence
            left, right = (self._operand(argument, ATOM) for argument in node.args)
            return rf"{left}\,{right}^\top", PRODUCT
        if (custom := custom_vjp_of(node)) is not None:
            inner = ", ".join(self.print(a)[0] for a in node.args[custom.outputs : custom.outputs + custom.inputs])
            return rf"{_word(custom.name)}\left({inner}\right)", ATOM
        row = MEANING.get(self._plain_target(node))
        if row is None:
            name = str(getattr(node.target, "__name__", node.target)).split(".")[0]
            inner = ", ".join(self.print(a)[0] for a in node.args if isinstance(a, fx.Node))
            return rf"{_word(name.replace('_', ' '))}\left({inner}\right)", ATOM
        if row.latex == "{0}" and isinstance(node.args[0], fx.Node):  # a view
            return self.print(node.args[0])
        if node.target is aten.mul.Tensor and _is_outer_product(node):
            return r" \otimes ".join(self._operand(argument, ATOM) for argument in node.args), PRODUCT
        operands = [
            self._operand(argument, SUM if place == 0 and node.target in _SUBTRACTIONS else row.inside)
            for place, argument in enumerate(node.args)
        ]
        return row.latex.format(*operands), row.binds

    def _plain_target(self, node: fx.Node) -> object:
        """The target, with a permutation of two axes as a transpose, and of more axes as a view."""
        if node.target is not aten.permute.default:
            return node.target
        order: Any = node.args[1]
        return aten.t.default if [axis % len(order) for axis in order] == [1, 0] else aten.view.default

    def _scaled(self, node: fx.Node) -> tuple[str, int]:
        """A product with a number, which is printed first; a factor of one is left out."""
        value, number = sorted(node.args, key=lambda argument: not isinstance(argument, fx.Node))
        if number == 1:
            return self.print(value)
        return rf"{_number(number)[0]}\,{self._operand(value, PRODUCT)}", PRODUCT

    def _operand(self, argument: object, inside: int) -> str:
        if isinstance(argument, (list, tuple)):
            return "; ".join(self.print(item)[0] for item in argument)
        text, binds = self.print(argument)
        return rf"\left({text}\right)" if binds < inside else text

    def _sum(self, node: fx.Node) -> str:
        terms = sorted(self._terms(node), key=self._place)
        text = ""
        for term in terms:
            part, _ = self.print(term)
            text += part if not text else f" {part}" if part.startswith("-") else f" + {part}"
        return text

    def _terms(self, node: object) -> list[object]:
        """Flatten nested unnamed additions."""
        if isinstance(node, fx.Node) and node.target in _ADDITIONS and node.kwargs.get("alpha", 1) == 1:
            parts: list[object] = []
            for argument in node.args[:2]:
                parts += [argument] if argument in self.symbols else self._terms(argument)
            return parts
        return [node]

    def _place(self, term: object) -> int:
        """The rank of a term in a sum: recurrent products, input products, others, biases, numbers."""
        if not isinstance(term, fx.Node):
            return 4
        if (product := product_of(term)) is not None:
            return 1 if self.symbols.get(product[0]) == symbol("x", "t") else 0
        return 3 if term.op == "placeholder" and term.meta["val"].dim() == 1 else 2

    def _part(self, node: fx.Node) -> tuple[str, int]:
        """One of several results: a chunk of a split with its index; any other as the whole."""
        source, index = node.args
        if source.target is aten.unbind.int:  # pyrefly: ignore
            return rf"\left[{self.print(source.args[0])[0]}\right]_{{{index + 1}}}", ATOM  # pyrefly: ignore
        if source.target is aten.split.Tensor:  # pyrefly: ignore
            return rf"\left[{self.print(source)[0]}\right]_{{{index + 1}}}", ATOM  # pyrefly: ignore
        return self.print(source)


def symbol(name: str, time: str = "") -> str:
    """A Python name as a symbol with its time index: `tau` → τ; `c_new`, t → c with subscript "new, t"."""
    base, *below = name.split("_")
    marks = [_word(part) for part in below if part] + ([time] if time else [])
    return _word(base) + (f"_{{{','.join(marks)}}}" if marks else "")


def _word(text: str) -> str:
    letters = text.rstrip("'")
    primes = text[len(letters) :]
    if letters in _GREEK:
        return f"\\{letters}{primes}"
    return text if len(letters) < 2 or letters.isdigit() else rf"\mathrm{{{letters}}}{primes}"


def _number(value: object) -> tuple[str, int]:
    if isinstance(value, float):
        digits, _, power = f"{value:g}".partition("e")
        if power:
            digits = ("" if digits == "1" else rf"{digits} \cdot ") + f"10^{{{int(power)}}}"
        return digits, ATOM if value >= 0 else SUM
    return str(value), ATOM


def _without_views(node: fx.Node) -> fx.Node:
    """The value that a chain of reshapes shows in another shape: a matrix that is carried as a row."""
    while node.target in (aten.view.default, aten._unsafe_view.default):
        node = node.args[0]  # pyrefly: ignore
    return node


def _is_outer_product(node: fx.Node) -> bool:
    """Whether a product pairs every entry of one operand's last axis with every entry of the other's."""
    shapes = [a.meta["val"].shape if isinstance(a, fx.Node) else () for a in node.args]
    return all(len(s) > 2 for s in shapes) and {tuple(n == 1 for n in s[-2:]) for s in shapes} == {
        (False, True),
        (True, False),
    }


def _columns(node: fx.Node) -> str:
    """The range that a slice takes of the last axis, counted from 1; "" for all of it."""
    value: Any = node.args[0]
    dim, start, end = (*node.args[1:4], 0, 0, None)[:3] if len(node.args) > 1 else (0, 0, None)
    shape = value.meta["val"].shape
    if int(dim) % len(shape) != len(shape) - 1 or not isinstance(shape[-1], int):  # pyrefly: ignore
        return ""
    first, last, _ = slice(start, end).indices(shape[-1])
    if (first, last) == (0, shape[-1]):
        return ""
    return str(last) if last == first + 1 else f"{first + 1}:{last}"
