"""Regularisers that work with any cell: zoneout, dropout variants, layer normalisation.

Each one rewrites the traced step; the cell's equations stay as they are. Pass them to a layer:
`rc.LSTM(64, 128, modifiers=[rc.Zoneout(h=0.05, c=0.5), rc.LayerNorm()])`. Every cell of the layer gets its own copies,
applied in order. Masks are drawn in training; in evaluation their mean, 1, replaces them.
"""

import copy
from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from .affine import Affine, Regulariser
from .argument_checks import finite_number, probability
from .cell import Cell
from .engine.graph_rewriter import AFTER_EQUATIONS, GraphRewriter
from .engine.operations import product_of
from .engine.trace import Step, trace
from .errors import InputError, OptionError, UnknownNameError

aten = torch.ops.aten


class Modifier(nn.Module, ABC):
    """A rewrite of a cell's traced step, with the masks and parameters it needs. Base class of all modifiers.

    Subclasses implement `attach`, called once for each cell, and `rewrite`, which edits the graph of the step.

    **Example**

        >>> import torch, recurra as rc
        >>> from recurra.engine.graph_rewriter import GraphRewriter
        >>> class Halve(rc.Modifier):
        ...     def attach(self, cell, step):
        ...         pass
        ...     def rewrite(self, step, cell):
        ...         edit = GraphRewriter(step)
        ...         h = edit.output("h")
        ...         edit.replace_output(h, edit.call(torch.ops.aten.mul.Tensor, h, 0.5))
        ...         return edit.finish()
        >>> layer, x = rc.RNN(2, 3), torch.ones(1, 1, 2)
        >>> halved = rc.RNN(2, 3, modifiers=Halve())
        >>> _ = halved.load_state_dict(layer.state_dict())
        >>> torch.allclose(halved(x)[0], 0.5 * layer(x)[0])
        True
    """

    @abstractmethod
    def attach(self, cell: Cell, step: Step) -> None:
        """Declare the masks on the cell and the parameters on self. `step` is the cell's step so far."""

    @abstractmethod
    def rewrite(self, step: Step, cell: Cell) -> Step:
        """The modified step."""


def modify(cell: Cell, *modifiers: Modifier) -> Cell:
    """Apply copies of the modifiers to the cell, in order."""
    for modifier in modifiers:
        if not isinstance(modifier, Modifier):
            raise InputError("modifiers", repr(modifier), "modifiers, such as rc.Zoneout(0.1) or rc.LayerNorm()")
        own = copy.deepcopy(modifier)
        own.attach(cell, trace(cell))
        cell.modifiers.append(own)
    return cell


class Zoneout(Modifier):
    """Zoneout: at each step, each unit keeps its previous state with some probability (Krueger et al. 2017).

    In evaluation the state is the expected one: `rate · old + (1 - rate) · new`.

    **Arguments**

    - `rate`: the probability for every state.
    - `**rates`: the probability by state, which overrides `rate`: `Zoneout(h=0.05, c=0.5)`.

    **Example**

        >>> import torch, recurra as rc
        >>> layer = rc.LSTM(64, 128, modifiers=rc.Zoneout(h=0.05, c=0.5))
        >>> y, (h, c) = layer(torch.randn(10, 8, 64))
        >>> y.shape
        torch.Size([10, 8, 128])
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
        edit = GraphRewriter(step)
        for state in cell.carried:
            if (mask := f"zoneout_{state.name}") in cell.masks and state.name in cell.states:
                old = edit.input(f"{state.name}[1]" if state.delays else state.name)
                new, moves = edit.output(state.name), edit.add_mask(mask, cell)
                change = edit.call(aten.sub.Tensor, new, old)
                change.meta[AFTER_EQUATIONS] = True
                moved = edit.call(aten.mul.Tensor, change, moves)
                share = edit.call(aten.mul.Tensor, moved, 1.0 - self._rate(state.name))
                edit.replace_output(new, edit.call(aten.add.Tensor, old, share))
        return edit.finish()

    def _rate(self, state: str) -> float:
        return self.rates.get(state, self.rate)


class VariationalDropout(Modifier):
    """Variational dropout: drops operands of matrix products, with one mask per sequence (Gal & Ghahramani 2016).

    All gates that read an operand share its mask.

    **Arguments**

    - `rate`: the probability for `x` and for every other operand (states, `r ⊙ h`, …).
    - `inputs`, `states`: the probability for `x` and for the others, instead of `rate`.

    A step that multiplies by other means than an affine, `F.linear` or `x @ W` raises an `OptionError`.

    **Example**

        >>> import torch, recurra as rc
        >>> layer = rc.GRU(64, 128, modifiers=rc.VariationalDropout(inputs=0.2, states=0.3))
        >>> y, h = layer(torch.randn(10, 8, 64))
        >>> sorted(layer.cells[0].masks)
        ['dropout_h', 'dropout_operand_2', 'dropout_x']
    """

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
        edit = GraphRewriter(step)
        operands = [(_mask_name(edit.step, operand), operand, group) for operand, group in edit.step.products().items()]
        for name, operand, products in operands:
            if name in cell.masks:
                mask = edit.add_mask(name, cell)
                with edit.graph.inserting_before(products[0]):
                    dropped = edit.graph.call_function(aten.mul.Tensor, (operand, mask))
                for product in products:
                    product.replace_input_with(operand, dropped)
        return edit.finish()


class RecurrentDropout(Modifier):
    """Recurrent dropout: drops the candidate, never the memory itself (Semeniuta, Severyn & Barth 2016).

    A mask is drawn at every step. The cell's class names its candidate (`candidate = "g"` in the LSTM); one that names
    none raises an `OptionError`.

    **Arguments**

    - `rate`: the probability of dropping a unit.

    **Example**

        >>> import torch, recurra as rc
        >>> layer = rc.LSTM(64, 128, modifiers=rc.RecurrentDropout(0.25))
        >>> y, (h, c) = layer(torch.randn(10, 8, 64))
        >>> layer.cells[0].masks
        {'dropout_candidate': Mask(size=128, rate=0.25, each='step')}
    """

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
        edit = GraphRewriter(step)
        candidate = edit.step.node(str(cell.candidate))
        edit.replace_uses(
            candidate, edit.call(aten.mul.Tensor, candidate, edit.add_mask("dropout_candidate", cell), at=candidate)
        )
        return edit.finish()


class WeightDrop(Modifier):
    """DropConnect on the recurrent matrices, with one mask per call (AWD-LSTM; Merity, Keskar & Socher 2018).

    **Arguments**

    - `rate`: the probability of dropping an entry of a matrix.

    The parameter is stored as `W_raw`; `W` is derived from it at each call.

    **Example**

        >>> import recurra as rc
        >>> layer = rc.RNN(3, 4, modifiers=rc.WeightDrop(0.5))
        >>> [name for name, _ in layer.cells[0].named_parameters()]
        ['a.U', 'a.b', 'a.W_raw']
    """

    def __init__(self, rate: float):
        super().__init__()
        self.rate = probability("rate", rate)

    def attach(self, cell: Cell, step: Step) -> None:
        found = [(affine, name) for affine in cell.affines() for name in affine.recurrent()]
        if not found and _has_other_matrices(cell, step):
            raise OptionError("WeightDrop", type(cell).__name__, "a cell whose matrices are affines: self.affine('h')")
        for affine, name in found:
            affine.derive(name, _DropEntries(self.rate))

    def rewrite(self, step: Step, cell: Cell) -> Step:
        return step


class _DropEntries(Regulariser):
    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate

    def forward(self, weight: Tensor) -> Tensor:
        return F.dropout(weight, self.rate, self.training)


class LayerNorm(Modifier):
    """Layer normalisation of the products of every step, and of the memory where it is read (Ba, Kiros & Hinton 2016).

    Gates that read the same operands are normalised together, over all their units: LN(W h) and LN(U x) of an LSTM
    each take one mean and one variance over 4 · hidden_size numbers. Every product has its own gain and shift.

    **Arguments**

    - `eps`: added to the variance.

    **Example**

        >>> import torch, recurra as rc
        >>> layer = rc.LSTM(64, 128, modifiers=rc.LayerNorm())
        >>> y, (h, c) = layer(torch.randn(10, 8, 64))
        >>> layer.cells[0].modifiers[0].gains["memory"].shape
        torch.Size([128])
    """

    def __init__(self, eps: float = 1e-5):
        super().__init__()
        self.eps = finite_number("eps", eps, 0.0)
        self.gains, self.shifts = nn.ParameterDict(), nn.ParameterDict()

    def attach(self, cell: Cell, step: Step) -> None:
        _check_products(self, step)
        products = [product for group in _product_groups(step) for product in group]
        sizes = {_label(step, product): _weight_shape(product)[0] for product in products}
        if cell.memory in cell.states:
            sizes["memory"] = next(state.size for state in cell.carried if state.name == cell.memory)
        if not products:
            raise OptionError("LayerNorm", type(cell).__name__, "a cell with products")
        for label, size in sizes.items():
            self.gains[label] = nn.Parameter(torch.ones(size))
            self.shifts[label] = nn.Parameter(torch.zeros(size))

    def rewrite(self, step: Step, cell: Cell) -> Step:
        edit = GraphRewriter(step)
        path = f"modifiers.{next(i for i, m in enumerate(cell.modifiers) if m is self)}"
        for group in _product_groups(edit.step):
            normalised = self._normalise(edit, group, [_label(edit.step, product) for product in group], path)
            for product, new in zip(group, normalised, strict=True):
                edit.replace_everywhere(product, new)
        if "memory" in self.gains:
            memory = edit.computed_state(str(cell.memory))
            edit.replace_uses(memory, *self._normalise(edit, [memory], ["memory"], path))
        return edit.finish()

    def _normalise(self, edit: GraphRewriter, values: list[fx.Node], labels: list[str], path: str) -> list[fx.Node]:
        """`g ⊙ (v - mean) / √(var + ε) + β`, mean and variance taken over all values together."""
        edit.move_together(values)
        count = sum(self.gains[label].numel() for label in labels)
        mean = edit.row_mean(values, count)
        centred = [edit.call(aten.sub.Tensor, value, mean) for value in values]
        var = edit.row_mean([edit.call(aten.mul.Tensor, c, c) for c in centred], count)
        scale = edit.call(aten.rsqrt.default, edit.call(aten.add.Tensor, var, self.eps))
        normalised = []
        for c, label in zip(centred, labels, strict=True):
            gain = edit.add_weight(f"{path}.gains.{label}", self.gains[label])
            shift = edit.add_weight(f"{path}.shifts.{label}", self.shifts[label])
            scaled = edit.call(aten.mul.Tensor, edit.call(aten.mul.Tensor, c, scale), gain)
            normalised.append(edit.call(aten.add.Tensor, scaled, shift))
        edit.cursor = None
        return normalised


# ---------------------------------------------------------------------------------------------------- products


def _product_groups(step: Step) -> list[list[fx.Node]]:
    """Products by operand, and by what else their affine reads: gates with the same operands form a group."""
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
            "LayerNorm", "a product with a matrix computed in step", "weights of the cell (see Affine.derive)"
        )
    return step.weights[own.index(weight)]


def _weight_shape(product: fx.Node) -> tuple[int, int]:
    """(features of the product, features of its operand)."""
    shape = tuple(product_of(product)[1].meta["val"].shape)  # pyrefly: ignore
    return shape if product.target is aten.linear.default else shape[::-1]


def _has_other_matrices(cell: Cell, step: Step) -> bool:
    """Whether the step multiplies something other than x by a matrix that belongs to no affine."""
    affines = {path for path, module in cell.named_modules() if isinstance(module, Affine)}
    names = dict(zip(step.placeholders()[len(step.inputs) :], step.weights, strict=True))
    products = [p for operand, group in step.products().items() if operand is not step.node("x") for p in group]
    own = [names.get(product_of(product)[1], "") for product in products]  # pyrefly: ignore
    return any(name.rpartition(".")[0] not in affines for name in own)


def _check_products(modifier: Modifier, step: Step) -> None:
    """Refuse a step with products that the rewrite would silently leave as they are."""
    for node in step.other_products():
        raise OptionError(
            type(modifier).__name__, f"a step with a product by {node.target}", "x @ W, F.linear(x, W) or an affine"
        )


def _affine(step: Step, product: fx.Node) -> str:
    return _weight_of(step, product).rpartition(".")[0]


def _label(step: Step, product: fx.Node) -> str:
    """A key for a ParameterDict: the name of the product's weight, without dots."""
    same = [p for group in step.products().values() for p in group if _weight_of(step, p) == _weight_of(step, product)]
    number = f"_{same.index(product)}" if len(same) > 1 else ""
    return _weight_of(step, product).replace(".", "_") + number


def _mask_name(step: Step, operand: fx.Node) -> str:
    """`dropout_x`, `dropout_h`, …; a computed operand is numbered among the operands of products."""
    known = {step.node(name): name for name in (*step.named, *step.inputs)}
    name = known.get(operand) or f"operand_{list(step.products()).index(operand)}"
    return "dropout_" + name.replace("[", "_").rstrip("]")
