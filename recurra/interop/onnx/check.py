"""Compares a file in onnxruntime with its model, at lengths and batch sizes other than those of the export."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from ...engine.backend import set_backend
from ...layer_inputs import first_parameter
from ...layer_states import is_stacked
from ...layers import Recurrent
from .export_errors import ExportError, package
from .layer import state_tensors
from .noise import drawn_as, noise_inputs

SIZES = ((1, 4), (9, 1), (14, 3))  # (T, B)
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-13}  # relative to the largest number of a result
MODULE_TOLERANCE = {
    torch.float32: 1e-5,
    torch.float64: 1e-12,
}  # the same for modules
LARGER_SIZES = (lambda size: size + 1, lambda size: size + 3, lambda size: 2 * size + 1)
MARGIN = 8.0  # times the layer's own rounding error, if that is larger: some equations amplify it

Feed = dict[str, Tensor]


class Session:
    """A file in onnxruntime, on the CPU, with one thread and without log messages."""

    def __init__(self, path: Path):
        runtime = package("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        try:
            self.session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except runtime_errors() as error:
            raise ExportError(f"onnxruntime cannot load the file: {error}") from error
        self.inputs = [(given.name, given.shape) for given in self.session.get_inputs()]
        self.names = [output.name for output in self.session.get_outputs()]

    def __call__(self, feed: Mapping[str, Tensor]) -> dict[str, Tensor]:
        try:
            results = self.session.run(None, {name: value.numpy() for name, value in feed.items()})
        except runtime_errors() as error:
            shapes = {name: tuple(value.shape) for name, value in feed.items()}
            raise ExportError(f"onnxruntime fails on inputs {shapes}: {error}") from error
        return {name: torch.from_numpy(value) for name, value in zip(self.names, results, strict=True)}


def runtime_errors() -> tuple[type[Exception], ...]:
    state = package("onnxruntime.capi.onnxruntime_pybind11_state")
    return tuple(kind for kind in vars(state).values() if isinstance(kind, type) and issubclass(kind, Exception))


def check_layer(path: Path, layer: Recurrent) -> float:
    """Compare the file with the layer; returns the largest difference relative to the largest number."""
    session, generator = Session(path), torch.Generator().manual_seed(0)
    precise = copy.deepcopy(layer).double()
    return max(_compare(session, layer, precise, feed) for feed in _feeds(layer, generator))


def _feeds(layer: Recurrent, generator: torch.Generator) -> Iterator[Feed]:
    """Full batches from the default initial state, then ragged ones with NaN in padding from given states."""
    dtype = first_parameter(layer).dtype
    for steps, batch in SIZES:
        shape = (batch, steps) if layer.batch_first else (steps, batch)
        x = torch.randn(*shape, layer.input_size, generator=generator, dtype=dtype)
        noise = {
            entry.name: torch.rand(*shape, entry.noise.size, generator=generator, dtype=dtype)
            for entry in noise_inputs(layer)
        }
        yield {"x": x, **noise}
        lengths = torch.randint(1, steps + 1, (batch,), generator=generator)
        past = torch.arange(steps)[:, None] >= lengths  # (T, B)
        past = past.t() if layer.batch_first else past
        state = run_layer(layer, {"x": x, **noise})
        states = {name[:-1] + "0": value for name, value in state.items() if name != "y"}
        yield {"x": x.masked_fill(past[..., None], float("nan")), "lengths": lengths, **states, **noise}


def run_layer(layer: Recurrent, feed: Feed) -> dict[str, Tensor]:
    """The results of the layer, under the names of the file."""
    names = [column.name for column in state_tensors(layer)]
    state = _state(layer, [feed[f"{name}_0"] for name in names]) if f"{names[0]}_0" in feed else None
    with torch.no_grad(), set_backend("reference"), drawn_as(layer, feed):
        y, final = layer(feed["x"], state, feed.get("lengths"))
    return {"y": y} | {f"{name}_n": value for name, value in zip(names, _flat(final), strict=True)}


def _state(layer: Recurrent, values: Sequence[Tensor]) -> Any:
    """Tensors in the file's order as the layer's state."""
    columns, rest = [], list(values)
    for index in range(len(layer.cell_list[0].carried)):
        if is_stacked(layer.cell_list, index):
            columns.append(rest.pop(0))
        else:
            columns.append(tuple(rest.pop(0) for _ in layer.cell_list))
    return tuple(columns) if len(columns) > 1 else columns[0]


def _flat(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else [tensor for part in value for tensor in _flat(part)]


def _compare(session: Session, layer: Recurrent, precise: nn.Module, feed: Feed) -> float:
    given, own, tolerance = session(feed), run_layer(layer, feed), TOLERANCE[feed["x"].dtype]
    exact = run_layer(precise, {n: v.double() if v.is_floating_point() else v for n, v in feed.items()})  # pyrefly: ignore
    return max(difference(name, given[name], own[name], exact[name], feed["x"], tolerance) for name in own)


# ---------------------------------------------------------------------------------------------------- any module


def check_module(path: Path, model: nn.Module, arguments: Mapping[str, Any]) -> float:
    """Compare the file with the module at larger sizes, with numbers resampled from the example.

    So lengths and token numbers stay valid: every size is larger, and no new number appears.
    """
    session, generator = Session(path), torch.Generator().manual_seed(0)
    values, structure = tree_flatten(dict(arguments))
    count, worst = sum(isinstance(value, Tensor) for value in values), 0.0
    if count != len(session.inputs):
        raise ExportError(f"the file takes {len(session.inputs)} tensors, the example holds {count}")
    for grown in LARGER_SIZES:
        inputs = iter(session.inputs)
        call = [_resample(v, next(inputs)[1], grown, generator) if isinstance(v, Tensor) else v for v in values]
        with torch.no_grad(), set_backend("reference"):
            own = [v for v in tree_leaves(model(**tree_unflatten(call, structure))) if isinstance(v, Tensor)]
        tensors = [v for v in call if isinstance(v, Tensor)]
        given = session({name: v for (name, _), v in zip(session.inputs, tensors, strict=True)})
        if len(given) != len(own):
            raise ExportError(f"the file gives {len(given)} tensors, the model {len(own)}")
        for (name, found), expected in zip(given.items(), own, strict=True):
            worst = max(worst, _module_difference(name, found, expected, tensors[0]))
    return worst


def _resample(
    value: Tensor, axes: Sequence[int | str], grown: Callable[[int], int], generator: torch.Generator
) -> Tensor:
    """A tensor with every free axis enlarged, its numbers resampled; those of a last axis that is fixed stay apart.

    That axis has columns: where one has numbers of categories, it must have no others.
    """
    shape = [grown(size) if isinstance(axis, str) else size for size, axis in zip(value.shape, axes, strict=True)]
    given = value.detach().cpu()
    columns = shape[-1] if len(shape) > 1 and not isinstance(axes[-1], str) else 1
    rows = given.reshape(-1, columns)
    picks = torch.randint(0, len(rows), shape, generator=generator)
    return rows[picks, torch.arange(columns).expand(shape)]


def _module_difference(name: str, found: Tensor, expected: Tensor, x: Tensor) -> float:
    if not expected.is_floating_point():
        if torch.equal(found, expected):
            return 0.0
        raise ExportError(f"{name}: for inputs of shape {tuple(x.shape)} the file differs from the model")
    return difference(name, found, expected, expected.double(), x, MODULE_TOLERANCE[expected.dtype])


# ---------------------------------------------------------------------------------------------------- differences


def difference(name: str, given: Tensor, own: Tensor, exact: Tensor, x: Tensor, tolerance: float) -> float:
    """The file's largest error relative to the largest number; raises if rounding does not explain it."""
    if given.shape != own.shape:
        raise ExportError(f"{name}: the file gives shape {tuple(given.shape)}, the model {tuple(own.shape)}")
    scale = exact.abs().max().clamp(min=1.0)
    error, rounding = ((value.double() - exact).abs().max() / scale for value in (given, own))
    allowed = max(tolerance, MARGIN * float(rounding))
    if not error <= allowed:
        raise ExportError(
            f"{name}: for x of shape {tuple(x.shape)} the file differs from the model by {float(error):.1e} of its "
            f"largest number, more than the {allowed:.1e} that rounding explains; nothing was written"
        )
    return float(error)
