"""Dynamical systems, and what is measured on them: orbits, fixed points, exponents, echoes, memory.

`DynamicalSystem` is h_t = f(h_{t-1}) or h_t = f(h_{t-1}, x_t); cells, reservoirs and flows all become one. The
measurements of this room serve every other one.
"""

from .catalogue import henon, logistic, lorenz
from .echo import EchoState, MemoryCapacity, echo_state, memory_capacity, recalled
from .lyapunov import lyapunov
from .orbits import Bifurcation, FixedPoints, bifurcation, fixed_points
from .system import DynamicalSystem

__all__ = [
    "Bifurcation",
    "DynamicalSystem",
    "EchoState",
    "FixedPoints",
    "MemoryCapacity",
    "bifurcation",
    "echo_state",
    "fixed_points",
    "henon",
    "logistic",
    "lorenz",
    "lyapunov",
    "memory_capacity",
    "recalled",
]
