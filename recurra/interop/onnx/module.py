"""Export of modules with recurra's layers inside: torch exports the module, then the layers' graphs are inserted.

During torch's export each layer is one symbolic operation of a custom domain. In the exported file, the nodes of the
layer's own graph replace it. So no loop is unrolled, and length and batch size stay free.
"""

import contextlib
import inspect
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ...errors import InputError, LengthsError, RecurraError
from ...layer_inputs import first_parameter
from ...layer_states import stack_states
from ...layers import Recurrent
from .export_errors import ExportError, package
from .graph import OPSET, Graph
from .layer import LayerGraph
from .noise import noise_inputs

DOMAIN = "recurra"
NOISY_LOGGERS = ("torch.onnx", "torch.fx.experimental.symbolic_shapes")  # loggers


def arguments_of(model: nn.Module, example: Any) -> dict[str, Any]:
    """The arguments of one call by name, from a tensor, a tuple of positional arguments, or a dictionary."""
    if example is None:
        raise InputError("example", None, "the arguments of one call: a tensor, a tuple, or a dictionary by name")
    args = example if isinstance(example, tuple) else () if isinstance(example, Mapping) else (example,)
    kwargs = dict(example) if isinstance(example, Mapping) else {}
    try:
        return inspect.signature(model.forward).bind(*args, **kwargs).arguments
    except TypeError as error:
        raise InputError("example", error, f"the arguments of {type(model).__name__}.forward") from error


def module_model(model: nn.Module, arguments: Mapping[str, Any]) -> Any:
    """The ONNX model of a module on the CPU, in evaluation mode."""
    package("onnxscript")
    layers = {name: module for name, module in model.named_modules() if isinstance(module, Recurrent)}
    axes = tree_map(_dynamic_axes, dict(arguments))
    with _as_symbolic_ops(layers), _silence_exporter():
        try:  # torch.onnx.export(model) alone does not report which axes are fixed
            traced = torch.export.export(model, (), dict(arguments), dynamic_shapes=axes, strict=False)
            program = torch.onnx.export(traced, dynamo=True, opset_version=OPSET, verbose=False)
        except RecurraError:  # of a layer that a file cannot hold
            raise
        except ValueError as error:  # an argument that is no tensor
            raise InputError("example", str(error).splitlines()[0], "tensors, as `forward` takes them") from error
        except RuntimeError as error:  # the base class of their documented errors
            raise ExportError(f"torch cannot export {type(model).__name__}: {_cause(error)}") from error
    if program is None:
        raise ExportError(f"torch gave no ONNX program for {type(model).__name__}")
    return _insert_layers(program.model_proto, layers)


def _dynamic_axes(value: Any) -> Any:
    """Mark every axis as dynamic if torch can; an axis of size 1 is fixed for torch."""
    if not isinstance(value, Tensor):
        return None
    return {axis: torch.export.Dim.AUTO for axis, size in enumerate(value.shape) if size != 1}


def _cause(error: BaseException) -> str:
    """The first paragraph of the first error in a chain: the cause without its context."""
    while (before := error.__cause__ or error.__context__) is not None:
        error = before
    return str(error).strip().partition("\n\n")[0]


@contextlib.contextmanager
def _silence_exporter() -> Iterator[None]:
    """Suppress the log, warnings and standard error of torch's exporter; its errors are still raised."""
    levels = {name: logging.getLogger(name).level for name in NOISY_LOGGERS}
    for name in levels:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


# ---------------------------------------------------------------------------------------------------- symbolic layers


@contextlib.contextmanager
def _as_symbolic_ops(layers: Mapping[str, Recurrent]) -> Iterator[None]:
    """Within the block, a call of a layer is one symbolic operation with the layer's name as attribute."""
    for name, layer in layers.items():
        layer.__dict__["forward"] = partial(_symbolic, layer, name)
    try:
        yield
    finally:
        for layer in layers.values():
            layer.__dict__.pop("forward", None)


def _symbolic(
    layer: Recurrent,
    name: str,
    x: Any,
    state: Any = None,
    lengths: Any = None,
    resets: Any = None,
    return_trace: bool = False,
) -> tuple[Tensor, Any]:
    """`layer(x, state, lengths)` as one symbolic operation."""
    if resets is not None or return_trace:
        raise ExportError(f"layer {name!r} is called with resets or return_trace, which cannot be exported")
    if not isinstance(x, Tensor) or x.is_nested or not (lengths is None or isinstance(lengths, Tensor)):
        raise ExportError(f"layer {name!r}: for export, pass ragged sequences as a padded tensor and lengths")
    if noise_inputs(layer):
        raise ExportError(
            f"layer {name!r} draws noise, which the file of a module cannot repeat; export the layer itself"
        )
    layer._check_x(x, (2, 3))
    batched = x.dim() == 3
    x = x.unsqueeze(1) if not batched else x.transpose(0, 1) if layer.batch_first else x
    steps, batch = x.shape[:2]
    if lengths is not None and lengths.shape != (batch,):
        raise LengthsError("lengths", f"shape {tuple(lengths.shape)}", "one length per sequence, shape (B,)")
    states = [] if state is None else [row for one in layer._initial_states(state, x, batched) for row in one]
    shapes = [spec.shape(batch) for cell in layer.cell_list for spec in cell.carried]
    y, *finals = torch.onnx.ops.symbolic_multi_out(
        f"{DOMAIN}::Layer",
        [x, None if lengths is None else lengths.to(torch.int64), *states],
        {"layer": name, "batched": int(batched)},
        dtypes=[x.dtype] * (1 + len(shapes)),
        shapes=[(steps, batch, layer.output_size), *shapes],
        version=1,
    )
    each = len(layer.cell_list[0].carried)
    by_cell = [tuple(finals[k : k + each]) for k in range(0, len(finals), each)]
    return layer._lay_out(y, batched), stack_states(layer.cell_list, by_cell, batched)


# ---------------------------------------------------------------------------------------------------- insertion


def _insert_layers(model: Any, layers: Mapping[str, Recurrent]) -> Any:
    """The model with every symbolic operation replaced by the nodes of its layer."""
    nodes: list[Any] = []
    made: dict[str, Graph] = {}
    sizes = _axis_sizes(model.graph)
    for number, node in enumerate(model.graph.node):
        if node.domain != DOMAIN:
            nodes.append(node)
            continue
        said = {attribute.name: attribute for attribute in node.attribute}
        name = said["layer"].s.decode()
        _check_free_axes(name, sizes[node.input[0]][: 2 if said["batched"].i else 1])
        graph = Graph(first_parameter(layers[name]).dtype, prefix=f"{name or 'layer'}/{number}/")
        made[f"{name}/{number}"] = graph
        _insert_layer(graph, layers[name], list(node.input), list(node.output))
        nodes += graph.nodes
    _name_axes(model.graph, [sizes[node.input[0]][:2] for node in model.graph.node if node.domain == DOMAIN])
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(tensor for graph in made.values() for tensor in graph.initializers)
    kept = [opset for opset in model.opset_import if opset.domain != DOMAIN]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    return model


def _axis_sizes(graph: Any) -> dict[str, list[int | str]]:
    """The axes of every value, numbers or names of free sizes; numbers that torch wrote as names are corrected."""
    found: dict[str, list[int | str]] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        axes = value.type.tensor_type.shape.dim
        for axis in axes:
            if axis.dim_param.isdigit():
                axis.dim_value = int(axis.dim_param)
        found[value.name] = [axis.dim_param or axis.dim_value for axis in axes]
    return found


def _name_axes(graph: Any, seen: Sequence[Sequence[int | str]]) -> None:
    """Rename the first two axes of the first layer's input to time and batch; torch numbers them."""
    names = {str(old): new for old, new in zip(seen[0], ("time", "batch"), strict=True)} if seen else {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param in names:
                axis.dim_param = names[axis.dim_param]


def _check_free_axes(name: str, axes: Sequence[int | str]) -> None:
    """Raise an error if the length or the batch size of a layer's input is fixed."""
    for size, what in zip(axes, ("sequences of length", "batches of"), strict=False):
        if isinstance(size, int):
            one = "a size of 1 in the example is a constant to torch"
            fixed = "the module fixes it, as len(tensor) and int() do; tensor.shape leaves it free"
            raise ExportError(f"layer {name!r} always gets {what} {size}: {one if size == 1 else fixed}")


def _insert_layer(graph: Graph, layer: Recurrent, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    x, lengths, *states = [*inputs, ""] if len(inputs) == 1 else inputs
    each = len(layer.cell_list[0].carried)
    by_cell = [list(states[k : k + each]) for k in range(0, len(states), each)]
    y, finals = LayerGraph(graph, layer).run(x, lengths, by_cell)
    for source, output in zip([y, *(value for states in finals for value in states)], outputs, strict=True):
        graph.nodes.append(graph.helper.make_node("Identity", [source], [output]))
