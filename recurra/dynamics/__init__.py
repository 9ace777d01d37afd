"""Dynamical systems and their analysis: orbits, fixed points, Lyapunov exponents, distances, echo-state test, memory.

`DynamicalSystem` is h_t = f(h_{t-1}) or h_t = f(h_{t-1}, x_t). Cells, layers and differential equations convert to it.
"""

from .attractors import power_spectrum_distance, state_space_divergence
from .catalogue import henon, logistic, lorenz
from .echo import EchoState, MemoryCapacity, echo_state, memory_capacity, recalled
from .lyapunov import lyapunov
from .noise_reduction import reduce_noise
from .orbits import Bifurcation, FixedPoints, bifurcation, fixed_points
from .slow_points import SlowPoints, slow_points
from .system import DynamicalSystem

__all__ = [
    "Bifurcation",
    "DynamicalSystem",
    "EchoState",
    "FixedPoints",
    "MemoryCapacity",
    "SlowPoints",
    "bifurcation",
    "echo_state",
    "fixed_points",
    "henon",
    "logistic",
    "lorenz",
    "lyapunov",
    "memory_capacity",
    "power_spectrum_distance",
    "recalled",
    "reduce_noise",
    "slow_points",
    "state_space_divergence",
]
