"""Traces one step of a cell into a torch.fx graph.

`trace(cell)` runs `step` on stand-in tensors and records its operations, those of operations.py. The inputs of the
graph are what the step reads (x, states, masks, weights); its results are what the step returns, followed by every
local variable of the step. Derivatives are taken later, by plan/autodiff.py; where the step says what is not to be
differentiated, or how, the graph says so, too.

The step is traced at two batch sizes. Where the graphs differ by the batch size itself, the merged graph reads it from
x. Any other difference is an error: the step branched on a shape, and a graph would be right for one batch size only.
A step that does what a graph cannot hold raises `Untraceable`, which names the line.
"""

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch.autograd.graph import saved_tensors_hooks

from ..cell import TIME, Cell
from ..cells.surrogates import checked_spike
from ..draws import StepDropout
from ..errors import TraceError
from .batch_sizes import compare_operations, merge_batch_sizes, pattern_of
from .cell_cache import cache_of
from .cell_copies import copy_with
from .custom_vjp import custom_vjp_of
from .dropouts import DropoutCall
from .operations import DECOMPOSITIONS, is_other_product, product_of
from .record import Recorder
from .step_watch import StepWatch
from .user_code import Untraceable, raised_at

aten = torch.ops.aten


class _OutputName(str):
    """A name that equals no other, not even one with the same letters."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __reduce__(self) -> str:
        return "OUTPUT"  # copies are the same object


PATTERN = "operations"  # key among what is remembered of a traced cell: what its graph is for every batch size
OUTPUT = _OutputName("output:")  # beside the names of states, which may be any text


@dataclass(frozen=True, eq=False)
class Step:
    """A traced step. Placeholders of `graph`: `inputs`, then `weights`; its results: `outputs`, then `named`."""

    graph: fx.Graph
    inputs: tuple[str, ...]  # "x", "h", "h[3]" for a delayed state, "t", masks
    weights: tuple[str, ...]  # dotted names, as in Cell.weights()
    outputs: tuple[str, ...]  # OUTPUT, then the states in order
    named: tuple[str, ...]  # local variables of `step`, in the order of assignment
    dropouts: Mapping[str, StepDropout] = field(default_factory=dict)  # those inputs that are masks of dropout calls

    def node(self, name: str) -> fx.Node:
        """The node of an input, weight or named value."""
        names = (*self.inputs, *self.weights)
        if name in names:
            return self.placeholders()[names.index(name)]
        return self.results()[len(self.outputs) + self.named.index(name)]

    def placeholders(self) -> list[fx.Node]:
        """The nodes of the inputs, then of the weights."""
        return [node for node in self.graph.nodes if node.op == "placeholder"]

    def results(self) -> list[fx.Node]:
        """The nodes of the outputs, then of the named values."""
        return list(next(n for n in self.graph.nodes if n.op == "output").args[0])

    def products(self) -> dict[fx.Node, list[fx.Node]]:
        """Operand → the products `W v` that read it. They merge into one matrix product."""
        groups: dict[fx.Node, list[fx.Node]] = {}
        for node in self.graph.nodes:
            if (product := product_of(node)) is not None:
                groups.setdefault(product[0], []).append(node)
        return groups

    def other_products(self) -> list[fx.Node]:
        """Products with weights that `products` does not recognise, such as a batched product."""
        return [node for node in self.graph.nodes if is_other_product(node)]

    def operations(self) -> set[str]:
        """The names of the torch operations in the graph."""
        return {str(n.target) for n in self.graph.nodes if n.op == "call_function" and n.target is not operator.getitem}

    def function(self) -> Callable[..., tuple[Tensor, ...]]:
        """The graph as a Python function of its placeholders. It keeps none of the stand-in tensors alive."""
        graph = fx.Graph()
        graph.output(graph.graph_copy(self.graph, {}))
        for node in graph.nodes:
            node.meta = {}
            if node.target is torch.ops.recurra.spike.default:
                node.target = checked_spike
            elif node.target is aten.sym_size.int:
                node.target = Tensor.size  # vmap does not take the operation
        return fx.GraphModule(torch.nn.Module(), graph).forward


def trace(cell: Cell) -> Step:
    """The graph of one step of this cell, with its modifiers applied."""
    traced = cache_of(cell).traced
    if "step" not in traced:
        step = trace_equations(cell)
        for modifier in cell.modifiers:
            step = modifier.rewrite(step, cell)  # pyrefly: ignore
        traced["step"] = step
    return traced["step"]


def trace_equations(cell: Cell) -> Step:
    """The graph of the cell's own equations, without modifiers."""
    try:
        if any(isinstance(part, torch.jit.ScriptModule) for part in cell.modules()):
            raise Untraceable("has a part that torch.jit compiled")
        (step, two), (other, three) = trace_at(cell, 2), trace_at(cell, 3)
        for line in sorted(two.compared & three.compared):  # in one of them, another size may happen to be 2 or 3
            raise Untraceable(f"branches on the batch size: it may differ for 2 sequences and for more ({line})")
        merge_batch_sizes(step.graph, other.graph)
        cell.found_dropouts = step.dropouts
        cache_of(cell).traced[PATTERN] = pattern_of(step.graph)
        if two.plain_size or three.plain_size:
            for batch in (5, 64):
                compare_operations(step.graph, trace_at(cell, batch)[0].graph, batch, two.plain_size)
    except Untraceable as error:
        name = f"{type(cell).__name__}.step"
        message = str(error).removeprefix("step ")
        raise Untraceable(message if message.startswith(name) else f"{name} {message}", error.effects) from error
    return step


def _input_names(state: Any) -> tuple[str, ...]:
    """The inputs a state becomes: `h`, or `h[1]`, `h[3]` with delays."""
    return tuple(f"{state.name}[{k}]" for k in state.delays) if state.delays else (state.name,)


# ---------------------------------------------------------------------------------------------------- tracing


def trace_at(cell: Cell, batch: int) -> tuple[Step, StepWatch]:
    """Trace `step` at one batch size, on zeros. A branch on the value of a tensor is an error."""
    twin = copy_with(cell, {id(w): _stand_in(w.shape, w) for w in (*cell.parameters(), *cell.buffers())})
    weights = _once(_stand_ins(cell, twin))
    like = next((w for w in weights.values() if w.is_floating_point()), torch.empty(0))
    shapes = {"x": (batch, cell.input_size)}
    for state in cell.carried:
        shapes |= dict.fromkeys(_input_names(state), (batch, state.size))
    extras = [name for name in cell.keyword_inputs() if name != TIME]
    shapes |= {name: (batch, cell.masks[name].size) for name in extras}
    given = {n: _stand_in(shape, like, n not in (TIME, *extras)) for n, shape in shapes.items()}
    recorder = Recorder([*given.values(), *weights.values()])
    dropouts: dict[str, StepDropout] = {}

    def draw(call: DropoutCall) -> Tensor | None:
        drawn = call.drawn(batch) if cache_of(cell).guards.may_drop else None
        if drawn is None:
            return None
        name = _unused_name("dropout", {*given, *cell.masks})
        dropouts[name], given[name] = drawn, _stand_in((batch, drawn.size), like, False)
        recorder.add_input(given[name], len(given) - 1)
        return given[name]

    with bind_weights(twin, weights):
        watch = StepWatch(twin, recorder, batch)
        watch.draw = draw

        def one_step() -> list[Tensor]:
            args, kwargs = arguments_of(twin, given)
            with watch:
                returned = twin.step(*args, **kwargs)
            return [*output_and_states(twin, returned), *watch.names.values()]

        try:
            with torch.inference_mode(False), torch.enable_grad(), _hide_saved_tensors():
                graph = recorder.record(one_step)
        except Exception as error:
            if "is not differentiable with respect to" in str(error):  # a buffer, such as a running mean
                raise Untraceable(f"calls a torch function that takes no gradient: {error}") from error
            if isinstance(error, TraceError):
                raise
            if recorder.failure is not None:
                raise recorder.failure from error  # what the step did with the first error
            what = f"{type(error).__name__} for {batch} sequences of zeros: {_first_line(error)}"
            raise Untraceable(f"raises {what} ({raised_at(error)})") from error
    _simplify(graph)
    outputs = (OUTPUT, *(state.name for state in cell.carried if state.name != TIME))
    read = _prune(graph, len(given), tuple(weights))
    return Step(graph, tuple(given), read, outputs, tuple(watch.names), dropouts), watch


def _stand_ins(cell: Cell, twin: Cell) -> Iterator[tuple[str, Tensor]]:
    """What the step of `twin` reads under the names of the weights: tensors of its own, zeros for derived weights."""
    own = dict(twin.named_parameters(remove_duplicate=False)) | dict(twin.named_buffers(remove_duplicate=False))
    for name, weight in cell.weights().items():
        yield name, own[name] if name in own else _stand_in(weight.shape, weight)


def _once(weights: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """The weights by name; one that has several names by its first."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, weight in weights:
        found.setdefault(id(weight), (name, weight))
    return dict(found.values())


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "").strip()[:200]


def _unused_name(stem: str, used: set[str]) -> str:
    return next(name for number in itertools.count(1) if (name := f"{stem}_{number}") not in used)


def _hide_saved_tensors() -> AbstractContextManager:
    """Active hooks do not see what is saved here: activation checkpoints count what the caller saves."""
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is None:
        return nullcontext()
    return saved_tensors_hooks(Tensor.detach, lambda saved: saved)  # an output that saves itself would never be freed


def _stand_in(shape: Sequence[int], like: Tensor, differentiable: bool = True) -> Tensor:
    """Zeros, as a result of an operation: leaves of autograd refuse operations in place."""
    grows = differentiable and (like.is_floating_point() or like.is_complex())
    with torch.inference_mode(False), torch.enable_grad():
        return torch.zeros(shape, dtype=like.dtype, device=like.device, requires_grad=grows).clone()


def arguments_of(cell: Cell, given: dict[str, Tensor]) -> tuple[list[Any], dict[str, Tensor]]:
    """The arguments of the cell's `step`: x and the states, and those filled by name."""
    values: list[Any] = [given["x"]]
    for state in cell.carried:
        if state.name != TIME:
            views = tuple(state.with_axes(given[view]) for view in _input_names(state))
            values.append(views if state.delays else views[0])
    return values, {name: given[name] for name in cell.keyword_inputs()}


def output_and_states(cell: Cell, returned: Any) -> list[Tensor]:
    """What `step` returned as `[output, *new states]`, its shapes checked."""
    values = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    count = len(cell.states)
    if len(values) not in (count, count + 1) or not all(isinstance(value, Tensor) for value in values):
        raise TraceError(
            f"{type(cell).__name__}.step returned {len(values)} values, expected the {count} new states "
            f"{cell.states}, or the output and then those"
        )
    states = [state for state in cell.carried if state.name != TIME]
    if len(values) == count:  # the first state is the output
        values = [states[0].as_row(values[0]), *values]
    shapes = [(state.name, state.axes or (state.size,)) for state in states] + [(OUTPUT, (cell.output_size,))]
    for (name, shape), value in zip(shapes, (*values[1:], values[0]), strict=True):
        if tuple(value.shape[1:]) != shape and (shape, value.dim()) != ((1,), 1):
            _refuse_shape(cell, name, value, shape)
    return [values[0], *(state.as_row(value) for state, value in zip(states, values[1:], strict=True))]


def _refuse_shape(cell: Cell, name: str, value: Tensor, expected: tuple[int, ...]) -> None:
    got, wanted = (", ".join(["B", *map(str, shape)]) for shape in (value.shape[1:], expected))
    what, hint = (name, "") if name is not OUTPUT else ("output", "; to put that out, initialise it with ")
    if hint:
        hint += f"output_size={math.prod(value.shape[1:])}{' and flatten it' if value.dim() > 2 else ''}"
    raise TraceError(f"{type(cell).__name__}.step returned {what} as ({got}), expected ({wanted}){hint}")


class bind_weights:
    """Context manager: the cell reads these tensors, by dotted name, instead of its own parameters.

    An instance attribute hides a registered parameter of the same name, so the module's own state stays untouched.
    """

    def __init__(self, cell: Cell, weights: dict[str, Tensor]):
        self.slots = [(cell.get_submodule(path), leaf, w) for path, leaf, w in _split_names(weights)]

    def __enter__(self) -> None:
        for module, leaf, weight in self.slots:
            module.__dict__[leaf] = weight

    def __exit__(self, *_: object) -> None:
        for module, leaf, _weight in self.slots:
            module.__dict__.pop(leaf, None)


def _split_names(weights: dict[str, Tensor]) -> Iterator[tuple[str, str, Tensor]]:
    """`(module path, attribute, tensor)` of every dotted name."""
    return ((name.rpartition(".")[0], name.rpartition(".")[2], weight) for name, weight in weights.items())


def _simplify(graph: fx.Graph) -> fx.Graph:
    """Rewrite `x Wᵀ`, `b + x Wᵀ` and `(W xᵀ)ᵀ`, which torch records with transposes, as `linear`."""
    for node in list(graph.nodes):
        if node.target not in (aten.mm.default, aten.addmm.default) or node.kwargs:  # alpha and beta factors stay
            continue
        left, right = node.args[-2:]
        weight, bias = _transpose_of(right), node.args[0] if node.target is aten.addmm.default else None
        if weight is None and bias is None:
            continue
        target, right = (aten.mm.default, right) if weight is None else (aten.linear.default, weight)
        with graph.inserting_before(node):
            product = graph.call_function(target, (left, right))
            total = product if bias is None else graph.call_function(aten.add.Tensor, (product, bias))
        product.meta, total.meta = dict(node.meta), dict(node.meta)
        node.replace_all_uses_with(total)
        graph.erase_node(node)
    for node in list(graph.nodes):
        product = _transpose_of(node)
        if product is not None and product.target is aten.linear.default:
            with graph.inserting_before(node):
                swapped = graph.call_function(aten.linear.default, product.args[::-1])
            swapped.meta = dict(node.meta)
            node.replace_all_uses_with(swapped)
    graph.eliminate_dead_code()
    graph.set_codegen(fx.CodeGen())  # one positional argument per placeholder
    return graph


def _transpose_of(node: fx.Node) -> fx.Node | None:
    """The matrix that a node transposes, or None."""
    if node.target is aten.t.default:
        return node.args[0]  # pyrefly: ignore
    if node.target is aten.permute.default:
        axes = list(node.args[1])  # pyrefly: ignore
        return node.args[0] if axes in ([1, 0], [-1, -2], [1, -2], [-1, 0]) else None  # pyrefly: ignore
    if node.target is aten.transpose.int and node.meta["val"].dim() == 2:
        return node.args[0] if node.args[1] % 2 != node.args[2] % 2 else None  # pyrefly: ignore
    return None


def _prune(graph: fx.Graph, inputs: int, weights: tuple[str, ...]) -> tuple[str, ...]:
    """Remove the placeholders of weights that no equation reads. Returns the names of the others."""
    kept = []
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    for node, name in zip(placeholders[inputs:], weights, strict=True):
        if node.users:
            kept.append(name)
        else:
            graph.erase_node(node)
    return tuple(kept)


# ---------------------------------------------------------------------------------------------------- lowering


def decompose(step: Step) -> Step:
    """The same step with composite operations decomposed, and none in place: what the compiled engines read."""
    if any(custom_vjp_of(node) for node in step.graph.nodes):
        return step  # decomposing would take the derivative of the values
    targets = [node.target for node in step.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    if not any(target in DECOMPOSITIONS or target._schema.is_mutable for target in targets):
        return step
    function = step.function()

    def at(batch: int) -> fx.Graph:
        return _trace_decomposed(lambda *values: list(function(*values)), *_examples(step, batch))

    return replace(step, graph=merge_batch_sizes(at(2), at(3)))


def _trace_decomposed(function: Callable, *examples: Tensor) -> fx.Graph:
    """The graph of a function without composite and in-place operations."""
    from torch.fx.experimental.proxy_tensor import make_fx  # calling it imports torch.compile

    table: Any = DECOMPOSITIONS
    traced = make_fx(torch.func.functionalize(function), decomposition_table=table, tracing_mode="fake")
    return _simplify(traced(*examples).graph)


def _examples(step: Step, batch: int) -> list[Tensor]:
    """Zeros for every placeholder, at this batch size."""
    stand_ins = [node.meta["val"] for node in step.placeholders()]
    shapes = [(batch, *v.shape[1:]) if i < len(step.inputs) else tuple(v.shape) for i, v in enumerate(stand_ins)]
    return [torch.zeros(s, dtype=v.dtype, device=v.device) for s, v in zip(shapes, stand_ins, strict=True)]
