"""`DynamicalSystem`: iteration of one function (survey section 2.1).

Autonomous, h_t = f(h_{t-1}), or driven, h_t = f(h_{t-1}, x_t). f acts on the last axis of `(…, p)`, so it simulates a
batch of states at once.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..argument_checks import positive_number
from ..cell import Cell
from ..cells.activations import Activation, activation
from ..dilation import refuse_dilation
from ..engine.found_draws import mean_draws
from ..engine.reference import advance
from ..errors import InputError, OptionError, ShapeError
from ..layers import Recurrent

if TYPE_CHECKING:
    from .orbits import Bifurcation, FixedPoints


class DynamicalSystem:
    """A discrete dynamical system h_t = f(h_{t-1}), or driven h_t = f(h_{t-1}, x_t).

    `DynamicalSystem.linear`, `.neural`, `.of` (a cell or a layer) and `.flow` (a differential equation) construct
    common systems. Methods simulate it, unfold it, linearise it, and find fixed points and Lyapunov exponents.

    **Arguments**

    - `step`: f, a function of a state (…, p), or of a state and an input (…, d).
    - `driven`: whether f takes an input; by default from the number of its positional arguments.
    - `dt`: time per step; Lyapunov exponents are per unit of time.

    **Example**

    >>> system = rc.DynamicalSystem(lambda h: 0.5 * h + 1)
    >>> system.simulate(torch.tensor([0.0]), 3).flatten().tolist()
    [0.0, 1.0, 1.5, 1.75]
    >>> layer = rc.GRU(2, 3)
    >>> rc.DynamicalSystem.of(layer).simulate(torch.zeros(3), inputs=torch.randn(10, 2)).shape
    torch.Size([11, 3])
    """

    def __init__(self, step: Callable[..., Tensor], *, driven: bool | None = None, dt: float = 1.0):
        if not callable(step):
            raise InputError("step", type(step).__name__, "a function of the state, or of the state and the input")
        self.step, self.dt = step, positive_number("dt", dt)
        self.driven = _arguments(step) == 2 if driven is None else driven

    # ------------------------------------------------------------------------------------------ constructors

    @classmethod
    def linear(cls, W: Tensor, U: Tensor | None = None, b: Tensor | None = None) -> "DynamicalSystem":
        """h_t = W h_{t-1} (+ U x_t) (+ b)."""
        return cls.neural(W, U, b, "identity")

    @classmethod
    def neural(
        cls, W: Tensor, U: Tensor | None = None, b: Tensor | None = None, nonlinearity: str | Activation = "tanh"
    ) -> "DynamicalSystem":
        """h_t = tanh(W h_{t-1} (+ U x_t) (+ b))."""
        if W.dim() != 2 or W.shape[0] != W.shape[1]:
            raise ShapeError("W", f"shape {tuple(W.shape)}", "a square matrix (p, p)")
        squash = activation(nonlinearity)
        if U is None:
            return cls(lambda h: squash(F.linear(h, W, b)))
        if U.dim() != 2 or U.shape[0] != W.shape[0]:
            raise ShapeError("U", f"shape {tuple(U.shape)}", f"({W.shape[0]}, d)")
        return cls(lambda h, x: squash(F.linear(h, W, b) + F.linear(x, U)))

    @classmethod
    def of(cls, source: Cell | Recurrent) -> "DynamicalSystem":
        """The driven system of a cell, or of a layer with one cell. The state is all carried states in one vector.

        A delayed state contributes all its values (companion form), so h_t = f(h_{t-1}, x_t) holds for every cell.
        Dropout masks and noise are held at their mean.
        """
        cell = _one_cell(source)
        shapes = [spec.shape(1)[1:] for spec in cell.carried]
        sizes = [shape.numel() for shape in map(torch.Size, shapes)]

        def step(h: Tensor, x: Tensor) -> Tensor:
            rows, inputs = h.reshape(-1, sum(sizes)), x.expand(*h.shape[:-1], -1).reshape(-1, cell.input_size)
            states = [s.view(-1, *shape) for s, shape in zip(rows.split(sizes, dim=-1), shapes, strict=True)]
            new = advance(cell, inputs, states, mean_draws(cell, len(rows), rows))[1]
            return torch.cat([s.reshape(len(rows), -1) for s in new], dim=-1).view(h.shape)

        return cls(step)

    @classmethod
    def flow(cls, field: Callable[..., Tensor], dt: float = 0.01) -> "DynamicalSystem":
        """dh/dt = field(h) or field(h, x), with x constant over a step; classical fourth-order Runge-Kutta."""

        def step(h: Tensor, *x: Tensor) -> Tensor:
            k1 = field(h, *x)
            k2 = field(h + dt / 2 * k1, *x)
            k3 = field(h + dt / 2 * k2, *x)
            k4 = field(h + dt * k3, *x)
            return h + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

        return cls(step, driven=_arguments(field) == 2, dt=dt)

    def frozen(self, x: Tensor) -> "DynamicalSystem":
        """The autonomous system of a driven one with constant input x (d,)."""
        if not self.driven:
            raise OptionError("frozen", "an autonomous system", "a driven one")
        return DynamicalSystem(lambda h: self.step(h, x), driven=False, dt=self.dt)

    # ------------------------------------------------------------------------------------------ simulation

    def simulate(self, start: Tensor, steps: int | None = None, inputs: Tensor | None = None) -> Tensor:
        """The orbit from `start` (…, p): (steps + 1, …, p), start first. A driven system takes inputs (T, …, d)."""
        orbit = [_state(start)]
        for x in self.drive(steps, inputs):
            orbit.append(self.step(orbit[-1], *x))
            if orbit[-1].shape != start.shape:
                raise ShapeError(
                    "step", f"a state {tuple(orbit[-1].shape)}", f"one like the last, {tuple(start.shape)}"
                )
        return torch.stack(orbit)

    def drive(self, steps: int | None, inputs: Tensor | None) -> list[tuple[Tensor, ...]]:
        """Arguments of f besides the state, for every step: `()` or `(x,)`."""
        if self.driven:
            if not isinstance(inputs, Tensor) or inputs.dim() < 2:
                raise InputError("inputs", type(inputs).__name__, "a tensor (T, …, d): the system is driven")
            if steps not in (None, len(inputs)):
                raise InputError("steps", steps, f"as many as there are inputs, {len(inputs)}, or nothing")
            return [(x,) for x in inputs.unbind(0)]
        if inputs is not None:
            raise OptionError("inputs", "inputs", "none: the system is autonomous")
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
            raise InputError("steps", steps, "a number of steps, 0 or more: the system is autonomous")
        return [()] * steps

    def unfold(self, steps: int) -> Callable[..., Tensor]:
        """Several steps as one function: h_0 ↦ f(f(…f(h_0))), or h_0, (x_1 … x_T) ↦ h_T."""

        def unfolded(start: Tensor, inputs: Tensor | None = None) -> Tensor:
            h = _state(start)
            for x in self.drive(steps, inputs):
                h = self.step(h, *x)
            return h

        return unfolded

    def jacobians(self, orbit: Tensor, inputs: Tensor | None = None) -> Tensor:
        """∂h_{t+1}/∂h_t at every point (T, p) of an orbit: (T, p, p). A driven system takes its inputs (T, d)."""
        if orbit.dim() != 2:
            raise ShapeError("orbit", f"shape {tuple(orbit.shape)}", "points (T, p)")
        steps = None if self.driven else len(orbit)
        given = () if not self.driven else (inputs,)
        self.drive(steps, inputs)
        if inputs is not None and len(inputs) != len(orbit):
            raise ShapeError("inputs", f"{len(inputs)} inputs", f"one per point, {len(orbit)}")
        return torch.func.vmap(torch.func.jacrev(self.step))(orbit, *given).detach()

    # ------------------------------------------------------------------------------------------ analysis

    def fixed_points(self, starts: Tensor, inputs: Tensor | None = None, tolerance: float = 1e-9) -> "FixedPoints":
        """Fixed points h = f(h) by Newton's method from starts (n, p); a driven system takes a constant input (d,)."""
        from .orbits import fixed_points

        return fixed_points(self if inputs is None else self.frozen(inputs), starts, tolerance)

    @staticmethod
    def bifurcation(
        family: "Callable[[float], DynamicalSystem]",
        values: Tensor,
        start: Tensor,
        transient: int = 500,
        keep: int = 64,
    ) -> "Bifurcation":
        """Bifurcation diagram of `family(value)` (see `rc.dynamics.bifurcation`)."""
        from .orbits import bifurcation

        return bifurcation(family, values, start, transient, keep)

    def lyapunov(
        self,
        start: Tensor,
        steps: int | None = None,
        inputs: Tensor | None = None,
        *,
        transient: int = 0,
        count: int | None = None,
        every: int = 1,
    ) -> Tensor:
        """Lyapunov spectrum, largest first, per unit of time (see `rc.dynamics.lyapunov`)."""
        from .lyapunov import lyapunov

        return lyapunov(self, start, steps, inputs, transient=transient, count=count, every=every)


def _state(start: Tensor) -> Tensor:
    if not isinstance(start, Tensor) or start.dim() == 0 or not start.is_floating_point():
        raise InputError("start", repr(start), "a floating-point state (…, p)")
    return start


def _arguments(step: Callable) -> int:
    """The number of positional arguments without a default."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(step).parameters.values()
    except ValueError as error:  # some functions and classes of C
        raise InputError("step", repr(step), "a function with a signature, or driven=True or False") from error
    count = sum(p.kind in kinds and p.default is p.empty for p in parameters)
    if count not in (1, 2):
        raise InputError("step", f"a function of {count} arguments", "f(h) or f(h, x), or driven=True or False")
    return count


def _one_cell(source: Cell | Recurrent) -> Cell:
    if isinstance(source, Cell):
        return source
    if not isinstance(source, Recurrent) or len(source.cell_list) != 1:
        raise InputError("source", type(source).__name__, "a cell, or a layer of one cell and one direction")
    refuse_dilation("source", source)
    return source.cell_list[0]


def check_system(system: Any) -> None:
    if not isinstance(system, DynamicalSystem):
        raise InputError("system", type(system).__name__, "an rc.DynamicalSystem")


def check_points(argument: str, points: Tensor | Sequence) -> Tensor:
    """A state (p,) or states (n, p), as (n, p)."""
    if not isinstance(points, Tensor) or points.dim() not in (1, 2):
        raise ShapeError(argument, getattr(points, "shape", type(points).__name__), "a state (p,) or states (n, p)")
    return points if points.dim() == 2 else points[None]
