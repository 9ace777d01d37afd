"""Regularisers that compose with any cell: each rewrites the traced step, and the cell's equations stay as they are.

Pass them to a layer, `rc.LSTM(64, 128, modifiers=[rc.Zoneout(c=0.5, h=0.05), rc.LayerNorm()])`: every cell of the layer
gets its own copy, applied in order. Masks are drawn in training only; in evaluation their mean, 1, takes their place.
"""

import copy
from abc import ABC, abstractmethod
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from .cell import Affine, Cell, Regulariser
from .engine.operations import product_of
from .engine.trace import Step, trace
from .errors import InputError, OptionError, UnknownNameError
from .layer_arguments import probability

aten = torch.ops.aten
OUTSIDE = "outside"  # marks a node that comes after the equations, between them and what the step returns


class Modifier(nn.Module, ABC):
    """A rewrite of the traced step, with the masks and parameters it needs."""

    @abstractmethod
    def attach(self, cell: Cell, step: Step) -> None:
        """Declare masks on the cell, parameters on self."""

    @abstractmethod
    def rewrite(self, step: Step, cell: Cell) -> Step:
        """The modified step."""


def modify(cell: Cell, *modifiers: Modifier) -> Cell:
    """Apply copies of the modifiers to the cell, in order."""
    for modifier in modifiers:
        if not isinstance(modifier, Modifier):
            raise InputError("modifiers", repr(modifier), "instances of rc.Zoneout, rc.LayerNorm and their kin")
        own = copy.deepcopy(modifier)
        own.attach(cell, trace(cell))
        cell.modifiers.append(own)
    return cell


class Zoneout(Modifier):
    """Each unit keeps its previous state with some probability (Krueger et al. 2017).

    `Zoneout(0.1)` for every state, `Zoneout(h=0.05, c=0.5)` by state.
    """

    def __init__(self, rate: float = 0.0, **rates: float):
        super().__init__()
        self.rate, self.rates = probability("rate", rate), {k: probability(k, v) for k, v in rates.items()}

    def attach(self, cell: Cell, step: Step) -> None:
        for name in self.rates:
            if name not in cell.states:
                raise UnknownNameError("Zoneout", repr(name), cell.states)
        for state in cell.carried:
            if state.name not in cell.states or not self._rate(state.name):
                continue
            if state.delays and 1 not in state.delays:
                raise OptionError("Zoneout", state.name, f"a state read one step back; its delays are {state.delays}")
            cell.mask(f"zoneout_{state.name}", state.name, self._rate(state.name), each="step")

    def rewrite(self, step: Step, cell: Cell) -> Step:
        edit = Rewriter(step)
        for state in cell.carried:
            if (mask := f"zoneout_{state.name}") in cell.masks and state.name in cell.states:
                old = edit.input(f"{state.name}[1]" if state.delays else state.name)
                new, moves = edit.output(state.name), edit.mask(mask, cell)
                change = edit.call(aten.sub.Tensor, new, old)
                change.meta[OUTSIDE] = True
                share = edit.call(
                    aten.mul.Tensor, edit.call(aten.mul.Tensor, change, moves), 1.0 - cell.masks[mask].rate
                )
                edit.replace_output(new, edit.call(aten.add.Tensor, old, share))
        return edit.finish()

    def _rate(self, state: str) -> float:
        return self.rates.get(state, self.rate)


class VariationalDropout(Modifier):
    """Drop the operands of products, with one mask a sequence shared by all gates (Gal & Ghahramani 2016)."""

    def __init__(self, rate: float = 0.0, *, inputs: float | None = None, states: float | None = None):
        super().__init__()
        self.inputs = probability("inputs", rate if inputs is None else inputs)
        self.states = probability("states", rate if states is None else states)

    def attach(self, cell: Cell, step: Step) -> None:
        _check_products(self, step)
        for operand, products in step.products().items():
            rate = self.inputs if operand is step.node("x") else self.states
            if rate:
                cell.mask(_mask_name(step, operand), _weight_shape(products[0])[1], rate)

    def rewrite(self, step: Step, cell: Cell) -> Step:
        edit = Rewriter(step)
        operands = [(_mask_name(edit.step, operand), operand, group) for operand, group in edit.step.products().items()]
        for name, operand, products in operands:
            if name in cell.masks:
                mask = edit.mask(name, cell)
                with edit.graph.inserting_before(products[0]):
                    dropped = edit.graph.call_function(aten.mul.Tensor, (operand, mask))
                for product in products:
                    product.replace_input_with(operand, dropped)
        return edit.finish()


class RecurrentDropout(Modifier):
    """Drop the candidate, never the memory itself (Semeniuta, Severyn & Barth 2016)."""

    def __init__(self, rate: float):
        super().__init__()
        self.rate = probability("rate", rate)

    def attach(self, cell: Cell, step: Step) -> None:
        if cell.candidate not in step.named:
            raise OptionError(
                "RecurrentDropout", type(cell).__name__, "a cell whose class names its candidate, as LSTM does with 'g'"
            )
        width = int(step.node(cell.candidate).meta["val"].shape[-1])
        cell.mask("dropout_candidate", width, self.rate, each="step")

    def rewrite(self, step: Step, cell: Cell) -> Step:
        edit = Rewriter(step)
        candidate = edit.step.node(str(cell.candidate))
        edit.replace_uses(
            candidate, edit.call(aten.mul.Tensor, candidate, edit.mask("dropout_candidate", cell), at=candidate)
        )
        return edit.finish()


class WeightDrop(Modifier):
    """Drop entries of the recurrent matrices, the same ones for all steps of a call (Merity, Keskar & Socher 2018)."""

    def __init__(self, rate: float):
        super().__init__()
        self.rate = probability("rate", rate)

    def attach(self, cell: Cell, step: Step) -> None:
        found = [(affine, name) for affine in cell.affines() for name in affine.recurrent()]
        if not found and _multiplies_its_own(cell, step):
            raise OptionError("WeightDrop", type(cell).__name__, "a cell whose matrices are affines: self.affine('h')")
        for affine, name in found:
            affine.derive(name, _Dropped(self.rate))

    def rewrite(self, step: Step, cell: Cell) -> Step:
        return step


class _Dropped(Regulariser):
    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate

    def forward(self, weight: Tensor) -> Tensor:
        return F.dropout(weight, self.rate, self.training)


class LayerNorm(Modifier):
    """Normalise the products of every step, and the memory where it is read (Ba, Kiros & Hinton 2016).

    Gates that read the same operands are normalised together, over all their units: LN(W h) and LN(U x) of an LSTM
    each take one mean and one variance from 4 · hidden_size numbers.
    """

    def __init__(self, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.gains, self.shifts = nn.ParameterDict(), nn.ParameterDict()

    def attach(self, cell: Cell, step: Step) -> None:
        _check_products(self, step)
        products = [product for group in _groups(step) for product in group]
        sizes = {_label(step, product): _weight_shape(product)[0] for product in products}
        if cell.memory in cell.states:
            sizes["memory"] = next(state.size for state in cell.carried if state.name == cell.memory)
        if not products:
            raise OptionError("LayerNorm", type(cell).__name__, "a cell with products")
        for label, size in sizes.items():
            self.gains[label] = nn.Parameter(torch.ones(size))
            self.shifts[label] = nn.Parameter(torch.zeros(size))

    def rewrite(self, step: Step, cell: Cell) -> Step:
        edit = Rewriter(step)
        path = f"modifiers.{next(i for i, m in enumerate(cell.modifiers) if m is self)}"
        for group in _groups(edit.step):
            normal = self._normal(edit, group, [_label(edit.step, product) for product in group], path)
            for product, new in zip(group, normal, strict=True):
                edit.replace_everywhere(product, new)
        if "memory" in self.gains:
            memory = edit.proposed(str(cell.memory))
            edit.replace_uses(memory, *self._normal(edit, [memory], ["memory"], path))
        return edit.finish()

    def _normal(self, edit: "Rewriter", values: list[fx.Node], labels: list[str], path: str) -> list[fx.Node]:
        """`g ⊙ (v - mean) / √(var + ε) + β`, mean and variance taken over all values together."""
        edit.gather(values)
        count = sum(self.gains[label].numel() for label in labels)
        mean = edit.row_mean(values, count)
        apart = [edit.call(aten.sub.Tensor, value, mean) for value in values]
        var = edit.row_mean([edit.call(aten.mul.Tensor, a, a) for a in apart], count)
        scale = edit.call(aten.rsqrt.default, edit.call(aten.add.Tensor, var, self.eps))
        normal = []
        for a, label in zip(apart, labels, strict=True):
            gain = edit.weight(f"{path}.gains.{label}", self.gains[label])
            shift = edit.weight(f"{path}.shifts.{label}", self.shifts[label])
            scaled = edit.call(aten.mul.Tensor, edit.call(aten.mul.Tensor, a, scale), gain)
            normal.append(edit.call(aten.add.Tensor, scaled, shift))
        edit.cursor = None
        return normal


# ---------------------------------------------------------------------------------------------------- rewriting


class Rewriter:
    """Edits a copy of a step: new inputs, weights and nodes; moved uses. New nodes go after `cursor`, or to the end."""

    def __init__(self, step: Step):
        self.graph = fx.Graph()
        self.graph.output(self.graph.graph_copy(step.graph, {}))
        self.graph.set_codegen(fx.CodeGen())
        self.step = replace(step, graph=self.graph)
        self.cursor: fx.Node | None = None

    def finish(self) -> Step:
        self.graph.lint()
        return self.step

    def input(self, name: str) -> fx.Node:
        return self.step.node(name)

    def output(self, state: str) -> fx.Node:
        return self.step.results()[self.step.outputs.index(state)]

    def proposed(self, state: str) -> fx.Node:
        """The state as the equations compute it, where they name it: Zoneout may return another value."""
        named = dict(zip(self.step.named, self.step.results()[len(self.step.outputs) :], strict=True))
        return named.get(state, self.output(state))

    def mask(self, name: str, cell: Cell) -> fx.Node:
        """A new input, standing between the inputs and the weights."""
        position = len(self.step.inputs)
        like = self.step.node("x").meta["val"]
        node = self._placeholder(position, name, like.new_empty(2, cell.masks[name].size))
        self.step = replace(self.step, inputs=(*self.step.inputs, name))
        return node

    def weight(self, name: str, tensor: Tensor) -> fx.Node:
        node = self._placeholder(len(self.step.inputs) + len(self.step.weights), name, tensor.detach())
        self.step = replace(self.step, weights=(*self.step.weights, name))
        return node

    def _placeholder(self, position: int, name: str, stand_in: Tensor) -> fx.Node:
        with self.graph.inserting_after(self.step.placeholders()[position - 1]):
            node = self.graph.placeholder(name.replace(".", "_"))
        node.meta["val"] = stand_in
        return node

    def call(self, target: object, *arguments: object, at: fx.Node | None = None) -> fx.Node:
        """Add a node after `at`, after the cursor (which follows), or before the output."""
        place = at or self.cursor
        if place is None:
            with self.graph.inserting_before(next(n for n in self.graph.nodes if n.op == "output")):
                return self.graph.call_function(target, arguments)  # pyrefly: ignore
        with self.graph.inserting_after(place):
            node = self.graph.call_function(target, arguments)  # pyrefly: ignore
        if at is None:
            self.cursor = node
        return node

    def row_mean(self, values: list[fx.Node], count: int) -> fx.Node:
        total = self.call(aten.sum.dim_IntList, values[0], [-1], True)
        for value in values[1:]:
            total = self.call(aten.add.Tensor, total, self.call(aten.sum.dim_IntList, value, [-1], True))
        return self.call(aten.mul.Tensor, total, 1.0 / count)

    def gather(self, values: list[fx.Node]) -> None:
        """Move products of one operand to where the first of them stands, and the cursor behind them."""
        order = list(self.graph.nodes)
        self.cursor, *others = sorted(values, key=order.index)
        for node in others:
            self.cursor.append(node)
            self.cursor = node

    def replace_uses(self, old: fx.Node, new: fx.Node) -> None:
        """Every equation that computes with `old` computes with `new`; what the step returns stays."""
        for user in list(old.users):
            if user.op != "output" and OUTSIDE not in user.meta and not _feeds(user, new):
                user.replace_input_with(old, new)

    def replace_everywhere(self, old: fx.Node, new: fx.Node) -> None:
        """Whatever reads `old`, in the equations and after them, reads `new`; so does the caller."""
        for user in list(old.users):
            if user.op != "output" and not _feeds(user, new):
                user.replace_input_with(old, new)
        self.replace_output(old, new)

    def replace_output(self, old: fx.Node, new: fx.Node) -> None:
        """What the step returns as `old` it returns as `new`; what computes with `old`, and its name, stay.

        An output that lays states side by side, [h; s], shows the new ones.
        """
        returned, count = self.step.results(), len(self.step.outputs)
        beside = returned[0]
        if beside.target is aten.cat.default and old in beside.all_input_nodes:
            parts = [new if part is old else part for part in beside.args[0]]  # pyrefly: ignore
            returned[0] = self.call(aten.cat.default, parts, *beside.args[1:])
        returned[:count] = [new if value is old else value for value in returned[:count]]
        next(n for n in self.graph.nodes if n.op == "output").args = (returned,)


def _feeds(node: fx.Node, target: fx.Node) -> bool:
    """Whether `target` is computed from `node`: then its use of the old value must stay."""
    seen, stack = set(), [target]
    while stack:
        current = stack.pop()
        if current is node:
            return True
        stack += [n for n in current.all_input_nodes if n not in seen]
        seen.update(current.all_input_nodes)
    return False


def _groups(step: Step) -> list[list[fx.Node]]:
    """Products by operand and by what else their affine reads: gates called alike stand together."""
    called: dict[str, list[fx.Node]] = {}
    for operand, products in step.products().items():
        for product in products:
            called.setdefault(_affine(step, product), []).append(operand)
    groups: dict[tuple, list[fx.Node]] = {}
    for operand, products in step.products().items():
        for product in products:
            groups.setdefault((operand, tuple(called[_affine(step, product)])), []).append(product)
    return list(groups.values())


def _weight_of(step: Step, product: fx.Node) -> str:
    weight, own = product_of(product)[1], step.placeholders()[len(step.inputs) :]  # pyrefly: ignore
    if weight not in own:
        raise OptionError(
            "LayerNorm", "a product with a matrix computed in step", "weights of the cell; Affine.derive makes one"
        )
    return step.weights[own.index(weight)]


def _weight_shape(product: fx.Node) -> tuple[int, int]:
    """(numbers of the product, numbers of its operand)."""
    shape = tuple(product_of(product)[1].meta["val"].shape)  # pyrefly: ignore
    return shape if product.target is aten.linear.default else shape[::-1]


def _multiplies_its_own(cell: Cell, step: Step) -> bool:
    """Whether a product of something other than x has a matrix that is no affine's."""
    affines = {path for path, module in cell.named_modules() if isinstance(module, Affine)}
    names = dict(zip(step.placeholders()[len(step.inputs) :], step.weights, strict=True))
    products = [p for operand, group in step.products().items() if operand is not step.node("x") for p in group]
    own = [names.get(product_of(product)[1], "") for product in products]  # pyrefly: ignore
    return any(name.rpartition(".")[0] not in affines for name in own)


def _check_products(modifier: Modifier, step: Step) -> None:
    """A product that is not seen would be left as it is, and nobody would know."""
    for node in step.other_products():
        raise OptionError(
            type(modifier).__name__, f"a step with a product by {node.target}", "x @ W, F.linear(x, W) or an affine"
        )


def _affine(step: Step, product: fx.Node) -> str:
    return _weight_of(step, product).rpartition(".")[0]


def _label(step: Step, product: fx.Node) -> str:
    """A name for a product that a parameter dictionary takes: its weight's, without dots."""
    same = [p for group in step.products().values() for p in group if _weight_of(step, p) == _weight_of(step, product)]
    number = f"_{same.index(product)}" if len(same) > 1 else ""
    return _weight_of(step, product).replace(".", "_") + number


def _mask_name(step: Step, operand: fx.Node) -> str:
    """`dropout_x`, `dropout_h`, …; a computed operand is named by its place among the products' operands."""
    known = {step.node(name): name for name in (*step.named, *step.inputs)}
    name = known.get(operand) or f"operand_{list(step.products()).index(operand)}"
    return "dropout_" + name.replace("[", "_").rstrip("]")
