"""A network as one function of flat vectors, (weights, state, x_t) → (y_t, state), and its Jacobians.

RTRL, DEKF and Evolino are built on it. The step runs as the cell's traced operations, never compiled: the forward
derivative of a compiled step would silently be zero. States of all layers are one vector, and so are the weights.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from recurra.cell import Cell
from recurra.dilation import refuse_dilation
from recurra.draws import Noise
from recurra.engine.backend import set_backend
from recurra.engine.batch_check import require_any_batch
from recurra.engine.cell_cache import are_equal, cache_of
from recurra.engine.found_draws import find_draws
from recurra.engine.reference import advance
from recurra.engine.trace import bind_weights
from recurra.engine.traced_step import bind_step
from recurra.errors import InputError, OptionError
from recurra.layer_inputs import first_parameter
from recurra.layers import Recurrent
from recurra.models.as_layer import as_layer
from recurra.models.hierarchical import HierarchicalRNN
from recurra.models.narx import NARX
from recurra.train.learner import Predictor
from recurra.train.randomness import preserve_rng

TRACE_AFTER = 12  # calls after which tracing the batched function pays off


class StepFunction:
    """One step of a recurrent layer and its head; for a module without recurrence, the module itself."""

    def __init__(self, model: nn.Module):
        self.layer, self.head = _parts(model)
        refuse_dilation("model", self.layer)
        check_composition(model, self.head)
        self.names = {id(p): name for name, p in model.named_parameters()}
        self.cells: list[Cell] = [] if self.layer is None else self.layer.cell_list
        self.recurrent = _named(self.cells)
        self.readout: dict[str, Tensor] = {n: p for n, p in self.head.named_parameters() if p.requires_grad}
        self.sizes = [math.prod(state.shape(1)) for cell in self.cells for state in cell.carried]
        self._known: dict[Any, Callable] = {}
        self._calls: Counter[Any] = Counter()
        self._fixed: set[tuple[int, bool]] = set()  # cells whose derived weights are the same every time

    @property
    def state_size(self) -> int:
        return sum(self.sizes)

    @property
    def weight_count(self) -> int:
        return sum(p.numel() for p in self.recurrent.values())

    @property
    def like(self) -> Tensor:
        return next(iter((*self.recurrent.values(), *self.readout.values())))

    def parameters(self) -> dict[str, Tensor]:
        """Weights by their names in the model, the recurrent ones first: the order in every flat vector of weights."""
        return {self.names[id(p)]: p for p in (*self.recurrent.values(), *self.readout.values())}

    def flat(self) -> tuple[Tensor, Tensor]:
        """The current recurrent and head weights as two vectors."""
        return _flatten(self.recurrent, self.like), _flatten(self.readout, self.like)

    def form(self) -> list[Any]:
        """All of the model but its numbers: what is found out about its step holds as long as this is equal."""
        layers = [] if self.layer is None else [self.layer.dropout, self.layer.training]
        hooks = self.head._forward_hooks, self.head._forward_pre_hooks, self.head._backward_hooks
        weights = [(w.dtype, w.device, w.is_contiguous()) for w in self.readout.values()]
        return [*layers, *map(bool, hooks), *weights, *(cache_of(cell).form for cell in self.cells)]

    # ------------------------------------------------------------------------------------------ functions

    def start(self, weights: Tensor, batch: int) -> Tensor:
        """States before the first step, (B, n), as a function of the weights."""
        given, parts = _unflatten(weights, self.recurrent), []
        for k, cell in enumerate(self.cells):
            with bind_weights(cell, _of_cell(given, k)):
                parts += [value.reshape(batch, -1) for value in cell.initial_state(batch, weights)]
        return torch.cat(parts, 1) if parts else weights.new_zeros(batch, 0)

    def step(self, weights: Tensor, readout: Tensor, state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """One step of one sequence: (n,), (D,) → (q,), (n,)."""
        given = _unflatten(weights, self.recurrent)
        pieces, after = list(state.split(self.sizes)) if self.sizes else [], {}

        def run_cell(number: int, below: Tensor) -> Tensor:
            cell, first = self.cells[number], sum(len(c.carried) for c in self.cells[:number])
            carried = pieces[first : first + len(cell.carried)]
            states = [v.reshape(s.shape(1)) for v, s in zip(carried, cell.carried, strict=True)]
            y, new = _advance(cell, _of_cell(given, number), below, states)
            after[number] = torch.cat([value.reshape(-1) for value in new])
            return y

        h = x[None] if self.layer is None else self.layer._stack(x[None], run_cell)
        y = functional_call(self.head, _unflatten(readout, self.readout), (h,))[0]
        return y, torch.cat([after[k] for k in sorted(after)]) if after else state

    # ------------------------------------------------------------------------------------------ derivatives

    def prepare(self) -> None:
        """Trace the cells now; tracing does not work inside a `torch.func` transform."""
        _check_dropout(self.layer)
        for cell in self.cells:
            _check_masks(cell)
            self._check_weights(cell)
            require_any_batch(cell)
            bind_step(cell)

    def refuse_random_head(self) -> None:
        """For learners that take derivatives through the head several times a step."""
        for part in self.head.modules():
            if isinstance(part, nn.modules.dropout._DropoutNd) and part.training and part.p:
                raise OptionError("model", f"{type(part).__name__} in training mode", "model.eval(), or BPTT")

    def _check_weights(self, cell: Cell) -> None:
        """Refuse weights that are drawn, as `rc.WeightDrop` does: every step would have others."""
        if (key := (id(cell), cell.training)) not in self._fixed:
            with preserve_rng(), torch.no_grad():
                pairs = zip(cell.derived().values(), cell.derived().values(), strict=True)
                if not all(torch.equal(a, b) for a, b in pairs):
                    raise OptionError(
                        "model", "weights drawn at random in training mode", "model.eval(); BPTT takes them"
                    )
            self._fixed.add(key)

    def function(self, name: str, one: Callable, *examples: Tensor) -> Callable:
        """`one`, vectorised over sequences; after some calls traced to a graph, which removes the overhead of vmap."""
        self.prepare()
        modes = tuple(cell.training for cell in self.cells)
        key = (name, modes, *((tuple(e.shape), e.dtype, e.device) for e in examples))
        batched = vmap(one, in_dims=(None, None, 0, 0))
        self._calls[key] += 1
        if self._calls[key] < TRACE_AFTER:
            return batched
        if key not in self._known:
            graph = make_fx(lambda *given: batched(*given))(*(e.detach() for e in examples))
            graph.graph.eliminate_dead_code()
            graph.recompile()
            self._known[key] = graph
        return self._known[key]

    def jacobians(self, weights: Tensor, readout: Tensor, state: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        """y, s', and the Jacobians of [s'; y] by weights, readout and s, (n + q, …) each, for one sequence."""

        def both(w: Tensor, r: Tensor, s: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            y, new = self.step(w, r, s, x)
            return torch.cat([new, y]), (y, new)

        (by_weights, by_readout, by_state), (y, new) = jacrev(both, (0, 1, 2), has_aux=True)(weights, readout, state)
        return y, new, by_weights, by_readout, by_state


def is_same_form(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(a is b or are_equal(a, b) for a, b in zip(one, other, strict=True))


def _parts(model: nn.Module) -> tuple[Recurrent | None, nn.Module]:
    """The recurrent layer of a model and its head."""
    layer = model if isinstance(model, (Recurrent, NARX, HierarchicalRNN)) else getattr(model, "layer", None)
    head = nn.Identity() if model is layer else getattr(model, "head", None)
    network = layer if isinstance(layer, (NARX, HierarchicalRNN)) else None
    stepped = set() if network is None else set(network.modules())
    inside = [m for m in model.modules() if isinstance(m, (Recurrent, nn.RNNBase, nn.RNNCellBase)) and m not in stepped]
    if network is not None and not inside and isinstance(head, nn.Module):
        _refuse_shared(network, head)
        return as_layer(network), head
    if not inside:
        if any(isinstance(m, Cell) for m in model.modules()):
            raise InputError(
                "model",
                f"{type(model).__name__}, which steps its cells itself",
                "rc.train.Predictor(layer, head), or BPTT",
            )
        return None, model
    if not isinstance(layer, Recurrent) or inside != [layer] or not isinstance(head, nn.Module):
        raise InputError(
            "model",
            f"{type(model).__name__} with {', '.join(type(m).__name__ for m in inside)}",
            "an rc.Recurrent, or one as `layer` beside a `head` that reads it: rc.train.Predictor(layer, head); "
            "rc.from_torch converts a layer of torch.nn",
        )
    _refuse_shared(layer, head)
    if layer.directions != 1:
        raise OptionError(
            "model", "a bidirectional layer", "a unidirectional layer: an online learner does not see the future"
        )
    return layer, head


def _check_dropout(layer: Recurrent | None) -> None:
    if layer is not None and layer.dropout and layer.training and layer.num_layers > 1:
        raise OptionError("model", "dropout between layers in training mode", "model.eval(), or BPTT")


def check_composition(model: nn.Module, head: nn.Module) -> None:
    """Refuse a module of the user's that computes something else than `head(layer(x))`, by an example."""
    layer: Any = getattr(model, "layer", None)
    if type(model) is Predictor or layer is None or isinstance(model, (Recurrent, NARX, HierarchicalRNN)):
        return
    modes, like = [(part, part.training) for part in model.modules()], first_parameter(layer)
    with preserve_rng(), torch.no_grad(), set_backend("reference"):
        x = torch.randn(5, 2, layer.input_size, dtype=like.dtype, device=like.device)
        try:
            model.eval()
            found, expected = model(x), head(layer(x)[0])
        finally:
            for part, mode in modes:
                part.training = mode
    found = found[0] if isinstance(found, tuple) else found
    tolerance = torch.finfo(like.dtype).eps ** 0.5
    if found.shape != expected.shape or not torch.allclose(found, expected, tolerance, tolerance, equal_nan=True):
        raise InputError("model", f"{type(model).__name__}, which is not head(layer(x))", "rc.train.Predictor, or BPTT")


def _refuse_shared(layer: nn.Module, head: nn.Module) -> None:
    if {id(p) for p in layer.parameters()} & {id(p) for p in head.parameters()}:
        raise OptionError("model", "a weight that layer and head share", "separate weights, or BPTT")


def _named(cells: Sequence[Cell]) -> dict[str, Tensor]:
    found = [(f"{k}.{n}", p) for k, cell in enumerate(cells) for n, p in cell.named_parameters()]
    return {name: p for name, p in found if p.requires_grad}


def _of_cell(weights: dict[str, Tensor], number: int) -> dict[str, Tensor]:
    prefix = f"{number}."
    return {name.removeprefix(prefix): w for name, w in weights.items() if name.startswith(prefix)}


def _flatten(tensors: dict[str, Tensor], like: Tensor) -> Tensor:
    parts = [t.detach().reshape(-1) for t in tensors.values()]
    return torch.cat(parts) if parts else like.new_zeros(0)


def _unflatten(flat: Tensor, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    if not tensors:
        return {}
    parts = flat.split([t.numel() for t in tensors.values()])
    return {name: part.view(t.shape) for (name, t), part in zip(tensors.items(), parts, strict=True)}


def _advance(
    cell: Cell, weights: dict[str, Tensor], x: Tensor, states: list[Tensor]
) -> tuple[Tensor, Sequence[Tensor]]:
    with bind_weights(cell, weights):
        all_weights = cell.weights()
    masks = cell.mean_masks(1, x)  # all ones: active dropout and noise were refused
    y, new, _ = advance(cell, x, states, masks, bind_step(cell, all_weights))
    return y, new


def _check_masks(cell: Cell) -> None:
    """Refuse random numbers: a step is computed more than once here, and each time would draw others."""
    drawn = find_draws(cell)
    random = [name for name, mask in drawn.items() if mask.is_random(cell.training)]
    noise = [name for name in random if isinstance(drawn[name], Noise)]
    if noise:
        raise OptionError("model", f"a cell with noise ({', '.join(noise)})", "one without; BPTT takes noise")
    if random:
        raise OptionError("model", f"dropout ({', '.join(random)}) in training mode", "model.eval(), or no dropout")
