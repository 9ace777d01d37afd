"""Convert weights from and to torch.nn's recurrent modules, where the equations agree.

torch adds two biases per gate: they become one here, and the second one is zero on the way back. torch's GRU computes
h = (1 - z) n + z h, with z and 1 - z exchanged: its z-parameters change sign. Both changes are exact.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from ..affine import Affine
from ..argument_checks import instance_of
from ..cell import Cell
from ..cells.gru import GRU
from ..cells.lstm import LSTM, ProjectionLSTM
from ..cells.plain import IRNN, RNN, IdentityRNN, OrthogonalRNN
from ..errors import ConversionError, InputError
from ..layers import Recurrent

SignedAffines = list[tuple[Affine, float]]  # in torch's row order: an affine, and the sign of its parameters there


def from_torch(module: nn.Module) -> nn.Module:
    """Convert one of torch's recurrent modules to a recurra layer with the same weights.

    **Arguments**

    - `module`: an `nn.RNN`, `nn.LSTM` (also with `proj_size`) or `nn.GRU`, or an `nn.RNNCell`, `nn.LSTMCell` or
      `nn.GRUCell`.

    **Returns** an `rc.Recurrent` with copies of the weights, in the module's dtype, on its device and in its mode. For
    a cell of torch, a module that is called like it, one step at a time: `h, c = cell(x, (h, c))`.

    **Example**

        >>> import torch, recurra as rc
        >>> lstm = torch.nn.LSTM(3, 4, num_layers=2)
        >>> layer, x = rc.from_torch(lstm), torch.randn(5, 2, 3)
        >>> torch.allclose(layer(x)[0], lstm(x)[0], atol=1e-6)
        True
    """
    if isinstance(module, nn.RNNCellBase):
        return SteppedLayer(_copy_from_torch(_layer_like(module, 1, False), [_cell_tensors(module)]))
    if isinstance(module, nn.RNNBase):
        layer = _layer_like(module, module.num_layers, module.bidirectional)
        layer.batch_first, layer.dropout = module.batch_first, float(module.dropout)
        return _copy_from_torch(layer, list(_layer_tensors(module)))
    raise InputError("module", type(module).__name__, "an nn.RNN, nn.LSTM, nn.GRU or one of their cells")


def to_torch(layer: Recurrent) -> nn.Module:
    """The torch.nn module with the layer's equations and weights; a `ConversionError` says why there is none."""
    factory, options = _torch_class(instance_of("layer", layer, Recurrent, "a layer of recurra"))
    cell = layer.cell_list[0]
    module = factory(
        layer.input_size,
        cell.hidden_size,
        layer.num_layers,
        bias=layer.bias,
        batch_first=layer.batch_first,
        dropout=layer.dropout,
        bidirectional=bool(layer.bidirectional),
        **options,
    )
    module.to(next(layer.parameters()))
    with torch.no_grad():
        for cell, tensors in zip(layer.cell_list, _layer_tensors(module), strict=True):
            _copy_to_torch(cell, tensors)
    return module.train(layer.training)


def accelerate(model: nn.Module) -> nn.Module:
    """Replace all of torch's recurrent modules inside a model by recurra's, in place, with their weights.

    **Arguments**

    - `model`: any module. An `nn.LSTM`, `nn.GRU` or `nn.RNN` itself is converted as by `rc.from_torch`.

    **Returns** the model. Submodules keep their names; names of parameters change, so checkpoints of the original model
    are loaded before the call. A module that appears twice is replaced by one layer.

    **Example**

        >>> import torch, recurra as rc
        >>> class Model(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.encoder = torch.nn.GRU(3, 4)
        >>> type(rc.accelerate(Model()).encoder).__name__
        'Recurrent'
    """
    if isinstance(model, (nn.RNNBase, nn.RNNCellBase)):
        return from_torch(model)
    if not isinstance(model, nn.Module):
        raise InputError("model", repr(model), "a torch.nn.Module")
    replaced: dict[nn.Module, nn.Module] = {}  # a shared module stays shared
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):  # named_children() skips the second name of a shared module
            if isinstance(child, (nn.RNNBase, nn.RNNCellBase)):
                if child not in replaced:
                    replaced[child] = from_torch(child)
                setattr(parent, name, replaced[child])
    return model


class SteppedLayer(nn.Module):
    """A layer called one step at a time, like torch's cells: `h = cell(x, h)` or `h, c = cell(x, (h, c))`."""

    def __init__(self, layer: Recurrent):
        super().__init__()
        self.layer = layer
        self.input_size, self.hidden_size = layer.input_size, layer.hidden_size

    def forward(self, x: Tensor, hx: Tensor | tuple[Tensor, ...] | None = None) -> Tensor | tuple[Tensor, ...]:
        if hx is not None:
            hx = tuple(h.unsqueeze(0) for h in hx) if isinstance(hx, (tuple, list)) else hx.unsqueeze(0)
        _, state = self.layer.step(x, hx)
        return tuple(s.squeeze(0) for s in state) if isinstance(state, tuple) else state.squeeze(0)


# ---------------------------------------------------------------------------------------------------- from torch


def _layer_like(module: nn.Module, num_layers: int, bidirectional: bool) -> Recurrent:
    """A new layer with the shape, dtype, device and mode of torch's module."""
    cell_class, options = _recurra_class(module)
    weight = next(module.parameters())
    layer = Recurrent(
        cell_class,
        module.input_size,  # pyrefly: ignore
        module.hidden_size,  # pyrefly: ignore
        num_layers,
        bias=bool(module.bias),
        bidirectional=bidirectional,
        device=weight.device,
        dtype=weight.dtype,
        **options,
    )
    return layer.train(module.training)


def _recurra_class(module: nn.Module) -> tuple[type[Cell], dict]:
    if isinstance(module, (nn.LSTM, nn.LSTMCell)):
        projection = getattr(module, "proj_size", 0)
        return (ProjectionLSTM, {"proj_size": projection, "peepholes": False}) if projection else (LSTM, {})
    if isinstance(module, (nn.GRU, nn.GRUCell)):
        return GRU, {"reset_after": True}
    return RNN, {"nonlinearity": module.nonlinearity}


def _layer_tensors(module: nn.RNNBase) -> Iterator[dict[str, Tensor]]:
    """For each direction of each layer, torch's tensors by name without the suffix."""
    for layer in range(module.num_layers):
        for suffix in (f"_l{layer}", f"_l{layer}_reverse")[: 2 if module.bidirectional else 1]:
            named = module.named_parameters(recurse=False)
            yield {name.removesuffix(suffix): p for name, p in named if name.endswith(suffix)}


def _cell_tensors(module: nn.RNNCellBase) -> dict[str, Tensor]:
    return dict(module.named_parameters(recurse=False))


@torch.no_grad()
def _copy_from_torch(layer: Recurrent, tensors: list[dict[str, Tensor]]) -> Recurrent:
    for cell, given in zip(layer.cell_list, tensors, strict=True):
        rows = cell.hidden_size
        for block, (affine, sign) in enumerate(_affines_in_torch_order(cell)):
            cut = slice(block * rows, (block + 1) * rows)
            affine.U.copy_(sign * given["weight_ih"][cut])
            reader = _recurrent_affine(cell, affine)
            reader.W.copy_(sign * given["weight_hh"][cut])
            if "bias_ih" in given and reader is affine:
                affine.b.copy_(sign * (given["bias_ih"][cut] + given["bias_hh"][cut]))
            elif "bias_ih" in given:
                affine.b.copy_(given["bias_ih"][cut])
                reader.b.copy_(given["bias_hh"][cut])
        if isinstance(cell, ProjectionLSTM):
            cell.R.W.copy_(given["weight_hr"])
    return layer


# ---------------------------------------------------------------------------------------------------- to torch


def _copy_to_torch(cell: Cell, tensors: dict[str, Tensor]) -> None:
    rows = cell.hidden_size
    for block, (affine, sign) in enumerate(_affines_in_torch_order(cell)):
        cut = slice(block * rows, (block + 1) * rows)
        reader = _recurrent_affine(cell, affine)
        tensors["weight_ih"][cut] = sign * affine.U
        tensors["weight_hh"][cut] = sign * reader.W
        if "bias_ih" in tensors:
            tensors["bias_ih"][cut] = sign * affine.b
            tensors["bias_hh"][cut] = 0.0 if reader is affine else reader.b
    if isinstance(cell, ProjectionLSTM):
        tensors["weight_hr"].copy_(cell.R.W)


def _torch_class(layer: Recurrent) -> tuple[Callable[..., nn.RNNBase], dict]:
    """The class of torch and its options; a `ConversionError` if torch has no such equations."""
    cell = layer.cell_list[0]
    why = _layer_obstacle(layer) or _cell_obstacle(cell)
    if why:
        raise ConversionError(f"{type(cell).__name__} has no equivalent in torch.nn: {why}")
    if isinstance(cell, LSTM):
        return nn.LSTM, {}
    if isinstance(cell, ProjectionLSTM):
        return nn.LSTM, {"proj_size": cell.carried[0].size}
    if isinstance(cell, GRU):
        return nn.GRU, {}
    return nn.RNN, {"nonlinearity": _nonlinearity(cell)}


def _layer_obstacle(layer: Recurrent) -> str:
    reasons = {
        "its layers differ in width": len(set(layer.hidden_sizes)) > 1,
        f"depth={layer.depth!r}": layer.depth != "stack",
        f"dilation={layer.dilation}": max(layer.dilation) > 1,
        "its directions have separate stacks": layer.bidirectional == "separate",
        f"initial={layer.initial!r}": layer.initial != "zeros",
        "it has modifiers": bool(layer.modifiers),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _cell_obstacle(cell: Cell) -> str:
    if isinstance(cell, GRU):
        return "" if cell.reset_after else "it resets before the product, torch after; use reset_after=True"
    if isinstance(cell, ProjectionLSTM):
        reasons = {
            "it has peepholes": cell.peepholes,
            "it clips": cell.cell_clip is not None or cell.proj_clip is not None,
            "it adds a forget bias at run time": bool(cell.forget_bias),
            "it has a second projection": cell.Q is not None,
        }
        return next((reason for reason, holds in reasons.items() if holds), "")
    if isinstance(cell, LSTM):
        return ""
    if isinstance(cell, (RNN, IdentityRNN, IRNN, OrthogonalRNN)):
        return "" if _nonlinearity(cell) in ("tanh", "relu") else "torch has tanh or relu only"
    return f"torch has RNN, LSTM and GRU, and this cell computes\n{cell.equations()}"


def _nonlinearity(cell: Cell) -> str:
    if isinstance(cell, (IdentityRNN, IRNN)):
        return "relu" if isinstance(cell, IRNN) else "tanh"
    return {torch.tanh: "tanh", torch.relu: "relu"}.get(cell.nonlinearity, "")  # pyrefly: ignore


# ---------------------------------------------------------------------------------------------------- row order


def _affines_in_torch_order(cell: Cell) -> SignedAffines:
    """The cell's affines in the order torch stacks their rows."""
    if isinstance(cell, (LSTM, ProjectionLSTM)):
        return [(gate, 1.0) for gate in (cell.i, cell.f, cell.g, cell.o)]
    if isinstance(cell, GRU):
        return [(cell.r, 1.0), (cell.z, -1.0), (cell.c, 1.0)]
    return [(cell.a, 1.0)]  # pyrefly: ignore


def _recurrent_affine(cell: Cell, affine: Affine) -> Affine:
    """The affine with the recurrent weights. The candidate of torch's GRU has a second one, behind the reset gate."""
    return cell.m if isinstance(cell, GRU) and affine is cell.c else affine
