"""Recurrent layers: a cell run over sequences, with depth, directions, lengths, dropout and streaming.

`y, state = layer(x, state)` means what it means in torch.nn. A delayed state and layers of different widths, which
torch.nn does not have, are described in `Recurrent.forward`.
"""

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from .argument_checks import one_of, positive_int, probability, true_or_false
from .cell import Cell
from .cells import find
from .dilation import dilations_of, initial_state, scan_dilated
from .engine.checkpoint import scan_in_pieces
from .engine.dispatch import Scanned, Sequences, choose, scan
from .engine.found_draws import draw_ahead, find_draws
from .engine.newton.call import iterations_of, require_newton
from .engine.parallel_directions import concat_features, run_both, run_parallel
from .engine.reference import valid_steps
from .engine.require_scan import require_scan
from .errors import InputError, OptionError, ShapeError
from .extensions import implementation
from .init import Initialiser
from .layer_arguments import (
    cell_class_of,
    device_of,
    dtype_of,
    initialisers_of,
    known_options,
    modifiers_of,
    widths_of,
)
from .layer_inputs import check_input, check_resets, first_parameter
from .layer_states import States, check_dense, is_dense, shape_of, split_states, stack_states
from .layer_trace import Trace
from .modifiers import Modifier, modify
from .ragged import Wrapping, check_lengths, reverse, reverse_resets, unwrap

__all__ = ["Recurrent", "layer"]


class Recurrent(nn.Module):
    """A recurrent layer of any cell: runs the cell over whole sequences, in depth and in both directions.

    `rc.LSTM`, `rc.GRU` and the other named layers are this class with the cell filled in.

    **Arguments**

    - `cell`: a subclass of `rc.Cell`, or the name of a registered one.
    - `input_size`: D, the number of input features.
    - `hidden_size`: H, the number of units; a list gives every layer a width of its own.
    - `num_layers`, `bias`, `batch_first`, `dropout`: as in `torch.nn.LSTM`. Dropout acts between layers.
    - `bidirectional`: True lets every layer read both directions of the layer below; `"separate"` gives each direction
      a stack of its own, as in ELMo.
    - `depth`: `"stack"`; `"residual"`, where each layer above the first adds its input; or `"graves"`, where x reaches
      every layer and every layer reaches the output.
    - `dilation`: d lets step t continue the state of step t - d instead of t - 1 (Chang et al. 2017); a list, such as
      `(1, 2, 4, 8)`, gives every layer its own, and their number.
    - `initial`: the state before the first step: `"zeros"`, `"learned"` (a parameter), or `"carried"` (the final state
      of the previous call, detached; `reset_state()` forgets it).
    - `checkpoint`: training stores √T states instead of T and recomputes the steps between them.
    - `parallel`: `"auto"` lets the engine choose; `"scan"` computes on the CPU what reads no state for all steps at
      once, then runs the scan `h = a ⊙ h + b` alone. A cell with another kind of state is refused, with the names
      of the state and of the term that needs the loop. On a GPU both scan in chunks of time. `"newton"` solves all
      steps of any cell at once by Newton iterations; `newton_iterations` tells how many. Where they do not converge,
      as for chaotic states, the loop runs, with one warning. Single steps, torch.compile and half precision do so, too.
    - `modifiers`: regularisers, such as `rc.Zoneout(0.1)`, one or several. Each cell gets its own copies.
    - `init`: initialisers, such as `rc.init.chrono(100)`, one or several, applied after the cell's own.
    - `device`, `dtype`: of the parameters.
    - `**options`: options of the cell.

    **Returns**, when called as `layer(x)`, `(y, state)`: the outputs (T, B, F), with F = `output_size`, and the state
    after the last step. `forward` describes them and the other arguments of a call; `step` runs a single step.

    **Example**

        >>> import torch, recurra as rc
        >>> layer = rc.Recurrent("mgu", 8, 16, num_layers=2, bidirectional=True)
        >>> y, h = layer(torch.randn(5, 3, 8))
        >>> y.shape, h.shape
        (torch.Size([5, 3, 32]), torch.Size([4, 3, 16]))
    """

    def __init__(
        self,
        cell: type[Cell] | str,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Initialiser | Sequence[Initialiser] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ):
        super().__init__()
        self.cell_class = cell_class_of(cell)
        self.input_size = positive_int("input_size", input_size)
        if num_layers is None and isinstance(hidden_size, int) and isinstance(dilation, (list, tuple)) and dilation:
            num_layers = len(dilation)
        self.hidden_sizes = widths_of(hidden_size, num_layers)
        self.num_layers = len(self.hidden_sizes)
        self.hidden_size = hidden_size if isinstance(hidden_size, int) else list(self.hidden_sizes)
        self.bias, self.options = one_of("bias", bias, (False, True)), options
        self.batch_first = one_of("batch_first", batch_first, (False, True))
        self.dropout = probability("dropout", dropout)
        self.bidirectional = one_of("bidirectional", bidirectional, (False, True, "separate"))
        self.depth = one_of("depth", depth, ("stack", "residual", "graves"))
        self.dilation = dilations_of(dilation, self.num_layers, self.cell_class)
        self.initial = one_of("initial", initial, ("zeros", "learned", "carried"))
        self.checkpoint = one_of("checkpoint", checkpoint, (False, True))
        self.parallel = one_of("parallel", parallel, ("auto", "scan", "newton"))
        self.directions = 2 if bidirectional else 1
        self.modifiers = modifiers_of(modifiers)
        self.init = initialisers_of(init)
        self.cells = nn.ModuleList(self._build())
        self.output_size = self._widths_out()[-1] if depth != "graves" else sum(self._widths_out())
        self.carried_state: States | None = None  # with initial="carried": the state after the previous call
        if device is not None or dtype is not None:  # .to() without arguments fails on fake tensors
            self.to(
                device=None if device is None else device_of(device), dtype=None if dtype is None else dtype_of(dtype)
            )

    # ------------------------------------------------------------------------------------------ building

    def _build(self) -> list[Cell]:
        """The cells in torch's order: layer by layer, forward before backward."""
        built: list[Cell] = []
        shared = 1 if self.bidirectional == "separate" else self.directions  # directions of the layer below
        for number, width in enumerate(self.hidden_sizes):
            below = shared * built[-1].output_size if built else self.input_size
            if number and self.depth == "graves":
                below += self.input_size
            built += [self._cell(below, width) for _ in range(self.directions)]
            if number and self.depth == "residual" and shared * built[-1].output_size != below:
                raise OptionError("depth", "'residual'", f"layers of one width; layer {number} has {width}")
        return built

    def _cell(self, input_size: int, hidden_size: int) -> Cell:
        try:
            cell = self.cell_class(input_size, hidden_size, **self.options)
        except TypeError as error:
            unknown = [name for name in self.options if f"'{name}'" in str(error)]
            if isinstance(error, InputError) or not unknown:
                raise
            raise OptionError(
                unknown[0], repr(self.options[unknown[0]]), known_options(self.cell_class, Recurrent, unknown[0])
            ) from error
        cell.check_draws()
        if not self.bias:
            cell.drop_biases()
        if self.initial == "learned":
            cell.learn_start()
        modify(cell, *self.modifiers)
        for initialise in self.init:
            initialise(cell)
        if self.parallel == "scan":
            require_scan(cell)
        elif self.parallel == "newton":
            require_newton(cell)
        if self.parallel != "auto":
            cell.parallel = self.parallel
        return cell

    @property
    def cell_list(self) -> list[Cell]:
        """`cells` as a typed list: one cell for each direction of each layer, in torch's order."""
        return list(self.cells)  # pyrefly: ignore

    @property
    def newton_iterations(self) -> list[int | None]:
        """With `parallel="newton"`: the iterations of the last call for each cell; None where the loop ran."""
        return [iterations_of(cell) for cell in self.cell_list]

    def _widths_out(self) -> list[int]:
        """The output size of every layer, all directions together."""
        return [self.directions * cell.output_size for cell in self.cell_list[:: self.directions]]

    @property
    def _dilations(self) -> tuple[int, ...]:
        """The dilation of every cell."""
        return tuple(d for d in self.dilation for _ in range(self.directions))

    def reset_parameters(self) -> None:
        """Initialise all parameters and buffers again, as in a new layer."""
        fresh = nn.ModuleList(self._build()).state_dict()
        with torch.no_grad():
            for name, tensor in self.cells.state_dict().items():
                tensor.copy_(fresh[name])

    def reset_state(self) -> None:
        """With `initial="carried"`: start the next call from zeros."""
        self.carried_state = None

    def flatten_parameters(self) -> None:
        """Does nothing. Code written for torch.nn calls it."""

    # ------------------------------------------------------------------------------------------ calling

    def forward(
        self,
        x: Tensor | PackedSequence,
        state: Any = None,
        lengths: Tensor | Sequence[int] | None = None,
        resets: Tensor | None = None,
        return_trace: bool = False,
    ) -> Any:
        """Run the layer over whole sequences.

        **Arguments**

        - `x`: (T, B, D), (B, T, D) with `batch_first`, or (T, D) for one sequence; or a `PackedSequence` or nested
          tensor of sequences.
        - `state`: what a previous call returned as its state. None starts as `initial` says.
        - `lengths`: (B,), the number of valid steps of each sequence. Nothing depends on the padding: outputs there are
          zero, the final state is that of the last valid step, and the backward direction starts there.
        - `resets`: (T, B) or (B, T), true where a new sequence begins; the state is reset before that step.
        - `return_trace`: also return every state and named intermediate.

        **Returns** `(y, state)`, or `(y, state, trace)`.

        - `y`: (T, B, F) in the layout or container of x, with F = `output_size`.
        - `state`: (layers · directions, B, size); one tensor for a cell with one state, a tuple for more. A delayed
          state is (layers · directions, B, depth, size), newest first, and a layer with dilation d has (…, B, d, size),
          the last d steps; a state with a shape is (…, B, *shape). Where layers differ in width or dilation, each state
          is a tuple with one tensor per layer and direction.
        - `trace`: a `Trace`.

        **Example**

            >>> layer = rc.LSTM(3, 4, batch_first=True)
            >>> y, (h, c) = layer(torch.randn(2, 5, 3), lengths=[5, 2])
            >>> bool(y[1, 2:].any()), torch.equal(h[0, 1], y[1, 1])
            (False, True)
        """
        if not return_trace:
            done = self._forward_fast(x, state) if lengths is None and resets is None else None
            done = self._forward_on_card(x, state, lengths, resets) if done is None else done
            if done is not None:
                return done
        return_trace = return_trace and true_or_false("return_trace", return_trace)
        x, lengths, wrapping = self._sequences(x, lengths)
        batched = x.dim() == 3
        x = x if batched else x.unsqueeze(1)
        steps, batch = x.shape[:2]
        if lengths is not None:
            if not batched:
                raise OptionError("lengths", "lengths with an unbatched input", "a batch (T, B, D)")
            lengths = check_lengths(lengths, steps, batch, x.device)
        resets = check_resets(resets, x, batched, self.batch_first)
        if resets is not None and lengths is not None:  # a reset past the end would erase the final state
            resets = resets & valid_steps(lengths, steps)
        states = self._initial_states(state, x, batched)
        y, scanned = self._run(x, states, lengths, resets, return_trace)
        if self.initial == "carried":
            self.carried_state = [tuple(value.detach().clone() for value in one.state) for one in scanned]
        final = stack_states(self.cell_list, [one.state for one in scanned], batched, self._dilations)
        y = wrapping.wrap(y, lengths) if lengths is not None else y
        y = self._lay_out(y, batched)
        if not return_trace:
            return y, final
        each = zip(self.cell_list, scanned, strict=True)
        return y, final, Trace([self._named(cell, one, batched) for cell, one in each])

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Run one step, for streaming.

        **Arguments**

        - `x`: (B, D), or (D,) for one sequence.
        - `state`: what the previous step returned, as in `forward`.

        **Returns** `(y, state)`, with y (B, F) or (F,). A bidirectional layer raises an `OptionError`.

        **Example**

            >>> layer, x, state = rc.GRU(3, 4), torch.randn(5, 2, 3), None
            >>> for x_t in x:
            ...     y, state = layer.step(x_t, state)
            >>> torch.allclose(y, layer(x)[0][-1], atol=1e-6)
            True
        """
        hooked = self.__dict__["_forward_hooks"] or self.__dict__["_forward_pre_hooks"]
        if not hooked and type(x) is Tensor and x.dim() == 2 and x.layout is torch.strided:
            done = self._run_fast(x, state)
            if done is not None:
                return done
        if self.bidirectional:
            raise OptionError(
                "step", "a bidirectional layer", "a layer that reads forwards; the future is not known yet"
            )
        if not isinstance(x, Tensor) or x.dim() not in (1, 2):
            raise ShapeError("x", shape_of(x), f"one step, (B, {self.input_size}) or ({self.input_size},)")
        check_dense("x", x)
        time = 1 if self.batch_first and x.dim() == 2 else 0
        y, state = self(x.unsqueeze(time), state)
        return y.squeeze(time), state

    def _forward_fast(self, x: Any, state: Any) -> tuple[Tensor, Any] | None:
        """Fast path for a dense batch through a single layer; None if the general path is needed."""
        if torch.compiler.is_compiling() or (self.checkpoint and torch.is_grad_enabled()):
            return None
        if type(x) is not Tensor or x.is_nested or x.dim() != 3 or x.layout is not torch.strided:
            return None
        done = self._run_fast(x.transpose(0, 1) if self.batch_first else x, state)
        return (done[0].transpose(0, 1), done[1]) if done is not None and self.batch_first else done

    def _forward_on_card(self, x: Any, state: Any, lengths: Any, resets: Any) -> tuple[Tensor, Any] | None:
        """A dense or ragged batch through a single layer on a GPU; None if the general path is needed."""
        if torch.compiler.is_compiling() or self.checkpoint or not isinstance(x, Tensor) or not x.is_cuda:
            return None
        if state is not None or self.bidirectional or self.num_layers > 1 or self.dilation != (1,):
            return None
        if self.initial == "carried" or x.is_nested or x.dim() != 3 or (lengths is not None and resets is not None):
            return None
        self._check_x(x, (3,))
        rows = x.transpose(0, 1) if self.batch_first else x
        steps, batch = rows.shape[:2]
        lengths = lengths if lengths is None else check_lengths(lengths, steps, batch, x.device)
        resets = check_resets(resets, rows, True, self.batch_first)
        cell = self.cell_list[0]
        given = Sequences(rows, None, draw_ahead(cell, steps, batch, rows), lengths, resets)
        choice = choose(cell, given)
        if choice.run is not None:
            scanned = choice.run(given)
        else:
            scanned = scan(cell, given._replace(state=initial_state(cell, batch, rows, 1)))
        y = scanned.y.transpose(0, 1) if self.batch_first else scanned.y
        return y, stack_states([cell], [scanned.state], True)

    def _run_fast(self, x: Tensor, state: Any) -> tuple[Tensor, Any] | None:
        """Run the prepared call of a single layer, for a dense batch or a step; None if there is none."""
        own = self.__dict__  # reading a module's attributes by name takes longer
        if own["bidirectional"] or own["num_layers"] > 1 or own["initial"] == "carried" or own["dilation"] != (1,):
            return None
        single = isinstance(state, Tensor)
        states = (state,) if single else state
        if states is not None and (not isinstance(states, (tuple, list)) or single is not (len(states) == 1)):
            return None
        if states is not None and not all(map(is_dense, states)):
            return None  # the error comes from the general path
        choice = choose(own["_modules"]["cells"]._modules["0"], Sequences(x, states))  # pyrefly: ignore
        if choice.call is None:
            return None
        y, finals = choice.call(x, states)
        return (y, finals) if len(finals) > 1 else (y, finals[0])

    def _run(
        self, x: Tensor, states: States, lengths: Tensor | None, resets: Tensor | None, keep_trace: bool
    ) -> tuple[Tensor, list[Scanned]]:
        """Outputs (T, B, F), and one result per cell."""
        cells = self.cell_list
        scanned: dict[int, Scanned] = {}

        def sequences_for(cell: Cell, number: int, back: bool, below: Tensor) -> Sequences:
            sequence = reverse(below, lengths) if back else below
            starts = reverse_resets(resets, lengths) if back and resets is not None else resets
            masks = draw_ahead(cell, below.shape[0], below.shape[1], below)
            return Sequences(sequence, states[number], masks, lengths, starts)

        def run_dense_pair(numbers: list[int], below: Tensor) -> list[Scanned] | None:
            special = lengths is not None or resets is not None or keep_trace or self.checkpoint
            special = special or any(self._dilations[k] > 1 for k in numbers)
            pair = [cells[k] for k in numbers]
            if len(pair) < 2 or special or any(find_draws(cell) for cell in pair):
                return None
            return run_both(pair, below, [states[k] for k in numbers])

        def run_layer(number: int, below: Tensor, directions: Sequence[int]) -> Tensor:
            numbers = [number * self.directions + direction for direction in directions]
            if (both := run_dense_pair(numbers, below)) is not None:
                scanned.update(zip(numbers, both, strict=True))
                return both[0].y
            pairs = list(zip(numbers, directions, strict=True))
            given = [(cells[k], sequences_for(cells[k], k, direction == 1, below)) for k, direction in pairs]
            results = run_parallel(functools.partial(self._scan, keep_trace, self.dilation[number]), given)
            for (k, direction), result in zip(pairs, results, strict=True):
                scanned[k] = _in_forward_time(result, lengths) if direction == 1 else result
            return concat_features([scanned[k].y for k in numbers])

        if self.bidirectional == "separate":
            y = concat_features([self._stack(x, lambda n, v, d=d: run_layer(n, v, [d])) for d in range(2)])
        else:
            y = self._stack(x, lambda n, v: run_layer(n, v, range(self.directions)))
        return y, [scanned[k] for k in range(len(cells))]

    def _scan(self, keep_trace: bool, dilation: int, cell: Cell, given: Sequences) -> Scanned:
        if dilation > 1:
            return scan_dilated(functools.partial(self._scan, keep_trace, 1), cell, given, dilation)
        if self.checkpoint and not keep_trace:
            return scan_in_pieces(cell, given)
        return scan(cell, given, keep_trace)

    def _stack(self, x: Tensor, run_layer: Any) -> Tensor:
        """Connect the layers in depth."""
        outputs: list[Tensor] = []
        below = x
        for number in range(self.num_layers):
            seen = concat_features([x, below]) if number and self.depth == "graves" else below
            y = run_layer(number, seen)
            if number and self.depth == "residual":
                y = y + outputs[-1]
            outputs.append(y)
            below = F.dropout(y, self.dropout, self.training) if self.dropout else y
        return concat_features(outputs) if self.depth == "graves" else outputs[-1]

    # ------------------------------------------------------------------------------------------ arguments

    def _sequences(self, x: Any, lengths: Any) -> tuple[Tensor, Any, Wrapping]:
        """Time-major x, its lengths, and the container for the outputs."""
        if (unwrapped := unwrap(x)) is not None:
            if lengths is not None:
                raise OptionError("lengths", "lengths beside a packed or nested input", "one of the two")
            x, lengths, wrapping = unwrapped
            self._check_x(x, (3,))
            return x, lengths, wrapping
        self._check_x(x, (2, 3))
        return (x.transpose(0, 1) if self.batch_first and x.dim() == 3 else x), lengths, Wrapping()

    def _check_x(self, x: Any, ranks: tuple[int, ...]) -> None:
        check_input(x, ranks, self.input_size, self.batch_first, first_parameter(self))

    # ------------------------------------------------------------------------------------------ states

    def _initial_states(self, state: Any, x: Tensor, batched: bool) -> States:
        """One tuple per cell: the given state, the carried one, or the cell's own."""
        batch = x.shape[1]
        if state is not None:
            return split_states(self.cell_list, state, x, batched, self._dilations)
        if self.carried_state is not None:
            if self.carried_state[0][0].shape[0] != batch:
                raise ShapeError(
                    "x",
                    f"a batch of {batch}",
                    f"the batch carried over, {self.carried_state[0][0].shape[0]}; reset_state() forgets it",
                )
            return [tuple(value.to(x) for value in states) for states in self.carried_state]
        each = zip(self.cell_list, self._dilations, strict=True)
        return [initial_state(cell, batch, x, dilation) for cell, dilation in each]

    def _lay_out(self, value: Any, batched: bool) -> Any:
        """A time-major value in the layout of the layer's input."""
        if not isinstance(value, Tensor) or value.is_nested:
            return value
        if not batched:
            return value.squeeze(1) if value.dim() > 2 else value
        return value.transpose(0, 1) if self.batch_first and value.dim() > 2 else value

    def _named(self, cell: Cell, scanned: Scanned, batched: bool) -> dict[str, Any]:
        """The named values of one cell's run, in the layout of the output."""
        states = {state.name: state for state in cell.carried}
        named = (scanned.trace or {}).items()
        return {n: self._lay_out(states[n].with_axes(v) if n in states else v, batched) for n, v in named}

    # ------------------------------------------------------------------------------------------ conveniences

    def to_torch(self) -> nn.Module:
        """The torch.nn module with the same equations and weights. Raises a `ConversionError` where torch has none."""
        return implementation("to_torch")(self)

    def export(self, path: str | os.PathLike[str]) -> Path:
        """Write the layer to an ONNX file, for any batch size and length. The file is checked in onnxruntime."""
        return implementation("export")(self, path)

    def extra_repr(self) -> str:
        extras = {"bidirectional": False, "dropout": 0.0, "depth": "stack", "initial": "zeros", "batch_first": False}
        extras |= {"checkpoint": False, "parallel": "auto", "dilation": (1,) * self.num_layers}
        shown = [
            f"{name}={getattr(self, name)!r}" for name, default in extras.items() if getattr(self, name) != default
        ]
        return ", ".join([f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}", *shown])


def layer(name: str, input_size: int, hidden_size: int | Sequence[int], *args: Any, **kwargs: Any) -> Recurrent:
    """A layer of the cell registered under `name`: `Recurrent` with the class looked up.

    **Arguments**

    - `name`: a key of `rc.registry()`.
    - the others: as in `Recurrent`.

    **Returns** a `Recurrent`.

    **Example**

        >>> import recurra as rc
        >>> rc.layer("ugrnn", 3, 4, num_layers=2).output_size
        4
    """
    return Recurrent(find(name), input_size, hidden_size, *args, **kwargs)


def _in_forward_time(result: Scanned, lengths: Tensor | None) -> Scanned:
    """The result of the backward direction, in the order of time."""
    trace = {name: reverse(value, lengths) for name, value in result.trace.items()} if result.trace else None
    return Scanned(reverse(result.y, lengths), result.state, trace)
