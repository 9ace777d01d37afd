"""A layer as an ONNX graph: depth, directions, and optional inputs around the loops of its cells.

An optional input (lengths, initial states, noise) has an empty default in the file. The graph concatenates the input
with the value for "not given" and slices the result to the batch size, so that no branch is needed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...cell import State
from ...layer_inputs import first_parameter
from ...layer_states import is_stacked
from ...layers import Recurrent
from .graph import IR_VERSION, OPSET, Graph
from .loop import Ragged, scan
from .noise import noise_inputs, write_noise


@dataclass(frozen=True)
class StateTensor:
    """One tensor of a layer's state: `h`, stacked over all cells, or `h.0`, `h.1`, … if their widths differ."""

    name: str
    index: int  # of the state in Cell.carried
    spec: State
    cells: tuple[int, ...]  # indices into Recurrent.cell_list
    stacked: bool

    @property
    def shape(self) -> tuple[int | str, ...]:
        """The shape, with "batch" for the batch size."""
        rest = ("batch", *self.spec.full_shape(1)[1:])
        return (len(self.cells), *rest) if self.stacked else rest


def state_tensors(layer: Recurrent) -> list[StateTensor]:
    """The tensors of a layer's state, in the order of the file's inputs and outputs."""
    found: list[StateTensor] = []
    every = tuple(range(len(layer.cell_list)))
    for index, spec in enumerate(layer.cell_list[0].carried):
        if is_stacked(layer.cell_list, index):
            found.append(StateTensor(spec.name, index, spec, every, True))
        else:
            found += [
                StateTensor(f"{spec.name}.{k}", index, layer.cell_list[k].carried[index], (k,), False) for k in every
            ]
    return found


class LayerGraph:
    """Writes a layer into a graph."""

    def __init__(self, graph: Graph, layer: Recurrent):
        self.graph, self.layer, self.columns = graph, layer, state_tensors(layer)
        self.noise: list[dict[str, str]] = [{} for _ in layer.cell_list]  # of each cell: name → (T, B, size)

    def write(self, x: str, lengths: str, states: Sequence[str]) -> tuple[str, list[str]]:
        """From inputs in the layer's layout, optional ones possibly empty: names of y and of the final states."""
        x = self._swap_batch_and_time(x)
        for entry in noise_inputs(self.layer):
            made = write_noise(self.graph, entry.name, entry.noise, x, self.layer.batch_first)
            self.noise[entry.cell][entry.mask] = made
        ragged = self._make_ragged(x, lengths)
        y, finals = self._run_layers(x, self._states_by_cell(states, ragged.batch), ragged)
        return self._swap_batch_and_time(y), self._pack_states(finals)

    def run(self, x: str, lengths: str, states: list[list[str]]) -> tuple[str, list[list[str]]]:
        """From x (T, B, D), lengths or "", and the states of each cell or none: names of y and of the final states."""
        ragged = self._make_ragged(x, lengths)
        return self._run_layers(x, states or self._states_by_cell([""] * len(self.columns), ragged.batch), ragged)

    def _swap_batch_and_time(self, value: str) -> str:
        return self.graph.add("Transpose", value, perm=[1, 0, 2]) if self.layer.batch_first else value

    # ------------------------------------------------------------------------------------------ inputs

    def _make_ragged(self, x: str, lengths: str) -> Ragged:
        graph = self.graph
        steps, batch = graph.size(x, 0), graph.size(x, 1)
        full = graph.add("Expand", steps, batch)
        if lengths:
            full = self._given_or_default(lengths, full, batch, axis=0)
        counted = graph.add("Range", *(graph.add("Squeeze", v) for v in (graph.integers(0), steps, graph.integers(1))))
        before = graph.add("Less", graph.add("Unsqueeze", counted, graph.integers(1)), full)  # (T, B)
        return Ragged(batch, graph.add("Unsqueeze", before, graph.integers(2)), full)

    def _given_or_default(self, given: str, otherwise: str, batch: str, axis: int) -> str:
        """The given input, or the default if it is empty."""
        both = self.graph.add("Concat", given, otherwise, axis=axis)
        return self.graph.add("Slice", both, self.graph.integers(0), batch, self.graph.integers(axis))

    def _states_by_cell(self, states: Sequence[str], batch: str) -> list[list[str]]:
        """The initial states of every cell."""
        by_cell: list[list[str]] = [[] for _ in self.layer.cell_list]
        for given, column in zip(states, self.columns, strict=True):
            shape = self.graph.add("Concat", batch, self.graph.integers(*column.spec.shape(1)[1:]), axis=0)
            for row, k in zip(self._rows(given, column), column.cells, strict=True):
                row = self._reshape(row, column.spec.shape(1)) if row and column.spec.axes else row
                value = self.graph.add("Expand", self._start(k, column.index), shape)
                by_cell[k].append(self._given_or_default(row, value, batch, axis=0) if row else value)
        return by_cell

    def _rows(self, given: str, column: StateTensor) -> list[str]:
        """The rows of a state tensor, one for each cell."""
        if not given or not column.stacked:
            return [given] * len(column.cells)
        rows = self.graph.split(given, [1] * len(column.cells), axis=0)
        return [self.graph.add("Squeeze", row, self.graph.integers(0)) for row in rows]

    def _reshape(self, value: str, shape: tuple[int, ...]) -> str:
        """A state with other axes behind the batch."""
        return self.graph.add("Reshape", value, self.graph.integers(-1, *shape[1:]))

    def _start(self, number: int, index: int) -> str:
        like = torch.empty(0, dtype=self.graph.dtype)
        return self.graph.constant(self.layer.cell_list[number].initial_state(1, like)[index], "start")

    # ------------------------------------------------------------------------------------------ depth and direction

    def _run_layers(self, x: str, given: list[list[str]], ragged: Ragged) -> tuple[str, list[list[str]]]:
        finals: list[list[str]] = [[] for _ in given]
        layer, graph = self.layer, self.graph

        def run_cell(number: int, direction: int, below: str) -> str:
            k = number * layer.directions + direction
            back = direction == 1
            sequence = self._reverse_time(below, ragged) if back else below
            y, finals[k] = scan(graph, layer.cell_list[k], sequence, given[k], ragged, self.noise[k])
            return self._reverse_time(y, ragged) if back else y

        if layer.bidirectional == "separate":
            stacks = [self._stack(x, lambda n, v, d=d: run_cell(n, d, v)) for d in range(2)]
            return graph.join(stacks, axis=2), finals
        both = range(layer.directions)
        return self._stack(x, lambda n, v: graph.join([run_cell(n, d, v) for d in both], axis=2)), finals

    def _stack(self, x: str, run_layer: Callable[[int, str], str]) -> str:
        outputs: list[str] = []
        for number in range(self.layer.num_layers):
            below = outputs[-1] if outputs else x
            seen = self.graph.join([x, below], axis=2) if number and self.layer.depth == "graves" else below
            y = run_layer(number, seen)
            if number and self.layer.depth == "residual":
                y = self.graph.add("Add", y, outputs[-1])
            outputs.append(y)
        return self.graph.join(outputs, axis=2) if self.layer.depth == "graves" else outputs[-1]

    def _reverse_time(self, value: str, ragged: Ragged) -> str:
        return self.graph.add("ReverseSequence", value, ragged.lengths, time_axis=0, batch_axis=1)

    def _pack_states(self, finals: list[list[str]]) -> list[str]:
        packed = []
        for column in self.columns:
            rows = [finals[k][column.index] for k in column.cells]
            if column.spec.axes:
                rows = [self._reshape(row, column.spec.full_shape(1)) for row in rows]
            if column.stacked:
                rows = [self.graph.add("Unsqueeze", row, self.graph.integers(0)) for row in rows]
            packed.append(self.graph.join(rows, axis=0))
        return packed


def layer_model(layer: Recurrent) -> Any:
    """The ONNX model of a layer (on the CPU, in evaluation)."""
    graph = Graph(first_parameter(layer).dtype)
    columns = state_tensors(layer)
    y, finals = LayerGraph(graph, layer).write("x", "lengths", [f"{c.name}_0" for c in columns])
    lead = ("batch", "time") if layer.batch_first else ("time", "batch")
    inputs = [graph.value_info("x", (*lead, layer.input_size)), graph.value_info("lengths", ("given",), torch.int64)]
    inputs += [graph.value_info(f"{c.name}_0", _optional_shape(c.shape)) for c in columns]
    noise = {entry.name: entry.shape(layer) for entry in noise_inputs(layer)}
    inputs += [graph.value_info(name, _optional_shape(shape)) for name, shape in noise.items()]
    outputs = [graph.value_info("y", (*lead, layer.output_size))]
    outputs += [graph.value_info(f"{c.name}_n", c.shape) for c in columns]
    for source, output in zip([y, *finals], outputs, strict=True):
        graph.nodes.append(graph.helper.make_node("Identity", [source], [output.name]))
    defaults = [graph.tensor("lengths", torch.empty(0, dtype=torch.int64))]
    defaults += [graph.tensor(f"{c.name}_0", _empty_default(c.shape, graph.dtype)) for c in columns]
    defaults += [graph.tensor(name, _empty_default(shape, graph.dtype)) for name, shape in noise.items()]
    return _model(graph, inputs, outputs, defaults)


def _optional_shape(shape: Sequence[int | str]) -> tuple[int | str, ...]:
    return tuple({"batch": "given", "time": "given_time"}.get(str(axis), axis) for axis in shape)


def _empty_default(shape: Sequence[int | str], dtype: torch.dtype) -> Tensor:
    return torch.empty([0 if isinstance(axis, str) else axis for axis in shape], dtype=dtype)


def _model(graph: Graph, inputs: list, outputs: list, defaults: list) -> Any:
    helper = graph.helper
    whole = helper.make_graph(graph.nodes, "recurra", inputs, outputs, initializer=[*graph.initializers, *defaults])
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(whole, producer_name="recurra", opset_imports=opsets, ir_version=IR_VERSION)
